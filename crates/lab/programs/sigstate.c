// What a program can ask of signals apart from being interrupted: masks, queues, alternate stacks, and frames that
// handlers read and change. Prints what does not hold.
#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define HOLDS(what) \
    do { \
        if (!(what)) printf("line %d: %s does not hold\n", __LINE__, #what); \
    } while (0)

static volatile int got[65], order, depth, deepest;

static void act(int signo, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    HOLDS(sigaction(signo, &sa, NULL) == 0);
}

static void count(int signo, siginfo_t *info, void *context) {
    (void)context;
    got[signo]++;
    if (info->si_code == SI_QUEUE) order = order * 10 + info->si_value.sival_int;
}

static void masks_and_queues(void) {
    sigset_t some, before, now, pending;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGSEGV);
    sigaddset(&some, SIGRTMIN + 1);
    act(SIGUSR1, count, 0);
    act(SIGUSR2, count, SA_RESETHAND);
    act(SIGSEGV, count, 0);
    act(SIGRTMIN + 1, count, 0);
    HOLDS(sigprocmask(SIG_BLOCK, &some, &before) == 0);
    raise(SIGUSR1);
    raise(SIGUSR1);
    raise(SIGSEGV);
    raise(SIGUSR2);
    HOLDS(got[SIGUSR1] == 0 && got[SIGSEGV] == 0 && got[SIGUSR2] == 1);
    sigpending(&pending);
    HOLDS(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGSEGV) && !sigismember(&pending, SIGUSR2));
    for (int i = 1; i <= 4; i++) sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i});
    HOLDS(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    HOLDS(got[SIGUSR1] == 1 && got[SIGSEGV] == 1 && got[SIGRTMIN + 1] == 4 && order == 1234);
    sigprocmask(SIG_BLOCK, &some, NULL);
    raise(SIGUSR1);
    HOLDS(sigsuspend(&before) == -1 && errno == EINTR && got[SIGUSR1] == 2);
    sigprocmask(SIG_SETMASK, &before, &now);
    HOLDS(sigismember(&now, SIGUSR1) && sigismember(&now, SIGSEGV));
    struct sigaction reset;
    sigaction(SIGUSR2, NULL, &reset);
    HOLDS(reset.sa_handler == SIG_DFL);
}

static void again(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    if (++depth > deepest) deepest = depth;
    if (depth < 4) raise(signo);
    depth--;
}

static char *page;
static volatile int faults;

static void permit(int signo, siginfo_t *info, void *context) {
    (void)signo;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    HOLDS(r[REG_TRAPNO] == 14 && r[REG_ERR] & 2 && r[REG_CR2] == (greg_t)info->si_addr);
    faults++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void repeated_instruction(void) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    act(SIGSEGV, permit, 0);
    page[10] = 42;
    HOLDS(faults == 1 && page[10] == 42);
    mprotect(page, 4096, PROT_READ);
    unsigned long a, b;
    __asm__ volatile("mov $0x1010, %%r10; mov $0x1111, %%r11; movl $7, (%2); mov %%r10, %0; mov %%r11, %1"
                     : "=&r"(a), "=&r"(b)
                     : "r"(page)
                     : "r10", "r11", "memory");
    HOLDS(faults == 2 && a == 0x1010 && b == 0x1111 && *(int *)page == 7);
}

__attribute__((target("avx2"))) static void change(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info;
    ucontext_t *c = context;
    unsigned *words = (unsigned *)c->uc_mcontext.fpregs;
    unsigned size = words[120];
    HOLDS(words[116] == FP_XSTATE_MAGIC1 && words[117] == size + 4);
    HOLDS(words[size / 4] == FP_XSTATE_MAGIC2);
    HOLDS(_mm_getcsr() == 0x1f80);
    c->uc_mcontext.fpregs->_xmm[5].element[0] = 0xdeadbeef;
    c->uc_mcontext.gregs[REG_RBX] = 0x1122334455667788;
    c->uc_mcontext.gregs[REG_RIP] += 2;
    __asm__ volatile("vpcmpeqd %%ymm6, %%ymm6, %%ymm6" ::: "xmm6");
}

__attribute__((target("avx2"))) static void frame_is_read_back(void) {
    act(SIGILL, change, 0);
    unsigned char in[32], out[32];
    unsigned five;
    unsigned long rbx;
    double pi;
    for (int i = 0; i < 32; i++) in[i] = 3 * i;
    __asm__ volatile("vmovdqu %4, %%ymm6; vpxor %%xmm5, %%xmm5, %%xmm5; fldpi; ud2; vmovdqu %%ymm6, %0;"
                     "vmovd %%xmm5, %1; fstpl %2; mov %%rbx, %3"
                     : "=m"(out), "=r"(five), "=m"(pi), "=&r"(rbx)
                     : "m"(in)
                     : "rbx", "xmm5", "xmm6", "memory");
    HOLDS(memcmp(in, out, 32) == 0 && five == 0xdeadbeef && rbx == 0x1122334455667788);
    HOLDS(pi > 3.1415926 && pi < 3.1415927);
}

static char other[65536];
static sigjmp_buf back;
static volatile int elsewhere;

static void on_other_stack(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info, (void)context;
    char here;
    stack_t now;
    elsewhere = &here >= other && &here < other + sizeof other;
    HOLDS(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK);
    HOLDS(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == -1 && errno == EPERM);
    siglongjmp(back, 1);
}

static void alternate_stack(void) {
    HOLDS(sigaltstack(&(stack_t){.ss_sp = other, .ss_size = 100}, NULL) == -1 && errno == ENOMEM);
    HOLDS(sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL) == 0);
    act(SIGSEGV, on_other_stack, SA_ONSTACK);
    for (int i = 0; i < 2; i++) {
        elsewhere = 0;
        if (!sigsetjmp(back, 1)) *(volatile char *)16 = 1;
        HOLDS(elsewhere);
    }
    stack_t now;
    HOLDS(sigaltstack(NULL, &now) == 0 && now.ss_sp == other && now.ss_flags == 0);
}

static void own_mappings(void) {
    char line[1000];
    int stacks = 0, heaps = 0, others = 0;
    void *p = sbrk(4096);
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f)) {
        stacks += strstr(line, "[stack]") != NULL;
        heaps += strstr(line, "[heap]") != NULL;
        others += strstr(line, "memfd") != NULL;
    }
    fclose(f);
    HOLDS(p != (void *)-1 && stacks == 1 && heaps == 1 && others == 0);
}

int main(void) {
    masks_and_queues();
    act(SIGUSR2, again, SA_NODEFER);
    raise(SIGUSR2);
    HOLDS(deepest == 4);
    repeated_instruction();
    if (__builtin_cpu_supports("avx2")) frame_is_read_back();
    alternate_stack();
    own_mappings();
    puts("done");
}

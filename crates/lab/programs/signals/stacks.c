// Alternate stacks.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static __thread char *mine;
static __thread sigjmp_buf back;
static __thread int depth;
#define SIZE 65536

static const char *place(void *p) { return (char *)p >= mine && (char *)p < mine + SIZE ? "alternate" : "ordinary"; }

static void show(const char *what) {
    stack_t s;
    sigaltstack(NULL, &s);
    printf("%s: flags %x size %zu own %d\n", what, s.ss_flags, s.ss_size, s.ss_sp == mine);
}

static void handler(int signo, siginfo_t *info, void *context) {
    char here;
    ucontext_t *u = context;
    printf("handler on %s stack, saved flags %x size %zu\n", place(&here), u->uc_stack.ss_flags, u->uc_stack.ss_size);
    show("inside");
    if (depth++ < 2) raise(SIGUSR2);
    stack_t off = {.ss_flags = SS_DISABLE};
    int r = sigaltstack(&off, NULL);
    printf("disabling: %s\n", r ? strerrorname_np(errno) : "done");
    depth--;
}

static void jump(int signo, siginfo_t *info, void *context) {
    char here;
    printf("caught %d on %s stack\n", signo, place(&here));
    siglongjmp(back, 1);
}

static void act(int signo, void *h, int flags) {
    struct sigaction sa = {.sa_sigaction = h, .sa_flags = SA_SIGINFO | flags};
    sigaction(signo, &sa, NULL);
}

static int use(unsigned flags, size_t size) {
    stack_t s = {.ss_sp = mine, .ss_flags = flags, .ss_size = size};
    errno = 0;
    int r = sigaltstack(&s, NULL);
    printf("sigaltstack(%x, %zu): %d %s\n", flags, size, r, r ? strerrorname_np(errno) : "");
    return r;
}

__attribute__((noinline)) static int deep(int n) {
    volatile char space[4000];
    space[n % 4000] = (char)n;
    return n < 0 ? 0 : deep(n + 1) + space[0];
}

static void overflow(const char *what) {
    printf("%s: ", what);
    if (!sigsetjmp(back, 1)) deep(0);
}

static void all(void) {
    mine = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show("at first");
    use(0, 100), use(0, 2047), use(4, SIZE), use(SS_ONSTACK, SIZE), use(SS_DISABLE, 0), use(SS_AUTODISARM, SIZE);
    use(SS_AUTODISARM | SS_DISABLE, 0);
    show("disabled");
    use(0, SIZE);
    raise(SIGUSR1);
    use(SS_AUTODISARM, SIZE);
    raise(SIGUSR1);
    show("after");
    use(0, SIZE);
    act(SIGSEGV, jump, SA_ONSTACK);
    overflow("first overflow");
    overflow("second overflow");
    // The alternate stack is too small for a frame, or cannot be written.
    use(SS_DISABLE, 0);
    raise(SIGUSR2);
}

static void *thread(void *unused) {
    all();
    return NULL;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct rlimit r = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_STACK, &r);
    act(SIGUSR1, handler, SA_ONSTACK | SA_NODEFER);
    act(SIGUSR2, handler, SA_NODEFER);
    if (argc > 1) {
        mine = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        switch (argv[1][0]) {
        case 'o':  // overflow without an alternate stack
            act(SIGSEGV, jump, 0);
            deep(0);
            break;
        case 'u':  // the alternate stack has gone
            use(0, SIZE);
            munmap(mine, SIZE);
            raise(SIGUSR1);
            break;
        case 's':  // SIGSEGV catches that a frame cannot be written
            use(0, SIZE);
            act(SIGSEGV, jump, SA_ONSTACK);
            if (!sigsetjmp(back, 1)) {
                __asm__ volatile("mov %%rsp, %%rbx; mov $4096, %%rsp; mov %0, %%eax; mov %1, %%edi; mov %%edi, %%esi;"
                                 "xor %%esi, %%esi; mov $39, %%eax; syscall; mov %%eax, %%edi; mov $12, %%esi; mov $62, %%eax; syscall;"
                                 "mov %%rbx, %%rsp" ::"i"(39), "i"(0) : "rax", "rbx", "rcx", "rdi", "rsi", "r11", "memory");
                printf("not reached\n");
            }
            printf("went on\n");
            break;
        case 'b':  // a fault while its signal is blocked
            act(SIGSEGV, jump, 0);
            sigset_t s;
            sigemptyset(&s), sigaddset(&s, SIGSEGV), sigprocmask(SIG_BLOCK, &s, NULL);
            *(volatile int *)16 = 1;
            break;
        case 'i':  // a fault that is ignored
            signal(SIGSEGV, SIG_IGN);
            raise(SIGSEGV);
            printf("ignored\n");
            *(volatile int *)16 = 1;
            break;
        case 't':  // too small an alternate stack
            use(0, 2048);
            raise(SIGUSR1);
            break;
        }
        return 0;
    }
    all();
    pthread_t t;
    pthread_create(&t, NULL, thread, NULL);
    pthread_join(t, NULL);
    show("main again");
}

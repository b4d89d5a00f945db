// Steps through its own instructions by the trap flag.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST 4000
static struct trap { uint64_t at, address, rcx; int code, number, set; } traps[MOST];
static int count;
static const uint64_t TF = 0x100;

static void trapped(int signo, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (count < MOST)
        traps[count++] = (struct trap){r[REG_RIP], (uint64_t)info->si_addr, r[REG_RCX], info->si_code, r[REG_TRAPNO], !!(r[REG_EFL] & TF)};
}
static volatile int ends;
static void last(int signo, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    trapped(signo, info, context);
    if (ends && count >= ends) r[REG_EFL] &= ~TF;
}
static void begins(int signo, siginfo_t *info, void *context) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TF;
}
static void skips(int signo, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    printf("fault: TF %d, RF %d, trap %d\n", !!(r[REG_EFL] & TF), !!(r[REG_EFL] & 0x10000), (int)r[REG_TRAPNO]);
    r[REG_RIP] += 3;
}
static void on(int signo, void (*f)(int, siginfo_t *, void *)) {
    struct sigaction a = {.sa_sigaction = f, .sa_flags = SA_SIGINFO};
    sigaction(signo, &a, NULL);
}

// What was seen since the beginning, relative to `base`.
static void show(const char *what, const void *base) {
    printf("%s: %d\n", what, count);
    for (int i = 0; i < count; i++) {
        struct trap *t = &traps[i];
        printf("  %ld %s code %d trap %d rcx %ld set %d\n", (long)(t->at - (uint64_t)base), t->at == t->address ? "here" : "elsewhere", t->code, t->number, (long)(t->rcx < 1000 ? t->rcx : -1), t->set);
    }
    count = 0;
}

#define ON "pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\t"
#define OFF "pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\t"

extern char s1[], s2[], s3[], s4[], s5[], s6[], s7[];

__attribute__((noinline)) static void plain(void) {
    long x = 5;
    asm volatile("sub $128, %%rsp\n\ts1: " ON "nop\n\tadd $3, %0\n\tpush %0\n\tpop %0\n\tcall 1f\n\tjmp 2f\n\t1: ret\n\t2: imul %0, %0\n\t" OFF "nop\n\tadd $128, %%rsp" : "+r"(x)::"memory");
    show("plain", s1);
    printf("%ld\n", x);
}
__attribute__((noinline)) static void strings(void) {
    static char from[64] = "repeated strings", to[64];
    void *a = from, *b = to;
    long n = 9, m = 6;
    asm volatile("sub $128, %%rsp\n\ts2: " ON "rep movsb\n\tnop\n\tmov %3, %2\n\tstd\n\tsub $7, %%rsi\n\tsub $7, %%rdi\n\trepe cmpsb\n\tcld\n\tmov $0, %%ecx\n\trep stosb\n\t" OFF "add $128, %%rsp" : "+S"(a), "+D"(b), "+c"(n) : "r"(m) : "memory", "rax");
    show("strings", s2);
    printf("%s %ld\n", to, n);
}
__attribute__((noinline)) static void calls(void) {
    long r = SYS_getppid, flags, saved;
    asm volatile("sub $128, %%rsp\n\ts3: " ON "syscall\n\tmov %%r11, %1\n\tnop\n\tpushfq\n\tpop %2\n\t" OFF "add $128, %%rsp" : "+a"(r), "=&r"(flags), "=&r"(saved)::"rcx", "r11", "memory");
    show("calls", s3);
    printf("%d %d %d\n", r == getppid(), !!(flags & TF), !!(saved & TF));
}
__attribute__((noinline)) static void faults(void) {
    asm volatile("sub $128, %%rsp\n\ts4: " ON "xor %%eax, %%eax\n\tmov (%%rax), %%rdx\n\tnop\n\tint3\n\tnop\n\t" OFF "add $128, %%rsp" ::: "rax", "rdx", "memory");
    show("faults", s4);
}
__attribute__((noinline)) static void by_return(void) {
    ends = 12;
    on(SIGTRAP, last);
    long n = 0, nr = SYS_tkill, me = syscall(SYS_gettid), sig = SIGUSR1;
    asm volatile("s5: syscall\n\tnop\n\t1: add $1, %0\n\tcmp $10, %0\n\tjb 1b\n\t" : "+r"(n), "+a"(nr) : "D"(me), "S"(sig) : "rcx", "r11", "memory");
    show("by return", s5);
    printf("%ld\n", n);
    ends = 0;
    on(SIGTRAP, trapped);
}
__attribute__((noinline)) static void forks(void) {
    long r = SYS_fork;
    fflush(stdout);
    asm volatile("sub $128, %%rsp\n\ts6: " ON "syscall\n\tnop\n\tnop\n\t" OFF "add $128, %%rsp" : "+a"(r)::"rcx", "r11", "memory");
    if (!r) {
        show("child", s6);
        exit(3);
    }
    int status;
    waitpid(r, &status, 0);
    show("parent", s6);
    printf("%x\n", status);
}
static void library(void) {
    // A whole function of the C library, and one that the processor is asked about.
    char text[100];
    asm volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
    int n = snprintf(text, sizeof text, "%d %s", 42, "words");
    asm volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
    int good = 0;
    for (int i = 0; i < count; i++) good += traps[i].at == traps[i].address && traps[i].code == 2 && traps[i].set;
    printf("library: %s, %d of them as expected, many %d\n", text, good == count, count > 200);
    count = 0;
}
static void dies(void) {
    fflush(stdout);
    int status;
    for (int blocked = 0; blocked < 2; blocked++) {
        pid_t child = fork();
        if (!child) {
            sigset_t set;
            sigemptyset(&set), sigaddset(&set, SIGTRAP);
            if (blocked) sigprocmask(SIG_BLOCK, &set, NULL);
            else signal(SIGTRAP, SIG_DFL);
            asm volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tnop\n\tnop" ::: "memory", "cc");
            _exit(1);
        }
        waitpid(child, &status, 0);
        printf("died of %d\n", WTERMSIG(status));
    }
}
int main(int argc, char **argv) {
    on(SIGTRAP, trapped), on(SIGUSR1, begins), on(SIGSEGV, skips);
    plain(), strings(), calls(), faults(), by_return(), forks(), library(), dies();
    return 0;
}

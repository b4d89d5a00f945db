// System calls that a thread gets as signals, as programs do that run those of other systems.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define SA_RESTORER 0x04000000
#define SET 59
enum { OFF, OUTSIDE, INSIDE };
enum { ALLOW, BLOCK };

// A call whose instruction is in the range of these functions.
__attribute__((section("inner"), noinline)) static long within(long nr, long a, long b, long c) {
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return ret;
}

// The same elsewhere.
__attribute__((noinline)) static long elsewhere(long nr, long a, long b, long c) {
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return ret;
}

// What the kernel has a handler return to, also in the range.
void restorer(void);
__asm__(".pushsection inner, \"ax\"\nrestorer: mov $15, %eax\nsyscall\n.popsection");

extern char __start_inner[], __stop_inner[];
static volatile char selector;
static int handled;

static void say(const char *what, long r) {
    char line[100];
    int n = snprintf(line, sizeof line, "%s: %ld\n", what, r);
    within(SYS_write, 1, (long)line, n);
}

static void handler(int signo, siginfo_t *i, void *context) {
    char before = selector;
    selector = ALLOW;
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    char line[200];
    int n = snprintf(line, sizeof line, "signal %d code %d errno %d call %d arch %x rax %lld rdi %lld at rip %d rcx %d behind %x\n", signo, i->si_code,
                     i->si_errno, i->si_syscall, i->si_arch, g[REG_RAX], g[REG_RDI], (greg_t)i->si_call_addr == g[REG_RIP],
                     g[REG_RCX] == g[REG_RIP], *(unsigned short *)(g[REG_RIP] - 2));
    within(SYS_write, 1, (long)line, n);
    g[REG_RAX] = 1000 + ++handled;
    selector = before;
}

static long set(long mode, unsigned long start, unsigned long len, volatile char *byte) {
    long ret;
    register long r10 __asm__("r10") = len;
    register long r8 __asm__("r8") = (long)byte;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(SYS_prctl), "D"(SET), "S"(mode), "d"(start), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return ret;
}

static long range(long mode, volatile char *byte) { return set(mode, (long)__start_inner, __stop_inner - __start_inner, byte); }

static void *thread(void *arg) {
    say("of a thread", elsewhere(SYS_kill, 0, 64 + 1, 0));
    return NULL;
}

static void in_child(const char *what, void (*f)(void)) {
    pid_t child = fork();
    if (!child) {
        f();
        within(SYS_exit_group, 55, 0, 0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%s: status %x\n", what, status & 0xff7f);
    fflush(stdout);
}

static void calls(void) {
    say("on", range(OUTSIDE, &selector));
    say("allowed", elsewhere(SYS_kill, 1 << 30, 65, 0));
    selector = BLOCK;
    say("blocked", elsewhere(SYS_kill, 4711, 65, 0));
    say("no call at all", elsewhere(123456, 7, 0, 0));
    say("within", within(SYS_kill, 1 << 30, 65, 0));
    selector = ALLOW;
    pthread_t t;
    pthread_create(&t, NULL, thread, NULL);
    pthread_join(t, NULL);
    selector = BLOCK;
    say("off by itself", elsewhere(SYS_prctl, SET, OFF, 0));
    selector = ALLOW;
    say("off", set(OFF, 0, 0, NULL));
    selector = BLOCK;
    say("after that", elsewhere(SYS_kill, 1 << 30, 65, 0));
}

static void always(void) {
    say("always", range(OUTSIDE, NULL));
    say("blocked", elsewhere(SYS_kill, 1 << 30, 65, 0));
    say("within", within(SYS_kill, 1 << 30, 65, 0));
}

static void children(void) {
    range(OUTSIDE, &selector);
    if (!fork()) {
        selector = BLOCK;
        say("of a child", elsewhere(SYS_kill, 1 << 30, 65, 0));
        within(SYS_exit_group, 0, 0, 0);
    }
    int status;
    wait(&status);
    // Nor does a program that is executed have any of this.
    selector = ALLOW;
    execl("/bin/sh", "sh", "-c", "exit 3", NULL);
}

static void other_value(void) {
    range(OUTSIDE, &selector);
    selector = 2;
    elsewhere(SYS_getpid, 0, 0, 0);
}

static void no_byte(void) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    range(OUTSIDE, page);
    munmap(page, 4096);
    elsewhere(SYS_getpid, 0, 0, 0);
}

static void ignored(void) {
    range(OUTSIDE, &selector);
    signal(SIGSYS, SIG_IGN);
    selector = BLOCK;
    elsewhere(SYS_getpid, 0, 0, 0);
}

static void inverted(void) {
    // Kernels before 6.17 do not know it.
    say("inside", range(INSIDE, &selector));
}

int main(void) {
    setbuf(stdout, NULL);
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } sa = {handler, SA_SIGINFO | SA_RESTORER, restorer, 0};
    syscall(SYS_rt_sigaction, SIGSYS, &sa, NULL, 8);
    say("off with a range", set(OFF, 1, 0, NULL));
    say("off with a byte", set(OFF, 0, 0, &selector));
    say("mode", set(7, 0, 0, NULL));
    say("empty", set(OUTSIDE, 5, 0, NULL));
    say("wraps", set(OUTSIDE, 5, -3ul, NULL));
    say("byte of the kernel", set(OUTSIDE, 5, 7, (char *)-4096));
    say("byte nowhere", set(OUTSIDE, 0, -1ul, (char *)4096));
    say("off", set(OFF, 0, 0, NULL));
    in_child("calls", calls);
    in_child("always", always);
    in_child("children", children);
    in_child("other value", other_value);
    in_child("no byte", no_byte);
    in_child("ignored", ignored);
    in_child("inverted", inverted);
}

/* Signals by raise, by timers and by faults, also of string instructions; handlers on another stack and that
 * leave by siglongjmp; a child that aborts. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>
#include <sys/time.h>
static volatile long count, ticks; static sigjmp_buf out; static char *page;
static void __attribute__((noinline)) deep(int n) { volatile char pad[100]; pad[n % 100] = n; if (n) deep(n - 1); else kill(getpid(), SIGUSR1); pad[0]++; }
static void on_usr(int s, siginfo_t *i, void *c) { count += s; }
static void on_tick(int s) { ticks++; }
static void on_segv(int s, siginfo_t *i, void *c) {
    if ((char *) i->si_addr >= page && (char *) i->si_addr < page + 8192) { mprotect(page, 8192, PROT_READ | PROT_WRITE); return; }
    siglongjmp(out, 1);
}
int main() {
    struct sigaction a = { .sa_flags = SA_SIGINFO };
    a.sa_sigaction = on_usr; sigaction(SIGUSR1, &a, 0);
    a.sa_sigaction = on_segv; a.sa_flags |= SA_ONSTACK;
    stack_t st = { .ss_sp = malloc(65536), .ss_size = 65536 }; sigaltstack(&st, 0);
    sigaction(SIGSEGV, &a, 0);
    signal(SIGALRM, on_tick);
    for (int i = 0; i < 5; i++) raise(SIGUSR1), deep(i);
    page = mmap(0, 12288, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 8192, 4096, PROT_READ | PROT_WRITE);
    memset(page + 8192, 7, 4096);
    char src[5000]; memset(src, 3, 5000);
    // String instructions into pages that fault at their beginning or in their middle.
    char *d = page; const char *q = src; long n = 5000;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(q), "+c"(n) :: "memory");
    d = page + 100; q = src; n = 4500;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(q), "+c"(n) :: "memory");
    d = page + 8192 + 100; n = 600;
    __asm__ volatile("std\n rep stosq\n cld" : "+D"(d), "+c"(n) : "a"(0x1122334455667788) : "memory");
    mprotect(page, 8192, PROT_NONE); mprotect(page, 4096, PROT_READ);
    d = page; q = src; n = 5000;
    __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(q), "+c"(n) :: "memory", "cc");
    mprotect(page, 8192, PROT_NONE);
    d = page + 8192 + 500; n = 1000;
    __asm__ volatile("std\n rep stosq\n cld" : "+D"(d), "+c"(n) : "a"(0x1122334455667788) : "memory");
    mprotect(page + 4096, 4096, PROT_READ);
    *(volatile long *)(page + 4092) = 77;
    volatile long *bad = (long *) 0x10; if (!sigsetjmp(out, 1)) *bad = 1;
    struct itimerval it = { { 0, 100 }, { 0, 100 } }; setitimer(ITIMER_REAL, &it, 0);
    volatile long x = 0; while (ticks < 2) { x = x * 3 + ticks; for (int i = 0; i < 50; i++) src[i * 7] += i; }
    it = (struct itimerval) { { 0, 0 }, { 0, 0 } }; setitimer(ITIMER_REAL, &it, 0);
    printf("%ld %ld\n", count, ticks > 0 ? 1L : 0L);
    if (!fork()) { page[1] = 9; raise(SIGUSR1); abort(); }
    long s; wait(&s);
    return 0;
}

/* Handles its own faults: repairs, skips, jumps out, runs on an alternate stack. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static char *area;
static volatile int repaired, skipped, jumped;
static sigjmp_buf back;

static void repair(int signo, siginfo_t *info, void *context) {
    (void)context;
    char *page = (char *)((unsigned long)info->si_addr & ~4095UL);
    if (signo != SIGSEGV || info->si_code != SEGV_ACCERR || page < area || page >= area + 64 * 4096)
        _exit(99);
    repaired++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void skip(int signo, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    (void)signo;
    if (info->si_code != FPE_INTDIV || (void *)u->uc_mcontext.gregs[REG_RIP] != info->si_addr)
        _exit(98);
    u->uc_mcontext.gregs[REG_RIP] += 2; /* idiv ecx */
    u->uc_mcontext.gregs[REG_RAX] = 4711;
    skipped++;
}

static void jump(int signo) {
    char here;
    jumped++;
    siglongjmp(back, signo * 10 + (&here > area && &here < area + 65 * 4096));
}

__attribute__((noinline)) static int deep(int n) {
    volatile char space[4000];
    space[n % 4000] = (char)n;
    return n < 0 ? 0 : deep(n + 1) + space[0];
}

int main(void) {
    area = mmap(0, 128 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction act = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0);
    unsigned long sum = 0;
    for (int i = 0; i < 64; i++)
        memset(area + i * 4096 + 100, i, 3000);
    for (int i = 0; i < 64 * 4096; i++)
        sum = sum * 31 + (unsigned char)area[i];
    printf("repaired %d, %lx\n", repaired, sum);

    act.sa_sigaction = skip;
    sigaction(SIGFPE, &act, 0);
    for (int i = 0; i < 5; i++) {
        int result = i + 1;
        __asm__ volatile("cltd; idivl %%ecx" : "+a"(result) : "c"(0) : "edx");
        sum += result;
    }
    printf("skipped %d, %lx\n", skipped, sum);

    stack_t alternate = {.ss_sp = area, .ss_size = 64 * 4096};
    sigaltstack(&alternate, 0);
    act.sa_handler = jump;
    act.sa_flags = SA_ONSTACK;
    for (int signo = SIGILL; signo <= SIGSEGV; signo++)
        if (signo == SIGILL || signo == SIGSEGV || signo == SIGTRAP)
            sigaction(signo, &act, 0);
    int came = sigsetjmp(back, 1);
    if (came == 0)
        __asm__ volatile("ud2");
    printf("came %d\n", came);
    came = sigsetjmp(back, 1);
    if (came == 0)
        __asm__ volatile("int3");
    printf("came %d\n", came);
    came = sigsetjmp(back, 1);
    if (came == 0)
        printf("%d\n", deep(0));
    printf("came %d, jumped %d\n", came, jumped);
    return 0;
}

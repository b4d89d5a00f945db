// Stores of the x87 where exceptions are not masked. Says what memory has, and where each exception comes.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static int waits, ends[2];

static void handler(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    unsigned char *at = (unsigned char *)u->uc_mcontext.gregs[REG_RIP];
    waits++;
    // The instruction that waits begins with the byte 9b.
    printf(" signal %d, code %d, at %02x, top %x", signal, info->si_code, *at, u->uc_mcontext.fpregs->swd >> 11 & 7);
    u->uc_mcontext.fpregs->swd &= ~0x80ff;
    u->uc_mcontext.fpregs->cwd |= 0x3f;
}

// The kernel writes what is there before, so a recorder may not know it.
#define STORE(instruction)                                                                  \
    do {                                                                                    \
        char old[16], to[16];                                                               \
        memset(old, 7, sizeof old);                                                         \
        write(ends[1], old, sizeof old);                                                    \
        read(ends[0], to, sizeof to);                                                       \
        __asm__ volatile("fldcw %1\n fldt %2\n " instruction " %0\n nop\n fwait\n fninit"     \
                         : "+m"(to)                                                         \
                         : "m"(control), "m"(value)                                         \
                         : "memory");                                                       \
        printf(" " instruction ":");                                                        \
        for (int i = 0; i < 10; i++) printf(" %02x", (unsigned char)to[i]);                 \
        printf("\n");                                                                       \
    } while (0)

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    long double values[] = {1e4000L, 1e-4000L, 1.0L / 3, 12345.5L};
    unsigned short masks[] = {0x00, 0x1f, 0x37, 0x3f};
    sigaction(SIGFPE, &action, 0);
    pipe(ends);
    for (int v = 0; v < 4; v++)
        for (int m = 0; m < 4; m++) {
            volatile long double value = values[v];
            volatile unsigned short control = 0x340 | masks[m];
            STORE("fsts");
            STORE("fstps");
            STORE("fstl");
            STORE("fstpl");
            STORE("fists");
            STORE("fistps");
            STORE("fistl");
            STORE("fistpl");
            STORE("fistpll");
            STORE("fisttpl");
            STORE("fbstp");
        }
    return waits == 0;
}

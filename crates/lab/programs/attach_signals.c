// A timer's handler on a stack of its own; blocked, ignored and pending signals; vector registers. None of it may
// change when a recorder comes or leaves.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long ticks, bad;
static char alt[65536];

static void tick(int s, siginfo_t *i, void *u) {
    char here;
    if (&here < alt || &here > alt + sizeof alt || s != SIGALRM)
        bad++;
    ticks++;
}

int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
    sigaltstack(&ss, 0);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = tick;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaddset(&a.sa_mask, SIGUSR2);
    sigaction(SIGALRM, &a, 0);
    signal(SIGTRAP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigaddset(&m, SIGSEGV);
    sigprocmask(SIG_BLOCK, &m, 0);
    raise(SIGUSR1);
    puts("running");
    fflush(stdout);
    struct itimerval it = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &it, 0);
    struct timespec b, e;
    clock_gettime(CLOCK_MONOTONIC, &b);
    double sum[4] = {0}, want[4] = {0};
    unsigned long n = 0, again = 0;
    long rounds = 0;
    do {
        for (int i = 0; i < 20000; i++) {
            for (int k = 0; k < 4; k++)
                sum[k] += 1.0 / (i + k + 1);
            n = n * 6364136223846793005ul + i;
        }
        rounds++;
        clock_gettime(CLOCK_MONOTONIC, &e);
    } while (e.tv_sec - b.tv_sec + (e.tv_nsec - b.tv_nsec) / 1e9 < seconds);
    memset(&it, 0, sizeof it);
    setitimer(ITIMER_REAL, &it, 0);
    while (rounds--)
        for (int i = 0; i < 20000; i++) {
            for (int k = 0; k < 4; k++)
                want[k] += 1.0 / (i + k + 1);
            again = again * 6364136223846793005ul + i;
        }
    printf("%s %s %s, %ld bad\n", memcmp(sum, want, sizeof sum) ? "FLOATS" : "floats",
           n == again ? "integers" : "INTEGERS", ticks > 50 ? "many" : "few", bad);
    struct timespec t = {0, 0};
    siginfo_t info;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    printf("pending %d\n", sigtimedwait(&one, &info, &t) == SIGUSR1);
    for (int s = 1; s < 65; s++)
        if (!sigaction(s, 0, &a) && a.sa_handler != SIG_DFL)
            printf("action %d %s %x %lx\n", s, a.sa_handler == SIG_IGN ? "ignore" : a.sa_sigaction == tick ? "tick" : "OTHER",
                   a.sa_flags & ~0x4000000, *(unsigned long *)&a.sa_mask);
    sigprocmask(0, 0, &m);
    printf("mask %lx\n", *(unsigned long *)&m);
    sigaltstack(0, &ss);
    printf("stack %d %d %zu\n", ss.ss_sp == alt, ss.ss_flags, ss.ss_size);
    return 0;
}

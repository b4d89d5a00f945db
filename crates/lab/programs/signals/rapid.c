// Timers at high rates while the program computes; their overruns and kinds.
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long real, virtual, profile, posix, values;
static void handler(int signo, siginfo_t *info, void *context) {
    if (signo == SIGALRM) real++;
    if (signo == SIGVTALRM) virtual ++;
    if (signo == SIGPROF) profile++;
    if (signo == SIGRTMIN) posix++, values += info->si_code == SI_TIMER && info->si_value.sival_int == 42;
    double x = signo;
    for (int i = 0; i < 5; i++) x = sqrt(x) + 1;
    if (x < 0) abort();
}
int main(void) {
    int all[] = {SIGALRM, SIGVTALRM, SIGPROF, SIGRTMIN};
    for (int i = 0; i < 4; i++) {
        struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigaction(all[i], &sa, NULL);
    }
    struct itimerval t = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &t, NULL), setitimer(ITIMER_VIRTUAL, &t, NULL), setitimer(ITIMER_PROF, &t, NULL);
    timer_t timer;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 42};
    timer_create(CLOCK_MONOTONIC, &e, &timer);
    timer_settime(timer, 0, &(struct itimerspec){{0, 500000}, {0, 500000}}, NULL);
    uint64_t sum = 0;
    double f = 0;
    char text[64];
    long rounds = 0;
    while (real < 150 || virtual < 20 || profile < 20 || posix < 200) {
        uint64_t h = 14695981039346656037ULL;
        double d = 0;
        for (int i = 0; i < 20000; i++) {
            h = (h ^ i) * 1099511628211ULL;
            d += sin(i) * 1e-3;
            if (i % 1000 == 0) snprintf(text, sizeof text, "%d %g", i, d), h ^= text[0];
        }
        if (rounds++ && (h != sum || d != f)) printf("disturbed\n");
        sum = h, f = d;
    }
    printf("sum %lx %.12g, values %d\n", sum, f, values == posix);
}

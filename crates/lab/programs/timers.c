/* Computes with integers, doubles and vectors while a timer interrupts it. The result must not depend on the
   interruptions. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile unsigned long ticks;
static volatile double disturbance = 1.0;

static void tick(int signo) {
    (void)signo;
    ticks++;
    /* Uses flags, vector registers and string instructions on purpose. */
    char a[300], b[300];
    memset(a, (int)ticks, sizeof a);
    memcpy(b, a, sizeof b);
    disturbance = disturbance * 1.0000001 + b[5];
}

int main(int argc, char **argv) {
    long period = argc > 1 ? atol(argv[1]) : 1000;
    struct sigaction act = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &act, 0);
    struct itimerval timer = {{0, period}, {0, period}};
    setitimer(ITIMER_REAL, &timer, 0);

    static double grid[4096];
    static char text[8192], copy[8192];
    unsigned long hash = 7;
    double sum = 0;
    long rounds = 0;
    for (; rounds < 1500; rounds++) {
        for (int i = 0; i < 4096; i++)
            grid[i] = grid[i] * 0.5 + i * (double)(rounds % 7);
        for (int i = 1; i < 4095; i++)
            sum += grid[i - 1] - grid[i + 1];
        for (int i = 0; i < 8192; i++) {
            hash = (hash ^ (unsigned long)i) * 1099511628211UL;
            text[i] = (char)(hash >> 32);
        }
        memcpy(copy, text, sizeof copy);
        hash += (unsigned long)copy[rounds % 8192] + (unsigned long)(memchr(copy, 77, sizeof copy) != 0);
    }
    /* Not before some ticks have come, however fast the machine is. */
    while (ticks < 20) {
    }
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, 0);
    printf("%lx %.17g %s\n", hash, sum, ticks >= 20 ? "interrupted" : "quiet");
    return 0;
}

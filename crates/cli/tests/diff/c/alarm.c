#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile long hits;

static void on(int signal) {
    hits += signal;
}

int main(void) {
    struct itimerval often = {{0, 2000}, {0, 2000}};
    struct itimerval never = {{0, 0}, {0, 0}};
    volatile unsigned long x = 1;
    signal(SIGALRM, on);
    setitimer(ITIMER_REAL, &often, 0);
    for (long i = 0; i < 4000000; i++)
        x = x * 31 + i;
    setitimer(ITIMER_REAL, &never, 0);
    printf("%lu\n", x);
    return 0;
}

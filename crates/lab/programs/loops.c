// Loops that make no system call. Arguments: how they are disturbed, and for how many milliseconds they run.
// Says how often something happened that may not: a system call was ended, though no signal came.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static volatile int over;
static int ended;

// Some milliseconds on a usual processor. Nothing in it leaves the loop.
__attribute__((noinline)) static uint64_t spin(uint64_t n) {
    uint64_t x = 1;
    for (uint64_t i = 0; i < n * 1000000; i++) {
        x = x * 6364136223846793005u + i;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

static void on_alarm(int s) { signals++; }

static void must_last(const char *what, int failed) {
    if (failed) {
        ended++;
        dprintf(1, "%s: %s\n", what, strerror(errno));
    }
}

// Calls that any signal ends.
static void pause_in_calls(int us) {
    struct timespec t = {0, us * 1000};
    int e = epoll_create1(0);
    struct epoll_event ev;
    must_last("nanosleep", nanosleep(&t, 0) != 0);
    must_last("poll", poll(0, 0, us / 1000 + 1) != 0);
    must_last("epoll_wait", epoll_wait(e, &ev, 1, us / 1000 + 1) != 0);
    must_last("usleep", usleep(us) != 0);
    close(e);
}

static void *sleeper(void *p) {
    while (!over)
        pause_in_calls(20000);
    return 0;
}

static void *spinner(void *p) {
    *(uint64_t *)p = spin(*(uint64_t *)p);
    return 0;
}

int main(int argc, char **argv) {
    uint64_t n = atol(argv[2]), all = 0;
    if (!strcmp(argv[1], "alone")) {
        all = spin(n);
    } else if (!strcmp(argv[1], "signals")) {
        struct sigaction a = {.sa_handler = on_alarm};
        struct itimerval t = {{0, 7000}, {0, 7000}};
        sigaction(SIGALRM, &a, 0);
        setitimer(ITIMER_REAL, &t, 0);
        all = spin(n);
        t = (struct itimerval){{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &t, 0);
        if (signals < 3)
            return 2;
    } else if (!strcmp(argv[1], "threads")) {
        pthread_t t[3];
        uint64_t x[2] = {n, n + 1};
        pthread_create(&t[0], 0, spinner, &x[0]);
        pthread_create(&t[1], 0, spinner, &x[1]);
        pthread_create(&t[2], 0, sleeper, 0);
        pthread_join(t[0], 0);
        pthread_join(t[1], 0);
        over = 1;
        pthread_join(t[2], 0);
        all = x[0] ^ x[1];
    } else if (!strcmp(argv[1], "between")) {
        // The collector summons a thread that has computed for 250 milliseconds. So a call begins just then.
        for (int i = 0; i < (int)n; i++) {
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            do {
                all += spin(1);
                clock_gettime(CLOCK_MONOTONIC, &b);
            } while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 240 + i % 40);
            pause_in_calls(2000);
        }
        all = 0;
    }
    printf("%lx, %d calls ended\n", (long)all, ended);
    return 0;
}

/* Asks for the time in all ways, again and again. Prints of each way how often the answer changed.
   Ends with 1 when time went back, also from one thread to the other, or when it stood still while the program slept. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { TIMES = 20000, SLEEPS = 100, WAYS = 6 };
static const long long SECOND = 1000000000LL;

static long long nanos(struct timespec t) { return t.tv_sec * SECOND + t.tv_nsec; }

static long long ask(int way) {
    struct timespec t;
    struct timeval v;
    unsigned processor;
    switch (way) {
    case 0:
        clock_gettime(CLOCK_MONOTONIC, &t);
        return nanos(t);
    case 1:
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
        return nanos(t);
    case 2:
        gettimeofday(&v, NULL);
        return v.tv_sec * SECOND + v.tv_usec * 1000LL;
    case 3:
        return time(NULL) * SECOND;
    case 4:
        return (long long)__rdtsc();
    default:
        return (long long)__rdtscp(&processor);
    }
}

static _Atomic long long rung, woken;

static void ring(int signal) {
    (void)signal;
    atomic_store(&rung, ask(0));
}

/* Sleeps, and lets the thread that waits see it. */
static void *sleep_for_other(void *unused) {
    for (int i = 0; i < SLEEPS; i++) {
        struct timespec t = {0, 300000};
        while (atomic_load(&woken))
            ;
        nanosleep(&t, NULL);
        atomic_store(&woken, 1);
    }
    return unused;
}

static void wrong(const char *what) {
    printf("%s\n", what);
    exit(1);
}

static _Atomic long long latest;
static atomic_int turn;

/* Each thread looks in its turn, and must not see less than the other one before it. */
static void *look(void *number) {
    int own = (int)(long)number;
    for (int i = 0; i < 2000; i++) {
        for (int n = 1; atomic_load(&turn) != own; n++)
            if (n % 10000 == 0)
                sched_yield();
        long long now = ask(0);
        if (now < atomic_load(&latest))
            wrong("time goes back from thread to thread");
        atomic_store(&latest, now);
        atomic_store(&turn, 1 - own);
    }
    return NULL;
}

int main(void) {
    signal(SIGALRM, ring);
    atomic_store(&woken, 1);
    for (int way = 0; way < WAYS; way++) {
        long long last = ask(way), changes = 0;
        for (int i = 0; i < TIMES; i++) {
            long long now = ask(way);
            if (now < last)
                wrong("time goes back");
            changes += now != last;
            last = now;
        }
        printf("%lld\n", changes);
    }
    for (int i = 0; i < SLEEPS; i++) {
        struct timespec t = {0, 300000};
        long long before = ask(0), day = ask(2);
        nanosleep(&t, NULL);
        if (ask(0) - before < t.tv_nsec || ask(2) - day < t.tv_nsec - 1000)
            wrong("time stands still");
        struct itimerval timer = {{0, 0}, {0, 300}};
        atomic_store(&rung, 0);
        before = ask(0);
        setitimer(ITIMER_REAL, &timer, NULL);
        while (!atomic_load(&rung))
            ask(0);
        if (atomic_load(&rung) - before < 300000)
            wrong("time stands still for a signal");
        struct timespec coarse, fine;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &coarse);
        clock_gettime(CLOCK_MONOTONIC, &fine);
        if (nanos(fine) < nanos(coarse))
            wrong("a clock is behind a coarse one");
    }
    pthread_t sleeper;
    pthread_create(&sleeper, NULL, sleep_for_other, NULL);
    for (int i = 0; i < SLEEPS; i++) {
        long long before = ask(0);
        atomic_store(&woken, 0);
        while (!atomic_load(&woken))
            ;
        if (ask(0) - before < 300000)
            wrong("time stands still while another thread sleeps");
    }
    pthread_join(sleeper, NULL);
    pthread_t other;
    pthread_create(&other, NULL, look, (void *)1);
    look((void *)0);
    pthread_join(other, NULL);
    return 0;
}

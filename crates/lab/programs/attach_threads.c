// Threads in all kinds of waits and none, which a recorder may come to and leave at any time.
// Prints only what does not depend on that.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static long queued, done, taken;
static int stop;
static atomic_long ready;
static int seconds;

// What the waits say, in their order.
static char said[5][64];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *worker(void *arg) {
    long n = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!queued && !stop)
            pthread_cond_wait(&change, &lock);
        if (!queued) {
            pthread_mutex_unlock(&lock);
            return (void *)n;
        }
        queued--, taken++;
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < 5000; i++)
            n += i;
        pthread_mutex_lock(&lock);
        done++;
        pthread_cond_broadcast(&change);
        pthread_mutex_unlock(&lock);
    }
}

// What each wait returned, and whether it took its time: not less, and on a busy machine not much more.
static void took(int i, const char *what, long result, double since) {
    double d = now() - since;
    int right = d >= seconds - 0.01 && d < seconds * 1.9 + 5;
    sprintf(said[i], "%s %ld %s", what, result, right ? "in time" : "NOT in time");
}

static void *sleeper(void *arg) {
    struct timespec t = {seconds, 0};
    double since = now();
    took(0, "nanosleep", nanosleep(&t, 0), since);
    return 0;
}

static void *poller(void *arg) {
    double since = now();
    took(1, "poll", poll(0, 0, seconds * 1000), since);
    return 0;
}

static void *timed(void *arg) {
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += seconds;
    pthread_mutex_lock(&m);
    double since = now();
    took(2, "timedwait", pthread_cond_timedwait(&c, &m, &t) == ETIMEDOUT, since);
    return 0;
}

static void *reader(void *arg) {
    char c = 0;
    long n = read(*(int *)arg, &c, 1);
    sprintf(said[3], "read %ld %c", n, c);
    return 0;
}

// Its timeout may begin again, but it must not fail.
static void *events(void *arg) {
    struct epoll_event e;
    int n = epoll_wait(epoll_create1(0), &e, 1, seconds * 1000);
    sprintf(said[4], "epoll %d %d", n, n < 0 ? errno : 0);
    return 0;
}

static void *brief(void *arg) { return arg; }

int main(int argc, char **argv) {
    seconds = atoi(argv[1]);
    setvbuf(stdout, 0, _IOLBF, 0);
    int p[2], dummy = pipe(p), first = dup(0);
    pthread_t w[3], other[5];
    for (int i = 0; i < 3; i++)
        pthread_create(&w[i], 0, worker, 0);
    void *(*waits[5])(void *) = {sleeper, poller, timed, reader, events};
    for (int i = 0; i < 5; i++)
        pthread_create(&other[i], 0, waits[i], &p[0]);
    puts("running");
    double end = now() + seconds;
    long rounds = 0;
    while (now() < end) {
        pthread_mutex_lock(&lock);
        queued += 10, rounds++;
        pthread_cond_broadcast(&change);
        while (done < 10 * rounds)
            pthread_cond_wait(&change, &lock);
        pthread_mutex_unlock(&lock);
        pthread_t t;
        void *back;
        if (pthread_create(&t, 0, brief, (void *)rounds) || pthread_join(t, &back) || back != (void *)rounds)
            puts("a thread failed");
        if (sched_getcpu() < 0)
            puts("no processor");
        free(malloc(1 << 18));
        usleep(2000);
    }
    dummy = write(p[1], "x", 1);
    for (int i = 0; i < 5; i++)
        pthread_join(other[i], 0), puts(said[i]);
    pthread_mutex_lock(&lock);
    stop = 1;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 3; i++)
        pthread_join(w[i], 0);
    printf("%s\n", taken == 10 * rounds ? "all taken" : "some lost");
    // None of the recorder's is left open.
    printf("descriptor %d\n", dup(0) - first);
    return 7;
}

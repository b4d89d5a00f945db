// Threads in great numbers, and processes that end while some of them do.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void add(long n) {
    pthread_mutex_lock(&mutex);
    sum += n;
    pthread_mutex_unlock(&mutex);
}

static void *together(void *p) {
    pthread_barrier_wait(&barrier);
    add((long)p);
    pthread_barrier_wait(&barrier);
    return 0;
}

static void *alone(void *p) {
    add((long)p);
    return 0;
}

static void start(pthread_t *t, void *(*f)(void *), long n) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 64 << 10);
    if (pthread_create(t, &a, f, (void *)n)) {
        printf("no thread %ld\n", n);
        exit(1);
    }
}

// All live at the same time.
static void live(int n) {
    pthread_t *t = malloc(n * sizeof *t);
    pthread_barrier_init(&barrier, 0, n + 1);
    for (long i = 0; i < n; i++) start(&t[i], together, i);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
}

// One after the other, from four threads.
static void *series(void *p) {
    for (long i = 0; i < (long)p; i++) {
        pthread_t t;
        start(&t, alone, i);
        pthread_join(t, 0);
    }
    return 0;
}

static void shortly(int n) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) start(&t[i], series, n / 4);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
}

// The last thread of a process whose first one has left.
static void *last(void *p) {
    pthread_join((pthread_t)p, 0);
    for (int i = 0; i < 100; i++) {
        pthread_t t;
        start(&t, alone, 1);
        pthread_join(t, 0);
    }
    printf("%ld\n", sum);
    fflush(stdout);
    return 0;
}

// Threads begin and end all the time.
static void *restless(void *p) {
    for (;;) {
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        pthread_create(&t, &a, alone, 0);
    }
    return 0;
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(argv[1], "live")) live(n);
    if (!strcmp(argv[1], "short")) shortly(n);
    if (!strcmp(argv[1], "leave")) {
        pthread_t t;
        start(&t, last, (long)pthread_self());
        pthread_exit(0);
    }
    if (!strcmp(argv[1], "race")) {
        pthread_t t[3];
        for (int i = 0; i < 3; i++) start(&t[i], restless, 0);
        usleep(n * 1000);
        _exit(7);
    }
    printf("%ld\n", sum);
    return 0;
}

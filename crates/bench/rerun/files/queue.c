/* Threads take numbers from a queue under a lock, and say at the end what they have summed up. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define JOBS 400
#define PLACES 32
#define MOST 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER;
static int jobs[PLACES], waiting, closed;
static long total;

static void *work(void *unused) {
    (void)unused;
    long sum = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (waiting == 0 && !closed) pthread_cond_wait(&some, &lock);
        if (waiting == 0) break;
        int job = jobs[--waiting];
        pthread_cond_signal(&room);
        pthread_mutex_unlock(&lock);
        for (long i = 0; i < job * 1000L; i++) sum += i % (job + 1);
    }
    total += sum;
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 2;
    if (count < 1 || count > MOST) return 2;
    pthread_t threads[MOST];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int job = 1; job <= JOBS; job++) {
        pthread_mutex_lock(&lock);
        while (waiting == PLACES) pthread_cond_wait(&room, &lock);
        jobs[waiting++] = job;
        pthread_cond_signal(&some);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    closed = 1;
    pthread_cond_broadcast(&some);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", total);
    return 0;
}

// Threads, as many as the first argument says, take jobs from a queue and meet at a barrier. The queue's length is the second
// argument. What is printed does not depend on who does which job.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, room = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static int queue[4], head, tail, closed;
static long sum;

static void *work(void *unused) {
    long mine = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (head == tail && !closed)
            pthread_cond_wait(&more, &lock);
        if (head == tail)
            break;
        int job = queue[head++ % 4];
        sum += job;
        pthread_cond_signal(&room);
        pthread_mutex_unlock(&lock);
        mine += job;
    }
    pthread_mutex_unlock(&lock);
    pthread_barrier_wait(&all);
    return (void *)mine;
}

int main(int argc, char **argv) {
    int n = atoi(argv[1]), jobs = atoi(argv[2]);
    pthread_t threads[8];
    pthread_barrier_init(&all, 0, n + 1);
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], 0, work, 0))
            return 2;
    for (int job = 1; job <= jobs; job++) {
        pthread_mutex_lock(&lock);
        while (tail - head == 4)
            pthread_cond_wait(&room, &lock);
        queue[tail++ % 4] = job;
        pthread_cond_signal(&more);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    closed = 1;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
    pthread_barrier_wait(&all);
    long total = 0;
    for (int i = 0; i < n; i++) {
        void *mine;
        pthread_join(threads[i], &mine);
        total += (long)mine;
    }
    printf("%ld %ld\n", total, sum);
    return total != sum;
}

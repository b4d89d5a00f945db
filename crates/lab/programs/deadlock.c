// Counts its runs in a file. In the second one, two threads take two mutexes crosswise.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void take(pthread_mutex_t *first, pthread_mutex_t *second, int wait) {
    pthread_mutex_lock(first);
    if (wait)
        pthread_barrier_wait(&both);
    pthread_mutex_lock(second);
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
}

static void *left(void *crosswise) {
    take(&a, &b, crosswise != 0);
    return 0;
}

static void *right(void *crosswise) {
    if (crosswise)
        take(&b, &a, 1);
    else
        take(&a, &b, 0);
    return 0;
}

int main(int argc, char **argv) {
    int n = 0;
    FILE *count = fopen(argv[1], "r");
    if (count) {
        fscanf(count, "%d", &n);
        fclose(count);
    }
    count = fopen(argv[1], "w");
    fprintf(count, "%d\n", ++n);
    fclose(count);
    void *crosswise = n == 2 ? &a : 0;
    pthread_t l, r;
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&l, 0, left, crosswise);
    pthread_create(&r, 0, right, crosswise);
    pthread_join(l, 0);
    pthread_join(r, 0);
    return 0;
}

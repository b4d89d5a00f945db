/* Starts a thread. */
#include <pthread.h>
#include <stdio.h>

static void *work(void *x) { return x; }

int main(void) {
    printf("before\n");
    fflush(stdout);
    pthread_t t;
    void *result = 0;
    if (pthread_create(&t, 0, work, &result) == 0)
        pthread_join(t, &result);
    printf("thread ended %d\n", result == &result);
    return 0;
}

// Two threads that take a mutex or add to an atomic counter and compute a little, N times each.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long plain, n;
static int locks;
static atomic_long shared;

static void *work(void *seed) {
    unsigned long s = (unsigned long)seed;
    for (long i = 0; i < n; i++) {
        if (locks) {
            pthread_mutex_lock(&mutex);
            plain++;
            pthread_mutex_unlock(&mutex);
        } else {
            atomic_fetch_add(&shared, 1);
        }
        for (int k = 0; k < 10; k++) {
            s = s * 6364136223846793005ul + 1;
            __asm__ volatile("" ::"r"(s));
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    pthread_t t[2];
    if (argc < 3) return 2;
    n = atol(argv[1]);
    locks = !strcmp(argv[2], "locks");
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    printf("%ld %ld\n", plain, (long)shared);
    return 0;
}

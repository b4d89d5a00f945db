/* Two threads take from one account without a lock. Natively it goes wrong in one of thousands of runs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static volatile long account = 1000;
static atomic_int ready;

static void *take(void *amount) {
    ready++;
    while (ready < 2)
        ;
    /* So that the two seldom meet. */
    for (volatile int i = 0; i < (long)amount * 20000; i++)
        ;
    long have = account;
    account = have - (long)amount;
    return 0;
}

int main(void) {
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], 0, take, (void *)(i + 1));
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    if (account != 997) {
        printf("lost: %ld\n", (long)account);
        abort();
    }
    return 0;
}

/* Threads that work all the time, one that mostly sleeps, short ones; then ends with the status given.
   What they read cannot be predicted. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int random_source;
static _Atomic unsigned long total;
static atomic_int over;

static void work(long rounds) {
    static __thread unsigned char buffer[65536];
    for (long r = 0; r < rounds; r++) {
        if (read(random_source, buffer, sizeof buffer) < 0)
            return;
        unsigned long sum = 0;
        for (unsigned i = 0; i < sizeof buffer; i++)
            sum += buffer[i];
        total += sum;
    }
}

static void *busy(void *rounds) {
    work((long)rounds);
    return 0;
}

static void *sleeper(void *p) {
    work(40);
    while (!over)
        usleep(20000);
    work(3);
    return p;
}

static void *brief(void *p) {
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        pthread_create(&t, 0, busy, (void *)1);
        pthread_join(t, 0);
    }
    return p;
}

int main(int argc, char **argv) {
    random_source = open("/dev/urandom", O_RDONLY);
    pthread_t t[4];
    pthread_create(&t[0], 0, sleeper, 0);
    pthread_create(&t[1], 0, busy, (void *)200);
    pthread_create(&t[2], 0, busy, (void *)150);
    pthread_create(&t[3], 0, brief, 0);
    for (int i = 1; i < 4; i++)
        pthread_join(t[i], 0);
    over = 1;
    pthread_join(t[0], 0);
    return argc > 1 ? atoi(argv[1]) : 0;
}

/* Threads that share memory with locks, atomic operations and without, handle signals, map memory, and fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdatomic.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <signal.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long shared[64]; static _Atomic long at; static volatile long raced[8]; static sem_t sem; static __thread long mine[8];
static char across[8192] __attribute__((aligned(4096)));
static void on(int s) { raced[7]++; mine[7]++; }
static void *work(void *p) {
    long me = (long) p; char buf[200];
    for (int i = 0; i < 60; i++) {
        pthread_mutex_lock(&m); shared[i % 64] += me + i; if (i % 5 == 0) pthread_cond_broadcast(&c); pthread_mutex_unlock(&m);
        at++; raced[me % 7] = i; raced[(me + 1) % 7] += me; mine[i % 7] += raced[i % 7];
        __sync_fetch_and_add((long *)(across + 4092), me); 
        char *h = malloc(10 + i * 37); memset(h, me, 10 + i * 37); shared[5] ^= h[i]; free(h);
        if (i % 20 == 7) { char *q = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); q[5] = me; q[4100] = i; shared[6] += q[4100]; munmap(q, 8192); }
        snprintf(buf, 200, "%ld %d %ld", me, i, shared[i % 64]); shared[7] += strlen(buf);
        if (i % 16 == 3) sched_yield();
        if (i % 30 == 9) raise(SIGUSR1);
    }
    sem_post(&sem); return p;
}
int main(int argc, char **argv) {
    signal(SIGUSR1, on);
    sem_init(&sem, 0, 0); pthread_t t[4]; int p[2]; pipe(p); char b[64];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, work, (void *) (i + 1));
    write(p[1], "hello there", 12); read(p[0], b, 12); work((void *) 9);
    pthread_kill(t[1], SIGUSR1);
    if (fork() == 0) { shared[1] = 4; raced[1] = 5; printf("child %ld %s\n", shared[2], b); fflush(stdout); _exit(3); }
    int st; wait(&st);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    long s = 0; for (int i = 0; i < 64; i++) s += shared[i]; printf("%d %ld\n", s != 0, (long) st);
    return 0;
}

// Signals go to single threads, by `pthread_kill` and by `tgkill`. Each thread counts its own, and prints whether it was it who got
// them.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int got[3], tids[3], over;
// Threads begin, and signals come. Who waits for that does not sleep, so it makes as many calls whatever the order.
static sem_t begun, come;
static __thread int me = -1;

static void handler(int n)
{
    (void)n;
    got[me]++;
    sem_post(&come);
}

static void *waits(void *number)
{
    me = (long)number;
    tids[me] = syscall(SYS_gettid);
    sem_post(&begun);
    while (!over)
        usleep(1000);
    return 0;
}

static void await(sem_t *s)
{
    while (sem_wait(s))
        ;
}

int main(void)
{
    struct sigaction a = {.sa_handler = handler};
    sigaction(SIGUSR1, &a, 0);
    sem_init(&begun, 0, 0);
    sem_init(&come, 0, 0);
    pthread_t t[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&t[i], 0, waits, (void *)i);
    for (int i = 0; i < 3; i++)
        await(&begun);
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n <= i; n++) {
            if (n % 2)
                pthread_kill(t[i], SIGUSR1);
            else
                syscall(SYS_tgkill, getpid(), tids[i], SIGUSR1);
            await(&come);
        }
    }
    printf("%d %d %d\n", got[0], got[1], got[2]);
    over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    return got[0] != 1 || got[1] != 2 || got[2] != 3;
}

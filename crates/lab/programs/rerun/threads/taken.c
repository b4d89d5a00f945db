// A thread waits for another one, and gets signals while it does. The first one tells that the process goes on, and the last one ends it.
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

static sem_t come, never;

static void handler(int n)
{
    (void)n;
    sem_post(&come);
}

static void await(sem_t *s)
{
    while (sem_wait(s))
        ;
}

static void *waits(void *unused)
{
    await(&never);
    return unused;
}

int main(void)
{
    struct sigaction a = {.sa_handler = handler};
    sigaction(SIGUSR1, &a, 0);
    sem_init(&come, 0, 0);
    sem_init(&never, 0, 0);
    pthread_t t;
    pthread_create(&t, 0, waits, 0);
    usleep(100000);
    pthread_kill(t, SIGUSR1);
    await(&come);
    write(1, "come\n", 5);
    pthread_kill(t, SIGTERM);
    for (;;)
        pause();
}

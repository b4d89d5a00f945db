// Signals go to single threads, by `pthread_kill` and by `tgkill`. Each thread counts its own, and prints whether it was it who got
// them. With an argument, the last one kills the process.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int got[3], tids[3], over;
static __thread int me = -1;

static void handler(int n)
{
    (void)n;
    got[me]++;
}

static void *waits(void *number)
{
    me = (long)number;
    tids[me] = syscall(SYS_gettid);
    while (!over)
        usleep(1000);
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction a = {.sa_handler = handler};
    sigaction(SIGUSR1, &a, 0);
    pthread_t t[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&t[i], 0, waits, (void *)i);
    for (int i = 0; i < 3; i++)
        while (!tids[i])
            usleep(1000);
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n <= i; n++) {
            int before = got[i];
            if (n % 2)
                pthread_kill(t[i], SIGUSR1);
            else
                syscall(SYS_tgkill, getpid(), tids[i], SIGUSR1);
            while (got[i] == before)
                usleep(1000);
        }
    }
    printf("%d %d %d\n", got[0], got[1], got[2]);
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "dies")) {
        pthread_kill(t[1], SIGTERM);
        for (;;)
            pause();
    }
    over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    return got[0] != 1 || got[1] != 2 || got[2] != 3;
}

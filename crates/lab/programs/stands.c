// Stands for ever, in the way that it is told to.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *reads(void *none) {
    pthread_rwlock_rdlock(&lock);
    return none;
}

int main(int argc, char **argv) {
    char byte;
    int ends[2];
    if (!strcmp(argv[1], "sleep"))
        for (;;)
            sleep(1000);
    if (!strcmp(argv[1], "pipe")) {
        pipe(ends);
        // A child that would be a reason to go on, were its end seen.
        if (fork() == 0)
            read(ends[0], &byte, 1);
        wait(0);
    }
    if (!strcmp(argv[1], "lock")) {
        pthread_t t;
        pthread_rwlock_wrlock(&lock);
        pthread_create(&t, 0, reads, 0);
        pthread_join(t, 0);
    }
    return 0;
}

// Short threads and processes that come and go: comers THREADS PROCESSES. Writes a digit after each
// tenth of them.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE = 10 };

static volatile long sum;

static void *visit(void *arg) {
    char *p = malloc(100 + (long)arg % 1000);
    p[50] = (char)(long)arg;
    __atomic_fetch_add(&sum, p[50], __ATOMIC_RELAXED);
    free(p);
    return 0;
}

static void threads(long n) {
    for (long i = 0; i < n; i += AT_ONCE) {
        pthread_t t[AT_ONCE];
        for (long k = 0; k < AT_ONCE; k++)
            if (pthread_create(&t[k], 0, visit, (void *)(i + k)))
                exit(9);
        for (long k = 0; k < AT_ONCE; k++)
            pthread_join(t[k], 0);
    }
}

static void processes(long n) {
    for (long i = 0; i < n; i += 2) {
        for (int k = 0; k < 2; k++) {
            pid_t pid = fork();
            if (pid < 0)
                exit(8);
            if (pid == 0) {
                visit((void *)i);
                _exit(k);
            }
        }
        int status;
        for (int k = 0; k < 2; k++)
            if (wait(&status) < 0)
                exit(7);
    }
}

int main(int argc, char **argv) {
    long t = atol(argv[1]) / 10, p = atol(argv[2]) / 10;
    for (int tenth = 0; tenth < 10; tenth++) {
        threads(t);
        processes(p);
        printf("%d\n", tenth);
        fflush(stdout);
    }
    return 0;
}

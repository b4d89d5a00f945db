// Threads that end, and wait, in many ways. The first argument says which.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t ready;
static int pair[2];
static volatile int caught;

static void catch(int signal) { caught = signal; }

// Waits for what does not come.
static void *wait_long(void *unused) {
    sem_post(&ready);
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&never, &lock);
    return 0;
}

static void *read_long(void *unused) {
    char c;
    sem_post(&ready);
    read(pair[0], &c, 1);
    return 0;
}

static void *late(void *unused) {
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += 10000000;
    if (when.tv_nsec >= 1000000000)
        when.tv_sec++, when.tv_nsec -= 1000000000;
    pthread_mutex_lock(&lock);
    int e = pthread_cond_timedwait(&never, &lock, &when);
    pthread_mutex_unlock(&lock);
    printf("%s\n", strerror(e));
    return 0;
}

static void *child(void *unused) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(7);
    int status;
    waitpid(pid, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    status = system("exit 8");
    printf("shell %d\n", WEXITSTATUS(status));
    return 0;
}

// Who started it has gone on by then.
static void *fail(void *unused) {
    sem_wait(&ready);
    abort();
}

static void *spin(void *unused) {
    while (!caught)
        sched_yield();
    return 0;
}

static void *join_first(void *first) {
    pthread_join((pthread_t)first, 0);
    printf("joined the first\n");
    return 0;
}

static void *load(void *unused) {
    sem_wait(&ready);
    execl("/bin/true", "true", (char *)0);
    return 0;
}

static void *begin(void *(*what)(void *)) {
    pthread_t t;
    if (pthread_create(&t, 0, what, 0))
        exit(9);
    return (void *)t;
}

int main(int argc, char **argv) {
    const char *which = argv[1];
    setvbuf(stdout, 0, _IOLBF, 0);
    sem_init(&ready, 0, 0);
    pipe(pair);
    signal(SIGUSR1, catch);
    void *t = 0;
    if (!strcmp(which, "waits"))
        begin(wait_long), sem_wait(&ready), exit(3);
    if (!strcmp(which, "reads"))
        begin(read_long), sem_wait(&ready), exit(4);
    if (!strcmp(which, "late"))
        t = begin(late);
    if (!strcmp(which, "child"))
        t = begin(child);
    if (!strcmp(which, "first")) {
        pthread_create((pthread_t *)&t, 0, join_first, (void *)pthread_self());
        pthread_exit(0);
    }
    if (!strcmp(which, "loads"))
        t = begin(load), sem_post(&ready);
    if (!strcmp(which, "fails"))
        t = begin(fail), sem_post(&ready);
    if (!strcmp(which, "spins")) {
        t = begin(spin);
        sched_yield();
        caught = 1;
    }
    pthread_join((pthread_t)t, 0);
    printf("joined\n");
    return 0;
}

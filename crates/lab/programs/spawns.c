// Children that share memory until they execute something, and one whose parent is killed.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int executes(void *path) {
    execl(path, "true", (char *)0);
    _exit(9);
}

static int exits(void *p) { _exit(3); }

static long size(void) {
    char line[200];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "VmSize:", 7)) kib = atol(line + 7);
    fclose(f);
    return kib;
}

// Nothing is left of children that share memory, though nobody waits for them to leave it.
static void share(void) {
    char *stack = malloc(64 << 10);
    long before = 0;
    for (int i = 0; i < 24; i++) {
        int st;
        pid_t p = clone(i % 2 ? exits : executes, stack + (64 << 10), CLONE_VM | SIGCHLD, "/bin/true");
        waitpid(p, &st, 0);
        printf("%x ", st);
        if (i == 3) before = size();
    }
    printf("\n%s\n", size() - before < 8l << 20 ? "as before" : "has grown");
}

static void *killer(void *us) {
    usleep((long)us);
    kill(getpid(), SIGKILL);
    return 0;
}

// The parent dies while it forks.
static void orphan(long us) {
    char *much = malloc(256 << 20);
    memset(much, 1, 256 << 20);
    pthread_t t;
    pthread_create(&t, 0, killer, (void *)us);
    for (;;)
        if (!fork()) {
            write(1, "b", 1);
            usleep(100000);
            write(1, "d", 1);
            _exit(0);
        }
}

extern char **environ;

/* Children that are killed as soon as they are made. */
static void newborn(void) {
    for (int i = 0; i < 9; i++) {
        int st = 0;
        pid_t p = fork();
        if (!p) for (;;) pause();
        kill(p, SIGKILL);
        waitpid(p, &st, 0);
        printf("%x\n", st);
    }
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "newborn")) newborn();
    if (!strcmp(argv[1], "share")) share();
    if (!strcmp(argv[1], "orphan")) orphan(atol(argv[2]));
    if (!strcmp(argv[1], "spawn")) {
        pid_t p;
        int st = 0, e = posix_spawn(&p, argv[2], 0, 0, argv + 2, environ);
        if (!e) waitpid(p, &st, 0);
        printf("%d %x\n", e, st);
        fflush(stdout);
        p = fork();
        if (!p) {
            execv(argv[2], argv + 2);
            printf("not executed\n");
            fflush(stdout);
            _exit(4);
        }
        waitpid(p, &st, 0);
        printf("%x\n", st);
    }
    return 0;
}

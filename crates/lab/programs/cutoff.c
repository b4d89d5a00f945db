// Threads compute, and call the kernel now and then. They are cut off by the end of their process, by a signal that
// cannot be held, or by another process.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static atomic_long counter;

static void *compute(void *arg) {
    uint64_t v = (intptr_t)arg;
    for (unsigned n = 0;; n++) {
        for (int i = 0; i < 2000; i++) v = v * 6364136223846793005u + 1;
        sink = v;
        if (n % 7 == 0) getppid();
        if (n % 5 == 0) atomic_fetch_add(&counter, 1);
    }
}

static void rest(unsigned us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, 0);
}

static void run(char how, unsigned us) {
    pthread_t t;
    for (intptr_t i = 0; i < 3; i++) pthread_create(&t, 0, compute, (void *)i);
    rest(us);
    if (how == 'k') kill(getpid(), SIGKILL);
    if (how == 'e') syscall(SYS_exit_group, 3);
    for (;;) pause();
}

int main(int argc, char **argv) {
    unsigned us = atoi(argv[2]);
    if (argv[1][0] != 'p') run(argv[1][0], us);
    // Of three children one ends itself, one is killed by the kernel for itself, one by this process.
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0) run("ekw"[i], us);
    }
    rest(2 * us);
    kill(pids[2], SIGKILL);
    for (int i = 0; i < 3; i++) waitpid(pids[i], 0, 0);
    puts("end");
    return 0;
}

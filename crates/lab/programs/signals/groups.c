/* A program and the group that it is in. "handle N": sends N to the group and has a handler for it; "die N": has none;
   "count": sends a signal twenty times; "listen": says what it gets until it gets SIGUSR2; "queue": the same with the
   value; "stop N": stops itself by N; "helped": stops itself and is continued by its child; "parent": signals its parent. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int count, over, value;

static void handler(int signo, siginfo_t *info, void *context) {
    count++;
    value = info->si_code == SI_QUEUE ? info->si_value.sival_int : -1;
    over |= signo == SIGUSR2;
}

static void handle(int signo) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(signo, &sa, NULL);
}

static void rest(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t)) {}
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *how = argv[1];
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(how, "handle")) {
        handle(n);
        kill(0, n);
        rest(100);
        printf("%d\n", count);
        return 3;
    }
    if (!strcmp(how, "die")) {
        kill(0, n);
        pause();
    }
    if (!strcmp(how, "count")) {
        handle(SIGUSR1);
        for (int i = 0; i < 20; i++) kill(0, SIGUSR1), rest(15);
        printf("%d\n", count);
        return 0;
    }
    if (!strcmp(how, "listen")) {
        handle(SIGUSR1), handle(SIGUSR2), handle(SIGTERM), handle(SIGRTMIN), handle(SIGCONT);
        sigset_t all, none;
        sigfillset(&all), sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &all, NULL);
        puts("ready");
        while (!over) {
            sigsuspend(&none);
            printf("%d %d\n", count, value);
        }
        return 0;
    }
    if (!strcmp(how, "stop")) {
        puts("ready");
        raise(n);
        puts("goes on");
        return 4;
    }
    if (!strcmp(how, "helped")) {
        pid_t parent = getpid();
        if (!fork()) {
            rest(500);
            kill(parent, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        wait(NULL);
        puts("goes on");
        return 4;
    }
    if (!strcmp(how, "parent")) {
        kill(getppid(), SIGUSR1);
        rest(100);
        puts("signalled");
        return 0;
    }
    return 1;
}

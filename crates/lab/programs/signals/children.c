// SIGCHLD and what it tells; forking and executing in handlers; stopping and going on.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t count;
static siginfo_t infos[64];
static void note(int signo, siginfo_t *info, void *context) {
    if (count < 64) infos[count] = *info;
    count++;
}
static void act(int signo, void *h, int flags) {
    struct sigaction sa = {.sa_sigaction = h, .sa_flags = SA_SIGINFO | flags};
    sigaction(signo, &sa, NULL);
}
static void until(int n) {
    sigset_t block, old;
    sigemptyset(&block), sigaddset(&block, SIGCHLD);
    sigprocmask(SIG_BLOCK, &block, &old);
    while (count < n) sigsuspend(&old);
    sigprocmask(SIG_SETMASK, &old, NULL);
}
static void show(const char *what, pid_t child) {
    siginfo_t *i = &infos[count - 1];
    printf("%s: signal %d code %d status %d child %d\n", what, i->si_signo, i->si_code, i->si_status, i->si_pid == child);
    fflush(stdout);
}

static volatile pid_t made;
static void forks(int signo, siginfo_t *info, void *context) {
    made = fork();
    if (!made) _exit(40 + signo);
}
static char **arguments;
static void execs(int signo, siginfo_t *info, void *context) {
    char *a[] = {arguments[0], "after", NULL};
    execv("/proc/self/exe", a);
    printf("exec failed: %s\n", strerror(errno));
    _exit(1);
}

static volatile int stops;
static void stopped(int signo, siginfo_t *info, void *context) { stops++; }

static int in_child(void *unused) {
    usleep(30000);
    return 9;
}

int main(int argc, char **argv) {
    arguments = argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        sigset_t mask;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        printf("executed from a handler, SIGUSR2 blocked: %d\n", sigismember(&mask, SIGUSR2));
        return 5;
    }
    act(SIGCHLD, note, SA_RESTART);
    int status;
    pid_t child = fork();
    if (!child) _exit(7);
    until(1), show("exit", child), waitpid(child, NULL, 0);
    child = fork();
    if (!child) { for (;;) pause(); }
    kill(child, SIGSTOP), until(2), show("stopped", child);
    printf("wait %d\n", waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGCONT), until(3), show("continued", child);
    printf("wait %d\n", waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    kill(child, SIGTERM), until(4), show("killed", child);
    waitpid(child, &status, 0), printf("status %x\n", status);
    child = fork();
    if (!child) abort();
    until(5), show("dumped or killed", child);
    waitpid(child, &status, 0), printf("status %x\n", status & 0x7f);
    act(SIGCHLD, note, SA_NOCLDSTOP | SA_RESTART);
    child = fork();
    if (!child) { raise(SIGSTOP); _exit(3); }
    waitpid(child, &status, WUNTRACED), printf("no signal for a stop: %d, %x\n", count, status);
    kill(child, SIGCONT), until(6), show("exit after a stop", child), waitpid(child, NULL, 0);
    act(SIGCHLD, note, SA_NOCLDWAIT | SA_RESTART);
    child = fork();
    if (!child) _exit(4);
    until(7);
    printf("no zombie: %d\n", waitpid(child, &status, 0) < 0 && errno == ECHILD);
    signal(SIGCHLD, SIG_IGN);
    child = fork();
    if (!child) _exit(4);
    printf("ignored: %d\n", waitpid(child, &status, 0) < 0 && errno == ECHILD);
    signal(SIGCHLD, SIG_DFL);

    act(SIGUSR1, forks, 0);
    raise(SIGUSR1);
    printf("forked in a handler: %d %x\n", waitpid(made, &status, 0) == made, status);

    // A handler runs when vfork's child is gone.
    act(SIGALRM, stopped, 0);
    struct itimerval t = {{0, 0}, {0, 10000}};
    setitimer(ITIMER_REAL, &t, NULL);
    child = vfork();
    if (!child) { usleep(50000); _exit(6); }
    waitpid(child, &status, 0);
    printf("vfork: status %x, handled %d\n", status, stops);
    static char stack[65536];
    stops = 0;
    setitimer(ITIMER_REAL, &t, NULL);
    child = clone(in_child, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    waitpid(child, &status, 0);
    printf("clone: status %x, handled %d\n", status, stops);

    act(SIGCONT, stopped, 0);
    stops = 0;
    pid_t self = getpid();
    child = fork();
    if (!child) {
        // Waits until the parent has stopped.
        char name[64], text[400];
        snprintf(name, sizeof name, "/proc/%d/stat", self);
        for (;;) {
            FILE *f = fopen(name, "r");
            fgets(text, sizeof text, f);
            fclose(f);
            if (strrchr(text, ')')[2] == 'T') break;
            usleep(1000);
        }
        kill(self, SIGCONT);
        _exit(0);
    }
    kill(self, SIGSTOP);
    waitpid(child, &status, 0);
    printf("SIGCONT handled %d\n", stops);

    child = fork();
    if (!child) {
        act(SIGUSR2, execs, 0);
        raise(SIGUSR2);
    }
    waitpid(child, &status, 0);
    printf("status %x\n", status);
    // Signals that kill, each of them.
    for (int s = 1; s < 65; s++) {
        if (s == SIGSTOP || s == SIGTSTP || s == SIGTTIN || s == SIGTTOU || s == 32 || s == 33) continue;
        child = fork();
        if (!child) {
            signal(s, SIG_DFL);
            kill(getpid(), s);
            _exit(1);
        }
        waitpid(child, &status, 0);
        printf("%d: %x\n", s, status & 0xff7f);
    }
}

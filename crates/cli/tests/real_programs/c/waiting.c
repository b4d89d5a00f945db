/* System calls that signals interrupt, or restart; masks, queues, waiting for signals. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int count, order[16], values[16];
static int ends[2];

static void note(int signo, siginfo_t *info, void *context) {
    (void)context;
    if (count < 16) {
        order[count] = signo;
        values[count] = info->si_code == SI_QUEUE ? info->si_value.sival_int : -1;
    }
    count++;
    if (signo == SIGALRM && write(ends[1], "w", 1) != 1)
        _exit(97);
}

static void in(int ms) {
    struct itimerval timer = {{0, 0}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &timer, 0);
}

static void handle(int signo, int flags) {
    struct sigaction act = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    sigaction(signo, &act, 0);
}

static void show(const char *what, long result) {
    printf("%s: %ld %s, %d", what, result, result < 0 ? strerror(errno) : "ok", count);
    for (int i = 0; i < count && i < 16; i++)
        printf(" %d/%d", order[i], values[i]);
    printf("\n");
    count = 0;
}

int main(void) {
    char c;
    if (pipe(ends))
        return 1;
    handle(SIGALRM, 0);
    in(30);
    show("pause", pause());
    show("read", read(ends[0], &c, 1));
    in(30);
    show("read interrupted", read(ends[0], &c, 1));
    show("drain", read(ends[0], &c, 1));
    handle(SIGALRM, SA_RESTART);
    in(30);
    show("read restarted", read(ends[0], &c, 1));
    in(30);
    struct timespec left, span = {0, 300000000};
    int slept = nanosleep(&span, &left);
    show("nanosleep", slept);
    printf("time left: %s\n", left.tv_nsec > 200000000 && left.tv_nsec < 280000000 ? "plausible" : "odd");
    show("drain", read(ends[0], &c, 1));
    in(30);
    struct pollfd p = {.fd = 0, .events = 0};
    show("poll", poll(&p, 1, 1000));
    show("drain", read(ends[0], &c, 1));

    for (int signo = SIGRTMIN; signo < SIGRTMIN + 3; signo++)
        handle(signo, 0);
    handle(SIGUSR1, 0);
    sigset_t all, old, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < 6; i++)
        sigqueue(getpid(), SIGRTMIN + i % 3, (union sigval){.sival_int = i});
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR1);
    sigset_t pending;
    sigpending(&pending);
    show("blocked", sigismember(&pending, SIGUSR1) + 2 * sigismember(&pending, SIGRTMIN + 2));
    show("sigsuspend", sigsuspend(&none));
    sigprocmask(SIG_SETMASK, &old, 0);
    show("unblocked", 0);

    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    sigprocmask(SIG_BLOCK, &one, 0);
    kill(getpid(), SIGUSR2);
    siginfo_t info;
    show("sigwaitinfo", sigwaitinfo(&one, &info));
    struct timespec brief = {0, 10000000};
    show("sigtimedwait", sigtimedwait(&one, &info, &brief));

    handle(SIGUSR1, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction now;
    sigaction(SIGUSR1, 0, &now);
    show("reset", now.sa_handler == SIG_DFL);
    return 0;
}

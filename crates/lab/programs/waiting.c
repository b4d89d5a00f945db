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
static volatile int alarms, writes;
static int ends[2];

static void note(int signo, siginfo_t *info, void *context) {
    (void)context;
    if (signo == SIGALRM) {
        if (alarms++ == 0 && writes && write(ends[1], "w", 1) != 1)
            _exit(97);
        if (alarms > 1)
            return;
    }
    if (count < 16) {
        order[count] = signo;
        values[count] = info->si_code == SI_QUEUE ? info->si_value.sival_int : -1;
    }
    count++;
}

/* From now on an alarm comes every few milliseconds. The first may come before the call that it is to end. All of
   them count as one. */
static void alarm_soon(int writing) {
    struct itimerval timer = {{0, 30000}, {0, 30000}};
    alarms = 0;
    writes = writing;
    setitimer(ITIMER_REAL, &timer, 0);
}

static void no_alarm(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    int error = errno;
    setitimer(ITIMER_REAL, &never, 0);
    errno = error;
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
    long result;
    handle(SIGALRM, 0);
    alarm_soon(1);
    result = pause();
    no_alarm();
    show("pause", result);
    show("read", read(ends[0], &c, 1));
    alarm_soon(0);
    result = read(ends[0], &c, 1);
    no_alarm();
    show("read interrupted", result);
    handle(SIGALRM, SA_RESTART);
    alarm_soon(1);
    result = read(ends[0], &c, 1);
    no_alarm();
    show("read restarted", result);
    alarm_soon(0);
    struct timespec left, span = {60, 0};
    result = nanosleep(&span, &left);
    no_alarm();
    show("nanosleep", result);
    printf("time left: %s\n", left.tv_sec >= 30 && left.tv_sec < 60 ? "plausible" : "odd");
    alarm_soon(0);
    struct pollfd p = {.fd = 0, .events = 0};
    result = poll(&p, 1, 60000);
    no_alarm();
    show("poll", result);

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

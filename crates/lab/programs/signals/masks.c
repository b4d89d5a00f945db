// What is blocked while a handler runs that interrupted a call with a mask of its own, and after.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static char text[400];

static void show(const char *what, const sigset_t *s) {
    char *at = text + strlen(text);
    at += sprintf(at, " %s{", what);
    for (int i = 1; i <= 64; i++)
        if (sigismember(s, i) == 1) at += sprintf(at, " %d", i);
    sprintf(at, " }");
}

static void handler(int signo, siginfo_t *info, void *context) {
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    sprintf(text + strlen(text), " (%d", signo);
    show("now", &now);
    show("saved", &((ucontext_t *)context)->uc_sigmask);
    strcat(text, ")");
}

static sigset_t set(int a, int b, int c) {
    sigset_t s;
    sigemptyset(&s);
    if (a) sigaddset(&s, a);
    if (b) sigaddset(&s, b);
    if (c) sigaddset(&s, c);
    return s;
}

static void report(const char *what, long r) {
    int e = errno;
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    show("after", &now);
    printf("%s: %ld %s%s\n", what, r, r < 0 ? strerrorname_np(e) : "", text);
    text[0] = 0;
}

static timer_t timer;
static void in(int ms) {
    struct itimerspec t = {{0, 0}, {0, ms * 1000000}};
    timer_settime(timer, 0, &t, NULL);
}

int main(void) {
    int signals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGSEGV, SIGTRAP, SIGRTMIN + 3};
    for (int i = 0; i < 6; i++) {
        struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
        sa.sa_mask = set(SIGHUP, 0, 0);
        sigaction(signals[i], &sa, NULL);
    }
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_create(CLOCK_MONOTONIC, &ev, &timer);
    sigset_t normal = set(SIGUSR1, SIGUSR2, SIGTRAP), open = set(SIGTERM, SIGUSR2, 0), none = set(0, 0, 0);
    sigset_t faults = set(SIGSEGV, SIGTERM, 0);
    sigprocmask(SIG_SETMASK, &normal, NULL);
    int ends[2], ready[2];
    pipe(ends), pipe(ready);
    write(ready[1], "x", 1);
    int ep = epoll_create1(0), ep2 = epoll_create1(0);
    struct epoll_event e = {EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, ends[0], &e);
    epoll_ctl(ep2, EPOLL_CTL_ADD, ready[0], &e);
    for (int pending = 0; pending < 3; pending++) {
        for (int kind = 0; kind < 5; kind++) {
            static const char *names[] = {"sigsuspend", "ppoll", "pselect", "epoll_pwait", "epoll_pwait2"};
            char what[60];
            sprintf(what, "%s, %s", names[kind],
                    pending == 0 ? "later" : pending == 1 ? "pending" : "two pending");
            if (pending) raise(SIGUSR1);
            if (pending == 2) raise(SIGTRAP);
            else if (!pending) in(20);
            long r;
            struct pollfd p = {ends[0], POLLIN};
            fd_set fds;
            FD_ZERO(&fds); FD_SET(ends[0], &fds);
            switch (kind) {
            case 0: r = sigsuspend(&open); break;
            case 1: r = ppoll(&p, 1, NULL, &open); break;
            case 2: r = pselect(ends[0] + 1, &fds, 0, 0, 0, &open); break;
            case 3: r = epoll_pwait(ep, &e, 1, -1, &open); break;
            default: r = epoll_pwait2(ep, &e, 1, NULL, &open);
            }
            report(what, r);
        }
    }
    // Both a signal and a descriptor: the descriptor wins, and the signal stays pending.
    struct pollfd p = {ready[0], POLLIN};
    raise(SIGUSR1);
    report("ppoll, ready", ppoll(&p, 1, NULL, &open));
    raise(SIGUSR1);
    report("epoll_pwait, ready", epoll_pwait(ep2, &e, 1, -1, &open));
    sigset_t pend;
    sigpending(&pend);
    show("pending", &pend);
    report("then", 0);
    raise(SIGUSR1);
    report("ppoll, no time", ppoll(&p, 0, &(struct timespec){0, 0}, &open));
    sigprocmask(SIG_SETMASK, &none, NULL);
    report("unblocked", 0);
    // Masks that block what faults raise.
    in(20);
    report("ppoll, faults blocked", ppoll(&p, 0, NULL, &faults));
    in(20);
    report("sigsuspend, faults blocked", sigsuspend(&faults));
    sigprocmask(SIG_SETMASK, &faults, NULL);
    raise(SIGSEGV);
    sigpending(&pend);
    show("pending", &pend);
    report("held", 0);
    report("ppoll, held", ppoll(&p, 0, NULL, &none));
    raise(SIGSEGV);
    in(20);
    report("ppoll, held and blocked", ppoll(&p, 0, NULL, &faults));
    siginfo_t info = {0};
    errno = 0;
    report("sigtimedwait of a held one", sigtimedwait(&faults, &info, &(struct timespec){1, 0}));
    printf("%d %d %d\n", info.si_signo, info.si_code, info.si_pid == getpid());
    raise(SIGSEGV);
    int sfd = signalfd(-1, &faults, SFD_NONBLOCK);
    struct signalfd_siginfo si = {0};
    long n = read(sfd, &si, sizeof si);
    printf("signalfd of a held one: %ld %u\n", n, si.ssi_signo);
    sigset_t bad = none;
    errno = 0;
    long r = syscall(SYS_ppoll, &p, 0, &(struct timespec){0, 0}, &bad, 4);
    report("wrong size", r);
    r = syscall(SYS_ppoll, &p, 0, &(struct timespec){0, 0}, (void *)16, 8);
    report("bad address", r);
    sigprocmask(SIG_SETMASK, &none, NULL);
    report("end", 0);
}

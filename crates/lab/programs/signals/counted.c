// Many signals while the program goes in and out of waiting calls: each queued one is delivered once,
// in order, and none is lost between the check for it and the wait.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile long handled, sum, disorder, last = -1;
static void handler(int signo, siginfo_t *info, void *context) {
    long v = info->si_value.sival_int;
    if (v != last + 1) disorder++;
    last = v;
    sum += v;
    handled++;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 2000;
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN, &sa, NULL);
    sigset_t one, none;
    sigemptyset(&none), sigemptyset(&one), sigaddset(&one, SIGRTMIN);
    int ends[2], back[2];
    pipe(ends), pipe(back);
    pid_t parent = getpid();
    for (int kind = 0; kind < 7; kind++) {
        handled = sum = disorder = 0, last = -1;
        sigprocmask(SIG_SETMASK, kind < 4 ? &one : &none, NULL);
        int ep = epoll_create1(0), word = 0;
        pid_t child = fork();
        if (!child) {
            for (int i = 0; i < count; i++) {
                while (sigqueue(parent, SIGRTMIN, (union sigval){.sival_int = i}) && errno == EAGAIN) usleep(100);
                char c;
                // One at a time: the parent must wake up for each.
                if (read(back[0], &c, 1) != 1) _exit(1);
            }
            _exit(0);
        }
        long before = 0;
        while (handled < count) {
            struct pollfd p = {ends[0], POLLIN};
            struct epoll_event e;
            struct timespec second = {20, 0};
            long r = 0;
            switch (kind) {
            case 0: r = ppoll(&p, 1, &second, &none); break;
            case 1: r = sigsuspend(&none); break;
            case 2: r = epoll_pwait(ep, &e, 1, 20000, &none); break;
            case 3: r = pselect(0, 0, 0, 0, &second, &none); break;
            // These may miss one between the check and the wait, natively too: short waits.
            case 4: r = nanosleep(&(struct timespec){0, 300000}, NULL); break;
            case 5: r = poll(&p, 1, 1); break;
            case 6: for (volatile int i = 0; i < 3000; i++) {} break;
            }
            if (r == 0 && kind < 4) { printf("kind %d: waited in vain after %ld\n", kind, handled); exit(1); }
            while (before < handled) {
                if (write(back[1], "x", 1) == 1) before++;
            }
        }
        int status;
        while (waitpid(child, &status, 0) < 0) {}
        printf("kind %d: %ld, sum %ld, out of order %ld, %x\n", kind, handled, sum, disorder, status);
        fflush(stdout);
        close(ep);
    }
}

/* Says who it is, and then computes or waits in the way that its first argument names, until SIGTERM comes. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned char memory[16 * 4096];
static volatile unsigned long steps;
static volatile sig_atomic_t over;
static int word, ends[2];

static void end(int signo) { over = signo; }

static void compute(void) {
    while (!over)
        steps = steps * 3 + 1;
}

static long pass_time(const char *how) {
    char byte;
    if (!strcmp(how, "compute")) {
        compute();
        return 0;
    }
    if (!strcmp(how, "calls")) {
        while (!over)
            if (syscall(SYS_getppid) < 0)
                return -1;
        return 0;
    }
    if (!strcmp(how, "read"))
        return read(ends[0], &byte, 1);
    if (!strcmp(how, "poll"))
        return poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1);
    if (!strcmp(how, "epoll")) {
        struct epoll_event event = {EPOLLIN, {0}};
        int set = epoll_create1(0);
        epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event);
        return epoll_wait(set, &event, 1, -1);
    }
    if (!strcmp(how, "futex"))
        return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
    if (!strcmp(how, "sleep"))
        return nanosleep(&(struct timespec){3600, 0}, NULL);
    return -1;
}

static void *thread(void *how) {
    printf("%d\n", (int)syscall(SYS_gettid));
    fflush(stdout);
    pass_time(how);
    return NULL;
}

static int threads(void) {
    pthread_t all[3];
    char *how[] = {"compute", "read", "poll"};
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&all[i], NULL, thread, how[i]);
    int signo;
    sigwait(&term, &signo);
    over = signo;
    /* One byte is read, and one is left. */
    if (write(ends[1], "xx", 2) != 2)
        return 1;
    for (int i = 0; i < 3; i++)
        pthread_join(all[i], NULL);
    return 0;
}

static int processes(void) {
    pid_t child = fork();
    if (!child) {
        printf("%d\n", getpid());
        fflush(stdout);
        compute();
        _exit(7);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        kill(child, SIGTERM);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    if (argc < 2 || pipe(ends))
        return 1;
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = i * 7 + i / 4096 + 1;
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    printf("%d %p\n", getpid(), (void *)memory);
    fflush(stdout);
    if (!strcmp(argv[1], "threads"))
        return threads();
    if (!strcmp(argv[1], "processes"))
        return processes();
    long result = pass_time(argv[1]);
    printf("%ld %d\n", result, errno);
    return 0;
}

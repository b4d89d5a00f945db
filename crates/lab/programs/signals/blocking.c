// Every kind of blocking call, interrupted by a handler with and without SA_RESTART. A helper sends
// the signal when the kernel says that the call waits, and then makes the call possible.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int handled;
static pid_t victim;
static int ends[2], full[2], pair[2], listener, epoll, event, queue, sems, lockfile, leftover;
static int word;
static sem_t sem;
static struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0hindsight-test"};
static char lockname[64];
static pid_t child;

static void handler(int signo) { handled++; }

static void ms(int n) { nanosleep(&(struct timespec){0, n * 1000000}, NULL); }

// Waits until the victim sleeps in a system call.
static void asleep(void) {
    char name[64], text[400];
    snprintf(name, sizeof name, "/proc/self/task/%d/syscall", victim);
    for (int quiet = 0; quiet < 3;) {
        int fd = open(name, O_RDONLY);
        int n = read(fd, text, sizeof text - 1);
        close(fd);
        quiet = n > 0 && text[0] != 'r' ? quiet + 1 : 0;
        ms(2);
    }
}

static void nothing(void) {}
static void write_pipe(void) { write(ends[1], "x", 1); }
static void read_full(void) {
    static char buf[1 << 17];
    read(full[0], buf, sizeof buf);
}
static void write_pair(void) { write(pair[1], "y", 1); }
static void wake(void) {
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
}
static void post(void) { sem_post(&sem); }
static void connect_it(void) {
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    connect(s, (void *)&address, sizeof address);
    leftover = s;
}
static void add_event(void) { eventfd_write(event, 1); }
static void send_message(void) {
    struct { long type; char c; } m = {1, 'c'};
    msgsnd(queue, &m, 1, 0);
}
static void raise_semaphore(void) { semop(sems, &(struct sembuf){0, 1, 0}, 1); }
static void unlock(void) { flock(lockfile, LOCK_UN); }
static void end_child(void) { kill(child, SIGKILL); }

static long do_read(void) { char c; return read(ends[0], &c, 1); }
static long do_write(void) { static char b[4096]; return write(full[1], b, sizeof b); }
static long do_recv(void) { char c; return recv(pair[0], &c, 1, 0); }
static long do_recvmsg(void) {
    char c;
    struct iovec v = {&c, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    return recvmsg(pair[0], &h, 0);
}
static long timed_recv(int millis) {
    struct timeval tv = {0, millis * 1000};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    long r = do_recv();
    int e = errno;
    tv.tv_usec = 0;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    errno = e;
    return r;
}
static long do_recv_timed(void) { return timed_recv(900); }
static long do_accept(void) { long r = accept(listener, NULL, NULL); if (r >= 0) close(r); return r >= 0 ? 1 : -1; }
static long do_poll(void) { struct pollfd p = {ends[0], POLLIN}; long r = poll(&p, 1, -1); if (r > 0) do_read(); return r; }
static long do_poll_timed(void) { struct pollfd p = {ends[0], POLLIN}; return poll(&p, 1, 60000); }
static long do_ppoll(void) {
    struct pollfd p = {ends[0], POLLIN};
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&p, 1, NULL, &none);
}
static long do_select(void) { fd_set s; FD_ZERO(&s); FD_SET(ends[0], &s); return select(ends[0] + 1, &s, 0, 0, 0); }
static long do_pselect(void) {
    fd_set s;
    sigset_t none;
    sigemptyset(&none);
    FD_ZERO(&s); FD_SET(ends[0], &s);
    return pselect(ends[0] + 1, &s, 0, 0, 0, &none);
}
static long do_epoll(void) { struct epoll_event e; return epoll_wait(epoll, &e, 1, -1); }
static long do_epoll_pwait(void) {
    struct epoll_event e;
    sigset_t none;
    sigemptyset(&none);
    return epoll_pwait(epoll, &e, 1, -1, &none);
}
static long do_eventfd(void) { eventfd_t v; return eventfd_read(event, &v); }
static long do_futex(void) { word = 0; return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, 0, 0); }
static long do_futex_timed(void) {
    word = 0;
    struct timespec t = {60, 0};
    return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, 0, 0);
}
static long do_futex_bitset(void) {
    word = 0;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 60;
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &t, 0, FUTEX_BITSET_MATCH_ANY);
}
static long do_sem(void) { return sem_wait(&sem); }
static long do_msgrcv(void) { struct { long type; char c; } m; return msgrcv(queue, &m, 1, 0, 0); }
static long do_semop(void) { return semop(sems, &(struct sembuf){0, -1, 0}, 1); }
static long do_flock(void) {
    int fd = open(lockname, O_RDWR);
    flock(lockfile, LOCK_EX);
    long r = flock(fd, LOCK_EX);
    int e = errno;
    close(fd);
    flock(lockfile, LOCK_UN);
    errno = e;
    return r;
}
static long do_wait(void) {
    child = fork();
    if (!child) for (;;) pause();
    long r = waitpid(child, NULL, 0);
    int e = errno;
    if (r < 0) kill(child, SIGKILL), waitpid(child, NULL, 0);
    errno = e;
    return r == child ? 1 : r;
}
static long do_waitid(void) {
    siginfo_t i;
    child = fork();
    if (!child) for (;;) pause();
    long r = waitid(P_PID, child, &i, WEXITED);
    int e = errno;
    if (r < 0) kill(child, SIGKILL), waitpid(child, NULL, 0);
    errno = e;
    return r;
}
static long do_pause(void) { return pause(); }
static long do_suspend(void) { sigset_t none; sigemptyset(&none); return sigsuspend(&none); }
static long do_sigwait(void) {
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, SIGUSR2);
    return sigtimedwait(&one, NULL, &(struct timespec){60, 0});
}
static long do_nanosleep(void) {
    struct timespec left = {0, 0};
    long r = nanosleep(&(struct timespec){60, 0}, &left);
    int e = errno;
    printf("[left %d] ", left.tv_sec >= 50 && left.tv_sec < 60);
    errno = e;
    return r;
}
static long do_clock_nanosleep(void) {
    struct timespec left = {0, 0};
    long r = clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){60, 0}, &left);
    printf("[left %d] ", left.tv_sec >= 50 && left.tv_sec < 60);
    return r;
}
static long do_clock_absolute(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 60;
    return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);
}

static struct {
    const char *name;
    long (*call)(void);
    void (*enable)(void);
} kinds[] = {
    {"read", do_read, write_pipe}, {"write", do_write, read_full}, {"recv", do_recv, write_pair},
    {"recvmsg", do_recvmsg, write_pair}, {"recv timed", do_recv_timed, write_pair},
    {"accept", do_accept, connect_it}, {"poll", do_poll, write_pipe}, {"poll timed", do_poll_timed, nothing},
    {"ppoll", do_ppoll, nothing}, {"select", do_select, nothing}, {"pselect", do_pselect, nothing},
    {"epoll", do_epoll, nothing}, {"epoll_pwait", do_epoll_pwait, nothing}, {"eventfd", do_eventfd, add_event},
    {"futex", do_futex, wake}, {"futex timed", do_futex_timed, wake}, {"futex bitset", do_futex_bitset, wake},
    {"sem_wait", do_sem, post}, {"msgrcv", do_msgrcv, send_message}, {"semop", do_semop, raise_semaphore},
    {"flock", do_flock, unlock}, {"waitpid", do_wait, end_child}, {"waitid", do_waitid, end_child},
    {"pause", do_pause, nothing}, {"sigsuspend", do_suspend, nothing}, {"sigtimedwait", do_sigwait, nothing},
    {"nanosleep", do_nanosleep, nothing}, {"clock_nanosleep", do_clock_nanosleep, nothing},
    {"absolute sleep", do_clock_absolute, nothing},
};
#define KINDS (int)(sizeof kinds / sizeof *kinds)

static volatile int round_begun, round_done, kind;
static pthread_barrier_t barrier;

static void *helper(void *unused) {
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (kind < 0) return NULL;
        int before = handled;
        asleep();
        if (!round_done) pthread_kill(*(pthread_t *)unused, SIGUSR1);
        while (handled == before) ms(1);
        for (int i = 0; i < 8 && !round_done; i++) ms(2);
        if (!round_done) asleep();
        if (!round_done) kinds[kind].enable();
        if (kinds[kind].enable == nothing && !round_done) {
            // Only another handler without SA_RESTART ends it.
            struct sigaction sa = {.sa_handler = handler};
            sigaction(SIGUSR2, &sa, NULL);
            pthread_kill(*(pthread_t *)unused, SIGUSR2);
        }
        pthread_barrier_wait(&barrier);
    }
}

int main(void) {
    pthread_t self = pthread_self(), other;
    victim = getpid();
    pipe(ends), pipe(full), socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    static char fill[4096];
    while (write(full[1], fill, sizeof fill) > 0) {}
    fcntl(full[1], F_SETFL, 0);
    snprintf(address.sun_path + 1, 90, "hindsight-%d", getpid());
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, (void *)&address, sizeof address), listen(listener, 5);
    epoll = epoll_create1(0), event = eventfd(0, 0);
    struct epoll_event e = {EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, event, &e);
    sem_init(&sem, 0, 0);
    queue = msgget(IPC_PRIVATE, 0600), sems = semget(IPC_PRIVATE, 1, 0600);
    snprintf(lockname, sizeof lockname, "/tmp/hindsight-lock-%d", getpid());
    lockfile = open(lockname, O_CREAT | O_RDWR, 0600);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&other, NULL, helper, &self);
    for (int restart = 0; restart < 2; restart++)
        for (kind = 0; kind < KINDS; kind++) {
            struct sigaction sa = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
            sigaction(SIGUSR1, &sa, NULL);
            handled = round_done = 0;
            if (kinds[kind].call == do_write) {
                fcntl(full[1], F_SETFL, O_NONBLOCK);
                while (write(full[1], fill, sizeof fill) > 0) {}
                fcntl(full[1], F_SETFL, 0);
            }
            pthread_barrier_wait(&barrier);
            errno = 0;
            long r = kinds[kind].call();
            int err = errno;
            round_done = 1;
            pthread_barrier_wait(&barrier);
            printf("%s%s: %ld %s, %d\n", kinds[kind].name, restart ? ", restart" : "", r,
                   r < 0 ? strerrorname_np(err) : "", handled);
            fflush(stdout);
        }
    kind = -1;
    pthread_barrier_wait(&barrier);
    pthread_join(other, NULL);
    msgctl(queue, IPC_RMID, NULL), semctl(sems, 0, IPC_RMID), unlink(lockname);
}

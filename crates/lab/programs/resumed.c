// Goes on from a place: the call of getppid. What it prints behind that must not depend on whether it was made again there.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int got;

static void handler(int signo) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    got = signo;
    printf("handler %d, blocks SIGHUP: %d\n", signo, sigismember(&now, SIGHUP));
}

// Asks which file it is.
static void ask(int fd) {
    struct stat st;
    fstat(fd, &st);
}

static void place(void) {
    fflush(stdout);
    getppid();
}

// Memory, registers, heap, signals, the clock.
static int memory(void) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaddset(&act.sa_mask, SIGHUP);
    sigaction(SIGUSR1, &act, NULL);
    signal(SIGUSR2, SIG_IGN);
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&alternate, NULL);
    sigset_t block, now;
    sigemptyset(&block);
    sigaddset(&block, SIGTERM);
    sigprocmask(SIG_BLOCK, &block, NULL);
    umask(027);
    double sum = 0;
    for (int i = 1; i < 1000; i++)
        sum += sqrt(i);
    long double more = sum / 3;
    char *reserved = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(reserved + 5000, "kept behind a wall");
    mprotect(reserved, 1 << 20, PROT_NONE);
    char *dropped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dropped[1] = 1;
    madvise(dropped, 8192, MADV_DONTNEED);
    printf("before\n");
    place();
    mprotect(reserved, 1 << 20, PROT_READ);
    printf("after %.6f %.6Lf %s %d\n", sum, more, reserved + 5000, dropped[1]);
    raise(SIGUSR1);
    raise(SIGUSR2);
    raise(SIGTERM);
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("got %d, blocked SIGTERM %d SIGINT %d\n", got, sigismember(&now, SIGTERM), sigismember(&now, SIGINT));
    char *old = sbrk(0);
    char *all[200];
    for (int i = 0; i < 200; i++)
        memset(all[i] = malloc(5000), i, 5000);
    printf("grown %d, byte %d\n", (char *)sbrk(0) > old, all[77][4999]);
    struct timespec t;
    printf("clock %d, umask %o\n", clock_gettime(CLOCK_MONOTONIC, &t), umask(0));
    return 3;
}

static void show(const char *what, int fd) {
    char buf[64] = "";
    long n = read(fd, buf, sizeof buf - 1);
    printf("%s: %ld %s %s\n", what, n, n < 0 ? strerror(errno) : buf, fcntl(fd, F_GETFD) ? "on exec" : "stays");
}

// Descriptors of all kinds.
static int descriptors(void) {
    int save = dup(1);
    dup2(2, 1);
    dup2(save, 2);
    close(save);
    int pipe_ends[2], sockets[2];
    pipe2(pipe_ends, O_CLOEXEC);
    write(pipe_ends[1], "in the pipe", 11);
    char c;
    read(pipe_ends[0], &c, 1);
    int counter = eventfd(4, 0);
    long long three = 3;
    write(counter, &three, 8);
    int temporary = open(".", O_TMPFILE | O_RDWR, 0600);
    write(temporary, "temporary", 9);
    lseek(temporary, 4, SEEK_SET);
    int deleted = open("deleted", O_CREAT | O_EXCL | O_RDWR, 0600);
    write(deleted, "was deleted", 11);
    unlink("deleted");
    lseek(deleted, 0, SEEK_SET);
    int memory = memfd_create("x", 0);
    write(memory, "in memory", 9);
    lseek(memory, 3, SEEK_SET);
    int appends = open("log", O_CREAT | O_EXCL | O_APPEND | O_WRONLY, 0600);
    write(appends, "one\n", 4);
    int input = open("input", O_RDONLY);
    read(input, &c, 1);
    flock(input, LOCK_SH);
    int null = open("/dev/null", O_RDWR);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    int files[] = {1, 2, temporary, deleted, memory, appends, input};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
        ask(files[i]);
    fprintf(stderr, "before\n");
    place();
    show("pipe", pipe_ends[0]);
    long long n = 0;
    read(counter, &n, 8);
    printf("counter %lld\n", n);
    show("temporary", temporary);
    show("deleted", deleted);
    show("memory", memory);
    show("input", input);
    show("null", null);
    int moved = lseek(appends, 0, SEEK_END);
    write(appends, "two\n", 4);
    printf("appended at %d\n", moved);
    int again = open("input", O_RDONLY);
    printf("lock: %s\n", flock(again, LOCK_EX | LOCK_NB) < 0 ? strerror(errno) : "free");
    if (write(sockets[0], "x", 1) < 0)
        fprintf(stderr, "socket: %s\n", strerror(errno));
    fflush(stdout);
    fprintf(stderr, "to the other\n");
    return 4;
}

// Waits until so many other threads sleep in the kernel, and no more live.
static void settle(int others) {
    struct timespec nap = {.tv_nsec = 5000000};
    for (int steady = 0; steady < 4; steady++) {
        nanosleep(&nap, NULL);
        int asleep = 0, all = 0;
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *d; (d = readdir(tasks));) {
            char path[300], text[200] = "";
            if (d->d_name[0] == '.' || atoi(d->d_name) == getpid())
                continue;
            snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
            int f = open(path, O_RDONLY);
            read(f, text, sizeof text - 1);
            close(f);
            all++;
            asleep += strstr(text, ") S ") != NULL;
        }
        closedir(tasks);
        if (all != others || asleep != others)
            steady = -1;
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static __thread int own;

static void *work(void *arg) {
    long n = (long)arg;
    own = 100 + n;
    pthread_mutex_lock(&lock);
    while (turn != n)
        pthread_cond_wait(&changed, &lock);
    printf("thread %ld, own %d\n", n, own);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return (void *)(n * n);
}

// Threads that wait for each other.
static int threads(void) {
    pthread_t all[4];
    turn = -1;
    for (long n = 0; n < 4; n++)
        pthread_create(&all[n], NULL, work, (void *)n);
    settle(4);
    printf("before\n");
    place();
    pthread_mutex_lock(&lock);
    turn = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int n = 0; n < 4; n++) {
        void *result;
        int error = pthread_join(all[n], &result);
        printf("joined %d: %d %ld\n", n, error, (long)result);
    }
    return 5;
}

static int pipe_of[2];
static char waited[8];

static void *ends(void *arg) {
    char text[100];
    snprintf(text, sizeof text, "%ld", (long)arg);
    return (void *)(atol(text) * 10);
}

static void on_own_stack(int signo) {
    char here;
    stack_t own_stack;
    sigaltstack(NULL, &own_stack);
    char *first = own_stack.ss_sp;
    printf("signal %d on its own stack: %d\n", signo, first <= &here && &here < first + own_stack.ss_size);
}

// Blocks a signal for itself, has a stack of its own for another one, and waits for a byte.
static void *waits(void *arg) {
    sigset_t block, now;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &block, NULL);
    stack_t own_stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&own_stack, NULL);
    pthread_setname_np(pthread_self(), "reader");
    long n = read(pipe_of[0], waited, sizeof waited);
    pthread_kill(pthread_self(), SIGUSR1);
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    printf("%s read %ld, blocks SIGUSR2: %d, SIGTERM: %d\n", name, n, sigismember(&now, SIGUSR2), sigismember(&now, SIGTERM));
    return arg;
}

// Two threads have ended and are not joined yet, and one waits in the kernel.
static int ended(void) {
    struct sigaction act = {.sa_handler = on_own_stack, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &act, NULL);
    pipe(pipe_of);
    pthread_t all[3];
    for (long n = 1; n < 3; n++)
        pthread_create(&all[n], NULL, ends, (void *)n);
    pthread_create(&all[0], NULL, waits, NULL);
    settle(1);
    place();
    write(pipe_of[1], "abc", 3);
    for (int n = 0; n < 3; n++) {
        void *result;
        int error = pthread_join(all[n], &result);
        printf("joined %d: %d %ld\n", n, error, (long)result);
    }
    printf("%s\n", waited);
    return 14;
}

// Reads a file that it truncates later, perhaps all of it before.
static int rewrites(int all) {
    char b[16];
    int f = open("data", O_RDONLY);
    ask(f);
    if (all)
        pread(f, b, sizeof b, 0);
    read(f, b, 2);
    place();
    printf("rest %ld\n", (long)read(f, b, 8));
    open("data", O_WRONLY | O_TRUNC);
    return 6;
}

static int rewritten(void) {
    return rewrites(0);
}

static int rewritten_wholly(void) {
    return rewrites(1);
}

// A pipe ends when its last writer goes, and cannot be written to when its last reader goes.
static int pipes(void) {
    int ends[2], others[2];
    char c;
    pipe(ends);
    pipe2(others, O_NONBLOCK);
    write(ends[1], "ab", 2);
    signal(SIGPIPE, SIG_IGN);
    place();
    close(ends[1]);
    int n = 0;
    while (read(ends[0], &c, 1) > 0)
        n++;
    printf("read %d to the end\n", n);
    printf("empty: %s\n", read(others[0], &c, 1) < 0 ? strerror(errno) : "no error");
    close(others[0]);
    printf("no reader: %s\n", write(others[1], "x", 1) < 0 ? strerror(errno) : "no error");
    return 7;
}

// A signal waits because it is blocked.
static int pending(void) {
    sigset_t block;
    signal(SIGUSR1, handler);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigprocmask(SIG_BLOCK, &block, NULL);
    raise(SIGUSR1);
    place();
    sigprocmask(SIG_UNBLOCK, &block, NULL);
    printf("end\n");
    return 8;
}

// What it wrote to is found under another name.
static int linked(void) {
    int f = open("a", O_CREAT | O_EXCL | O_RDWR, 0600);
    write(f, "text", 4);
    link("a", "b");
    unlink("a");
    place();
    return 9;
}

// The same memory at two addresses.
static int twice(void) {
    int f = memfd_create("twice", 0);
    ftruncate(f, 4096);
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    char *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    memset(p, 1, 4096);
    place();
    return q[0];
}

static char *stack;

static void on_stack(int signo) {
    char here;
    printf("handler %d on its stack: %d\n", signo, &here >= stack && &here < stack + 65536);
}

// A child has what its parent chose.
static int forked(void) {
    stack = malloc(65536);
    stack_t alternate = {.ss_sp = stack, .ss_size = 65536};
    sigaltstack(&alternate, NULL);
    struct sigaction act = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &act, NULL);
    signal(SIGUSR2, SIG_IGN);
    int lock = open("lock", O_CREAT | O_EXCL | O_RDWR, 0600);
    ask(lock);
    struct flock all = {.l_type = F_WRLCK};
    fcntl(lock, F_SETLK, &all);
    int child = fork();
    if (child) {
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    place();
    raise(SIGUSR1);
    raise(SIGUSR2);
    printf("wait: %s\n", wait(NULL) < 0 ? strerror(errno) : "no error");
    return 10;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {
        {"memory", memory}, {"descriptors", descriptors}, {"threads", threads}, {"ended", ended}, {"rewritten", rewritten},
        {"rewritten-wholly", rewritten_wholly}, {"pipes", pipes}, {"pending", pending}, {"linked", linked}, {"twice", twice}, {"forked", forked},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name)) {
            int status = all[i].run();
            fflush(stdout);
            return status;
        }
    return 1;
}

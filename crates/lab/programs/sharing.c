// Processes that share this one's memory are killed, or end with all their threads. Meanwhile they do everything that
// a recorder must take care of. The others go on.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK (64 << 10)

static char stacks[4][STACK];
static atomic_long counter;
static atomic_int started, go;

// Runs code that nobody has run before.
static void new_code(unsigned char *page, int n) {
    unsigned char code[] = {0xb8, n, n >> 8, n >> 16, 0, 0x05, 1, 0, 0, 0, 0xc3};
    memcpy(page, code, sizeof code);
    ((int (*)(void))page)();
}

// No functions of the C library that take locks.
static void work(int n) {
    int fd = open("/dev/null", O_RDONLY);
    close(dup(fd));
    close(fd);
    unsigned char *p = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(9);
    new_code(p, n);
    new_code(p + 4096, n);
    mprotect(p + 4096, 4096, PROT_READ);
    munmap(p, 3 * 4096);
    struct sigaction a = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR2, &a, 0);
    for (int i = 0; i < 20; i++) atomic_fetch_add(&counter, 1);
    if (n % 16 == 0) {
        int status;
        pid_t pid = syscall(SYS_fork);
        if (pid == 0) syscall(SYS_exit_group, 0);
        waitpid(pid, &status, __WALL);
    }
}

static int busy(void *arg) {
    for (int n = (intptr_t)arg;; n++) {
        work(n);
        started = 1;
    }
}

static void *busy_thread(void *arg) {
    busy(arg);
    return 0;
}

static pid_t share(int (*f)(void *), int stack, intptr_t arg) {
    pid_t pid = clone(f, stacks[stack] + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, (void *)arg);
    if (pid < 0) {
        perror("clone");
        exit(1);
    }
    return pid;
}

static void rest(unsigned us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, 0);
}

static unsigned seed;

static unsigned below(unsigned n) {
    seed = seed * 1103515245 + 12345;
    return (seed >> 8) % n;
}

static void await(pid_t pid, int signal) {
    int status;
    if (waitpid(pid, &status, __WALL) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != signal) {
        printf("another end: %x\n", status);
        exit(1);
    }
}

// Kills them from here.
static void inside(int rounds) {
    for (int i = 0; i < rounds; i++) {
        started = 0;
        pid_t a = share(busy, 0, i * 1000), b = share(busy, 1, i * 2000);
        while (!started) rest(100);
        rest(below(3000));
        kill(a, SIGKILL);
        work(i);
        kill(b, SIGKILL);
        await(a, SIGKILL);
        await(b, SIGKILL);
        work(i);
    }
}

// Lets a process kill them that shares nothing.
static void outside(int rounds) {
    for (int i = 0; i < rounds; i++) {
        started = 0;
        pid_t a = share(busy, 0, i * 1000);
        while (!started) rest(100);
        unsigned wait = below(3000);
        pid_t killer = fork();
        if (killer == 0) {
            rest(wait);
            kill(a, SIGKILL);
            _exit(0);
        }
        int status;
        while (waitpid(a, &status, WNOHANG | __WALL) != a) work(i);
        waitpid(killer, &status, 0);
        work(i);
    }
}

// This process ends with all its threads; one that shares its memory stays.
static int survivor(void *arg) {
    pid_t parent = (intptr_t)arg;
    started = 1;
    for (int n = 0; getppid() == parent; n++) work(n);
    for (int n = 0; n < 20; n++) work(n);
    write(1, "survived\n", 9);
    _exit(0);
}

static void end(int how) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(t + i, 0, busy_thread, (void *)(intptr_t)(i * 5000));
    started = 0;
    share(survivor, 2, getpid());
    while (!started) rest(100);
    rest(below(30000));
    switch (how) {
    case 0: syscall(SYS_exit_group, 0);
    case 1: execl("/bin/true", "true", (char *)0);
    default: abort();
    }
}

int main(int argc, char **argv) {
    seed = atoi(argv[2]);
    int n = argc > 3 ? atoi(argv[3]) : 1;
    switch (argv[1][0]) {
    case 'i': inside(n); break;
    case 'o': outside(n); break;
    case 'e': end(0);
    case 'x': end(1);
    case 'a': end(2);
    }
    puts("end");
    return 0;
}

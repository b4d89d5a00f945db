// A process whose children have copies of its memory, or write to it by system calls.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long words[4096];
static volatile int ended;

static void on_child(int s) { ended += s == SIGCHLD; }

static long sum(void) {
    long all = 0;
    for (int i = 0; i < 4096; i++) all = all * 3 + words[i];
    return all;
}

// Both sides change what was common.
static int copies(void) {
    signal(SIGCHLD, on_child);
    char *heap = malloc(100000);
    memset(heap, 7, 100000);
    long all = 0;
    for (int i = 0; i < 20; i++) {
        int pipes[2], status;
        if (pipe(pipes)) return 1;
        pid_t child = fork();
        if (!child) {
            for (int k = 0; k < 4096; k++) words[k] = -k - i;
            memset(heap, i, 100000);
            free(heap);
            char *more = malloc(300000);
            memset(more, 1, 300000);
            long s = sum();
            if (i % 5 == 4) {
                // A child of the child.
                pid_t next = fork();
                if (!next) _exit(words[17] == -17 - i ? 4 : 5);
                waitpid(next, &status, 0);
                s += WEXITSTATUS(status);
            }
            if (write(pipes[1], &s, sizeof s) != sizeof s) _exit(1);
            _exit(i);
        }
        for (int k = i; k < 4096; k += 16) words[k] += k * i;
        heap[i] = i;
        long theirs;
        if (read(pipes[0], &theirs, sizeof theirs) != sizeof theirs) return 2;
        if (waitpid(child, &status, 0) != child) return 3;
        all = all * 5 + sum() + theirs + WEXITSTATUS(status) + heap[i] + heap[99];
        close(pipes[0]);
        close(pipes[1]);
    }
    printf("%ld %d\n", all, ended);
    return 0;
}

// Memory that both have.
static int common(void) {
    volatile long *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        m[3] = 99;
        _exit(0);
    }
    waitpid(child, 0, 0);
    printf("%ld\n", m[3]);
    return 0;
}

// The child writes to this process's memory.
static int written(const char *how) {
    pid_t parent = getpid();
    long value = 1234567;
    words[5] = 5;
    pid_t child = fork();
    if (!child) {
        if (!strcmp(how, "vm")) {
            struct iovec here = {&value, 8}, there = {(void *)&words[5], 8};
            _exit(process_vm_writev(parent, &here, 1, &there, 1, 0) != 8);
        }
        if (!strcmp(how, "file")) {
            char name[64];
            sprintf(name, "/proc/%d/mem", parent);
            int fd = open(name, O_RDWR);
            _exit(pwrite(fd, &value, 8, (off_t)&words[5]) != 8);
        }
        if (ptrace(PTRACE_SEIZE, parent, 0, 0)) _exit(2);
        if (ptrace(PTRACE_INTERRUPT, parent, 0, 0)) _exit(3);
        if (waitpid(parent, 0, __WALL) != parent) _exit(4);
        if (ptrace(PTRACE_POKEDATA, parent, (void *)&words[5], (void *)value)) _exit(5);
        _exit(ptrace(PTRACE_DETACH, parent, 0, 0) != 0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    printf("%ld %x\n", words[5], status);
    return 0;
}

// The child changes a file that is in memory here.
static int replaced(const char *path) {
    int fd = open(path, O_RDONLY);
    char *m = mmap(0, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    int first = m[0];
    pid_t child = fork();
    if (!child) {
        int to = open(path, O_WRONLY);
        _exit(pwrite(to, "changed", 7, 4096) != 7);
    }
    waitpid(child, 0, 0);
    printf("%d %d %d\n", first, m[1], m[4096]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 9;
    if (!strcmp(argv[1], "copies")) return copies();
    if (!strcmp(argv[1], "common")) return common();
    if (!strcmp(argv[1], "replaced")) return replaced(argv[2]);
    return written(argv[1]);
}

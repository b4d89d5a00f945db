/* The first process of a namespace of process ids sends itself signals that would kill others, or does what raises them;
   its wait status. Also what is the first in a namespace within that one ("nested"). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char *wild = (char *)8;

static void handler(int signo) {
    _exit(signo);
}

static void *thread(void *arg) {
    for (;;) pause();
}

static int first(const char *what, int signo) {
    if (!strcmp(what, "sent")) kill(getpid(), signo);
    if (!strcmp(what, "raised")) raise(signo);
    if (!strcmp(what, "handled")) signal(signo, handler), kill(getpid(), signo);
    if (!strcmp(what, "again")) {
        signal(signo, handler), signal(signo, SIG_DFL);
        kill(getpid(), signo);
    }
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "segv")) *wild = 0;
    if (!strcmp(what, "fpe")) __asm__ volatile("xor %%edx, %%edx\n xor %%ecx, %%ecx\n idiv %%ecx" ::: "eax", "ecx", "edx");
    if (!strcmp(what, "ill")) __asm__ volatile("ud2");
    if (!strcmp(what, "trap")) __asm__ volatile("int3");
    if (!strcmp(what, "bus")) {
        FILE *f = tmpfile();
        char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
        *(volatile char *)p = 1;
    }
    // Its children are as others.
    int status;
    pid_t child = fork();
    if (!child) {
        kill(getpid(), signo ? signo : SIGTERM);
        _exit(56);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) status &= 0x7f;
    _exit(status ? status : 55);
}

static int nested(int depth) {
    if (unshare(CLONE_NEWPID)) return 99;
    pid_t child = fork();
    if (!child) {
        pthread_t t;
        pthread_create(&t, NULL, thread, NULL);
        printf("%d at %d\n", getpid(), depth);
        fflush(stdout);
        int below = depth ? nested(depth - 1) : 0;
        usleep(20000);
        _exit(below + 1);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "nested")) {
        printf("%d\n", nested(3));
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        char *signo = strchr(argv[i], '=');
        if (signo) *signo++ = 0;
        fflush(stdout);
        // A process has one namespace for its children, which ends with the first of them.
        pid_t maker = fork();
        if (!maker) {
            if (unshare(CLONE_NEWPID)) {
                printf("not permitted: %d\n", errno);
                return 1;
            }
            pid_t child = fork();
            if (!child) first(argv[i], signo ? atoi(signo) : 0);
            int status;
            waitpid(child, &status, 0);
            if (WIFSIGNALED(status)) printf("%s: signal %d\n", argv[i], WTERMSIG(status));
            else printf("%s %s: exit %d\n", argv[i], signo ? signo : "", WEXITSTATUS(status));
            return 0;
        }
        waitpid(maker, NULL, 0);
    }
    return 0;
}

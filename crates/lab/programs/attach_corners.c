// Processes in states that a recorder may find awkward to come to, for one or two seconds.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned long work(double seconds) {
    unsigned long n = 0;
    for (double end = now() + seconds; now() < end;)
        for (int i = 0; i < 1000; i++) n = n * 31 + i;
    return n | 1;
}

// A filter that refuses one call and allows all others.
static void filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
    puts("running");
    work(1);
    long r = syscall(SYS_getppid);
    printf("%ld %s\n", r, strerrorname_np(errno));
}

// A filter that kills at what a recorder needs, and a program that needs only little.
static void strict(void) {
    static const int allowed[] = {SYS_write, SYS_exit_group, SYS_clock_gettime, SYS_rt_sigreturn, SYS_nanosleep, SYS_clock_nanosleep};
    struct sock_filter code[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int n = 1;
    for (int i = 0; i < 6; i++) code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 6 - i, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog p = {n, code};
    puts("running");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
    work(1);
    puts("still here");
    fflush(stdout);
    syscall(SYS_exit_group, 0);
}

// System calls would become signals if this byte said so.
static char selector;

static void dispatched(void) {
    prctl(59, 1, 0, 0, &selector);
    printf("%d\n", getpid());
    work(2);
    puts("done");
}

static char stack[65536];

static void handler(int signo, siginfo_t *i, void *context) {
    char here;
    puts("running");
    work(2);
    printf("signal %d value %d, on its stack %d\n", signo, i->si_value.sival_int, &here >= stack && &here < stack + sizeof stack);
}

// In a handler, on an alternate stack, with a signal blocked and pending.
static void handled(void) {
    stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&s, NULL);
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaddset(&sa.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &sa, NULL);
    struct sigaction other = {.sa_handler = SIG_IGN};
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 7});
    stack_t after;
    sigaltstack(NULL, &after);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf("back: stack %d %d, blocked %d\n", after.ss_sp == stack, after.ss_flags, sigismember(&mask, SIGUSR2));
}

// Its parent waits in vfork, where nobody can stop it.
static void forked(void) {
    puts("running");
    pid_t child = vfork();
    if (!child) {
        struct timespec t = {2, 0};
        nanosleep(&t, NULL);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
}

static pthread_t leader;

static void *survivor(void *arg) {
    pthread_join(leader, NULL);
    puts("running");
    work(1);
    puts("the last one");
    exit(4);
}

// The first thread has ended.
static void leaderless(void) {
    pthread_t t;
    leader = pthread_self();
    pthread_create(&t, NULL, survivor, NULL);
    pthread_exit(NULL);
}

static void *brief(void *arg) {
    work(0.0005);
    return arg;
}

static volatile int over;
static long made[3];

static void *maker(void *arg) {
    long *count = arg;
    while (!over) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++) if (pthread_create(&t[i], NULL, brief, &t[i])) abort();
        for (int i = 0; i < 4; i++) {
            void *r;
            if (pthread_join(t[i], &r) || r != &t[i]) abort();
            ++*count;
        }
    }
    return NULL;
}

// Threads make threads all the time.
static void churn(void) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, maker, &made[i]);
    puts("running");
    work(2);
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    printf("%d\n", made[0] > 0 && made[1] > 0 && made[2] > 0);
}

static void computes(void) {
    puts("running");
    printf("%d\n", work(2) != 0);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const struct { const char *name; void (*f)(void); } all[] = {
        {"filter", filter}, {"strict", strict}, {"handler", handled}, {"vfork", forked},
        {"leader", leaderless}, {"churn", churn}, {"computes", computes}, {"dispatched", dispatched},
    };
    for (int i = 0; i < 8; i++) if (!strcmp(argv[1], all[i].name)) all[i].f();
}

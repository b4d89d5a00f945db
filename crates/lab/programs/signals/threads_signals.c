// Signals directed at threads, with masks, queues and stacks of their own.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4
static pthread_t threads[THREADS];
static pid_t tids[THREADS];
static sem_t ready, done, stop[THREADS];
static __thread int me = -1;
static volatile int got[THREADS + 1], order[THREADS + 1][64], sender[THREADS + 1];
static volatile int on_stack[THREADS];
static char *stacks[THREADS];

static void handler(int signo, siginfo_t *info, void *context) {
    char here;
    int i = me < 0 ? THREADS : me;
    int n = got[i];
    order[i][n % 64] = signo * 1000 + (info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
    sender[i] |= (info->si_code == SI_TKILL) | (info->si_code == SI_QUEUE) << 1 | (info->si_code == SI_USER) << 2 |
                 (info->si_pid != getpid()) << 3;
    if (i < THREADS) on_stack[i] |= &here >= stacks[i] && &here < stacks[i] + 65536;
    got[i] = n + 1;
}

static void *thread(void *arg) {
    me = (long)arg;
    tids[me] = syscall(SYS_gettid);
    stacks[me] = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (me & 1) sigaltstack(&(stack_t){.ss_sp = stacks[me], .ss_size = 65536}, NULL);
    sigset_t s;
    sigfillset(&s);
    sigdelset(&s, SIGRTMIN + me);
    pthread_sigmask(SIG_SETMASK, &s, NULL);
    sem_post(&ready);
    while (sem_wait(&stop[me])) {}
    // Those that are queued for this thread come now, lowest number first.
    sigemptyset(&s);
    pthread_sigmask(SIG_SETMASK, &s, NULL);
    sem_post(&done);
    return NULL;
}

int main(void) {
    sem_init(&ready, 0, 0), sem_init(&done, 0, 0);
    for (int s = SIGRTMIN; s < SIGRTMIN + 8; s++) {
        struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
        sigfillset(&sa.sa_mask);
        sigaction(s, &sa, NULL);
    }
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigfillset(&sa.sa_mask);
    sigaction(SIGUSR1, &sa, NULL), sigaction(SIGSEGV, &sa, NULL), sigaction(SIGTRAP, &sa, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (long i = 0; i < THREADS; i++) sem_init(&stop[i], 0, 0), pthread_create(&threads[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++) sem_wait(&ready);
    // To the process: only the thread that has it unblocked can take it.
    for (int i = 0; i < THREADS; i++)
        for (int n = 0; n < 5; n++) sigqueue(getpid(), SIGRTMIN + i, (union sigval){.sival_int = n});
    for (int i = 0; i < THREADS; i++)
        while (got[i] < 5) usleep(1000);
    // To the thread, blocked there: kept in order of number, then of arrival.
    for (int i = 0; i < THREADS; i++) {
        for (int n = 0; n < 4; n++)
            for (int s = 7; s >= 5; s--) pthread_sigqueue(threads[i], SIGRTMIN + s, (union sigval){.sival_int = 10 + n});
        pthread_kill(threads[i], SIGUSR1);
        pthread_kill(threads[i], SIGUSR1);
        syscall(SYS_tgkill, getpid(), tids[i], SIGSEGV);
        syscall(SYS_tgkill, getpid(), tids[i], SIGSEGV);
        syscall(SYS_tgkill, getpid(), tids[i], SIGTRAP);
        syscall(SYS_tkill, tids[i], SIGRTMIN + 4);
    }
    for (int i = 0; i < THREADS; i++) sem_post(&stop[i]);
    for (int i = 0; i < THREADS; i++) sem_wait(&done), pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        printf("thread %d: %d, from %x, own stack %d:", i, got[i], sender[i], on_stack[i]);
        for (int n = 0; n < got[i]; n++) printf(" %d", order[i][n]);
        printf("\n");
    }
    printf("tgkill of nobody: %ld\n", syscall(SYS_tgkill, getpid(), 1 << 22, SIGUSR1) ? (long)errno : 0);
    printf("after its end: %d\n", syscall(SYS_tgkill, getpid(), tids[0], 0) ? errno : 0);
    kill(getpid(), SIGUSR1);
    sigset_t pending;
    sigpending(&pending);
    printf("pending %d, handled here %d\n", sigismember(&pending, SIGUSR1), got[THREADS]);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    printf("handled here %d\n", got[THREADS]);
}

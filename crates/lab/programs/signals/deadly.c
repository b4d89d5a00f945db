/* A thread sends its process a signal that kills, by the call that the argument names, and then says that it
   still lives. "await": another thread takes the signal. "elsewhere": only one other thread has it not blocked. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *how;
static int signo;
static pid_t first;
static sem_t ready, go;

static void say(const char *text) {
    write(1, text, strlen(text));
}

static int is(const char *name) {
    return !strcmp(how, name);
}

static void *sender(void *arg) {
    sem_wait(&go);
    siginfo_t info = {.si_signo = signo, .si_code = SI_QUEUE, .si_pid = getpid(), .si_uid = getuid()};
    if (is("tgkill")) syscall(SYS_tgkill, getpid(), first, signo);
    else if (is("tkill")) syscall(SYS_tkill, first, signo);
    else if (is("queue")) sigqueue(getpid(), signo, (union sigval){.sival_int = 5});
    else if (is("tgqueue")) syscall(SYS_rt_tgsigqueueinfo, getpid(), first, signo, &info);
    else if (is("group")) kill(0, signo);
    else if (is("pidfd")) syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, getpid(), 0), signo, NULL, 0);
    else kill(getpid(), signo);
    if (is("await")) return NULL;
    // What dumps core takes its time, in which it could be taken back.
    for (; is("elsewhere");) pause();
    say("still alive\n");
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, signo);
    if (sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = 200000000}) == signo) say("taken back\n");
    say("and goes on\n");
    return NULL;
}

static void *waiter(void *arg) {
    if (is("elsewhere")) {
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, signo);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
    sem_post(&ready);
    for (;;) pause();
}

int main(int argc, char **argv) {
    how = argv[1], signo = atoi(argv[2]), first = getpid();
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, signo);
    if (is("await") || is("elsewhere")) pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, waiter, NULL);
    sem_wait(&ready);
    pthread_create(&threads[1], NULL, sender, NULL);
    // All signals were blocked meanwhile.
    sem_post(&go);
    if (is("await")) {
        int got;
        sigwait(&set, &got);
        say(got == signo ? "taken\n" : "another\n");
        pthread_join(threads[1], NULL);
        return 6;
    }
    pthread_join(threads[1], NULL);
    return 7;
}

/* Waits for Ctrl-C. With an argument it handles it, otherwise it dies of it. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t seen;

static void note(int signo) { seen = signo; }

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        signal(SIGINT, note);
        signal(SIGTERM, note);
    }
    sigset_t old, both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    /* Not to come between the look at `seen` and the waiting. */
    if (argc > 2)
        sigprocmask(SIG_BLOCK, &both, &old);
    printf("ready\n");
    fflush(stdout);
    volatile unsigned long n = 0;
    while (!seen) {
        n++;
        if (argc > 2)
            sigsuspend(&old);
    }
    printf("signal %d\n", (int)seen);
    return 40 + seen;
}

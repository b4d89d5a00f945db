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
    printf("ready\n");
    fflush(stdout);
    volatile unsigned long n = 0;
    while (!seen) {
        n++;
        if (argc > 2)
            pause();
    }
    printf("signal %d\n", (int)seen);
    return 40 + seen;
}

// Does not end when it is asked to, for one reason or another.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long n;
static volatile sig_atomic_t seen;

static void note(int signo) { seen = signo; }

int main(int argc, char **argv) {
    const char *how = argv[1];
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    if (!strcmp(how, "ignore")) {
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
    } else if (!strcmp(how, "block")) {
        sigprocmask(SIG_BLOCK, &both, 0);
    } else if (!strcmp(how, "take")) {
        signal(SIGINT, note);
        signal(SIGTERM, note);
    } else if (!strcmp(how, "wait")) {
        sigprocmask(SIG_BLOCK, &both, 0);
    } else if (!strcmp(how, "child")) {
        // The program ends, at once or when a file is there; its child stays.
        pid_t parent = getpid();
        if (fork() != 0) {
            if (argc > 2) {
                puts("ready");
                fflush(stdout);
                while (access(argv[2], F_OK)) usleep(1000);
            }
            return 0;
        }
        while (getppid() == parent) usleep(1000);
    }
    if (strcmp(how, "child") || argc == 2) {
        puts("ready");
        fflush(stdout);
    }
    if (!strcmp(how, "take")) {
        // It takes its time.
        while (!seen) n++;
        sleep(4);
        puts("in order");
        return 7;
    }
    if (!strcmp(how, "wait")) {
        int signo;
        sigwait(&both, &signo);
        sleep(4);
        puts("in order");
        return 7;
    }
    if (strcmp(how, "child") && argc > 2)
        for (;;) n++;
    for (;;) pause();
}

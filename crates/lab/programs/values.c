// Values of many types, some of them in registers, in several threads and in a handler.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

enum mood { SAD = -2, CALM, GLAD = 5 };
struct pair {
    int a;
    int b;
};
struct wide {
    long a, b;
};

static volatile long seen, ticks;

__attribute__((noipa)) static void look(signed char c, enum mood m, unsigned long big, double d,
                                        struct pair p, struct wide w, const char *text, unsigned u) {
    seen += c + m + (long) big + (long) d + p.a + w.b + (long) strlen(text) + u; // here
}

static void *thread(void *arg) {
    long n = (long) arg;
    for (long i = 0; i < 20; i++) {
        struct pair p = {(int) i, -1};
        struct wide w = {n, i};
        look(-1, i % 2 ? SAD : GLAD, ~0UL, 1.5, p, w, "abc", 0);
    }
    return 0;
}

// Calls that a timer interrupts anywhere.
__attribute__((noipa)) static long third(long n) { return n * 3 + 1; }
__attribute__((noipa)) static long second(long n) { return third(n) + third(n + 1); }
__attribute__((noipa)) static long first(long n) { return second(n) - second(n - 1); }

__attribute__((noipa)) static void small(void) { ticks++; }

static void tick(int s) {
    (void) s;
    small();
    small();
}

int main(int argc, char **argv) {
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], 0, thread, (void *) i);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    if (argc > 1) {
        signal(SIGALRM, tick);
        struct itimerval every = {{0, 300}, {0, 300}};
        setitimer(ITIMER_REAL, &every, 0);
        for (long i = 0; i < 100000 || ticks < 40; i++)
            seen += first(i);
        memset(&every, 0, sizeof every);
        setitimer(ITIMER_REAL, &every, 0);
    }
    printf("%ld\n", ticks);
    return 0;
}

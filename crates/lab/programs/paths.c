// Functions that are left in other ways than by a return, and handlers.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf back;
static volatile int handled, sum;

__attribute__((noipa)) static void small(int n) { sum += n; }

__attribute__((noipa)) static void deep(int n) {
    small(n);
    if (n == 0)
        longjmp(back, 1);
    deep(n - 1);
    sum++;
}

__attribute__((noipa)) static void after(void) {
    small(1);
    sum++;
}

__attribute__((noipa)) static void last(int n) {
    for (int i = 0; i < n; i++) {
        small(i);
        sum++;
    }
}

// A tail call where the compiler optimises.
__attribute__((noipa)) static void tail(int n) {
    sum += n;
    last(n);
}

static void handler(int s) {
    (void) s;
    small(2);
    handled++;
}

__attribute__((noipa)) static void raises(void) {
    raise(SIGUSR1);
    small(3);
    sum++;
}

__attribute__((noipa)) static long nested(long n) { return n == 0 ? 0 : 1 + nested(n - 1); }

static void *thread(void *arg) {
    (void) arg;
    for (int i = 0; i < 5; i++)
        after();
    return 0;
}

int main() {
    signal(SIGUSR1, handler);
    if (setjmp(back) == 0)
        deep(6);
    after();
    tail(4);
    raises();
    after();
    long n = nested(1000);
    pthread_t t;
    pthread_create(&t, 0, thread, 0);
    pthread_join(t, 0);
    printf("%d %d %ld\n", sum, handled, n);
    return 0;
}

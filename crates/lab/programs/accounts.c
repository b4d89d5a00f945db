// Calls, writes, allocations and system calls that the program counts itself. docs/sql.md asks about it.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct account {
    long balance;
    int changes;
};

static struct account accounts[4];
static volatile long total;
static volatile int signals;

__attribute__((noinline)) static long pay(int who, long amount) {
    accounts[who].balance += amount;
    accounts[who].changes++;
    total += amount;
    return accounts[who].balance;
}

__attribute__((noinline)) static int check(int who) {
    return accounts[who].balance % 7 ? 0 : -1;
}

// Each fifth note is never given back.
__attribute__((noinline)) static void note(int n) {
    char *text = malloc(16 + n);
    snprintf(text, 16 + n, "payment %d", n);
    if (n % 5) free(text);
}

static void handler(int number) {
    signals += number;
}

// The argument says how many payments there are. A negative number of them is an error.
int main(int argc, char **argv) {
    int refused = 0;
    int payments = argc > 1 ? atoi(argv[1]) : 200;
    if (payments < 0) abort();
    signal(SIGUSR1, handler);
    for (int i = 0; i < payments; i++) {
        pay(i % 4, i);
        if (check(i % 4) < 0) refused++;
        if (i % 10 == 0) note(i / 10);
    }
    raise(SIGUSR1);
    access("/no/such/file", R_OK);
    printf("%p %ld\n", (void *)&total, total);
    fflush(stdout);
    dprintf(2, "%d refused\n", refused);
    return 3;
}

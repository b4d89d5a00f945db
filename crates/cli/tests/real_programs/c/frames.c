// Functions with much between their beginning and their end, and deep stacks.
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf back;
static volatile long sum;
typedef long (*function)(long);

__attribute__((noinline)) static long leaf(long n) { return n * 3 + sum; }

__attribute__((noinline)) static long loop(long n) {
    for (long i = 0; i < n; i++)
        sum += leaf(i);
    return sum;
}

__attribute__((noinline)) static long large(long n) {
    volatile char room[200000];
    room[n % 200000] = 1;
    for (long i = 0; i < 30; i++)
        sum += room[i * 100] + leaf(i);
    return sum;
}

__attribute__((noinline)) static long deep(long n, function f) {
    volatile long mine[20];
    mine[n % 20] = n;
    long got = n ? deep(n - 1, f) : f(40);
    for (int i = 0; i < 70; i++)
        sum += mine[i % 20];
    return got + leaf(n);
}

__attribute__((noinline)) static long jump(long n) {
    if (n)
        return jump(n - 1) + 1;
    longjmp(back, 1);
}

__attribute__((noinline)) static long jumper(long n) {
    if (!setjmp(back))
        jump(n);
    for (long i = 0; i < 100; i++)
        sum += i;
    return leaf(n);
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv) {
    int list[100];
    long rounds = argc > 1 ? atol(argv[1]) : 3;
    for (int round = 0; round < 3; round++) {
        loop(rounds);
        deep(5, leaf);
        deep(12, loop);
        deep(3, jumper);
        deep(2, large);
        for (int i = 0; i < 100; i++)
            list[i] = (i * 7919 + round) % 101;
        qsort(list, 100, sizeof *list, compare);
    }
    return sum == 0;
}

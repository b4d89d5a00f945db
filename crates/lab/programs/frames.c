// Functions with much between their beginning and their end, and deep stacks.
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

// A frame one of whose pages is a mapping of its own.
__attribute__((noinline)) static long rights(long n) {
    volatile char room[60000];
    char *page = (char *)(((uintptr_t)room + 20000) & ~(uintptr_t)4095);
    mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memset((char *)room, n, sizeof room);
    for (long i = 0; i < 300; i++)
        sum += room[i * 100];
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    return leaf(n);
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

// One return pops more than its address. Another one's address is written anew on the way.
__asm__(".text\n"
        "pops: push %rbx\n mov $1500, %ecx\n 1: dec %ecx\n jnz 1b\n pop %rbx\n ret $16\n"
        "moves: mov $700, %ecx\n 1: dec %ecx\n jnz 1b\n mov %rdx, (%rsp)\n"
        "mov $700, %ecx\n 1: dec %ecx\n jnz 1b\n ret\n");

__attribute__((noinline)) static long odd(long n) {
    for (int i = 0; i < 2; i++) {
        __asm__ volatile("sub $128, %%rsp\n push $1\n push $2\n call pops\n add $128, %%rsp"
                         ::: "rcx", "memory", "cc");
        for (int k = 0; k < 300; k++)
            sum += k;
        __asm__ volatile("sub $128, %%rsp\n lea 3f(%%rip), %%rdx\n call moves\n ud2\n"
                         "3: add $128, %%rsp" ::: "rcx", "rdx", "memory", "cc");
    }
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
        deep(2, rights);
        deep(2, odd);
        for (int i = 0; i < 100; i++)
            list[i] = (i * 7919 + round) % 101;
        qsort(list, 100, sizeof *list, compare);
    }
    return sum == 0;
}

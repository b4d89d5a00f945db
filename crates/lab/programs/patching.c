/* Code that changes under other threads, comes back, moves, and differs between processes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define ALL (PROT_READ | PROT_WRITE | PROT_EXEC)

typedef int (*function)(int);

static uint8_t *map(void *at, int prot, int flags) {
    return mmap(at, PAGE, prot, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* nop × 8; lea eax, [rdi + n]; ret: with one aligned word for n, and several places to enter. */
static void emit(uint8_t *at, int n) {
    static const uint8_t code[16] = {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x8d, 0x87, 0, 0, 0, 0, 0xc3};
    memcpy(at, code, sizeof code);
    memcpy(at + 8, &n, 4);
}

static uint8_t *shared;
static volatile int wanted, reached;

static void *follow(void *unused) {
    (void)unused;
    for (int i = 1; i <= 400; i++) {
        while (wanted < i)
            ;
        /* Stale code may run for a moment. */
        int want = i % 3 * 1000 + 1;
        while (((function)shared)(1) != want || ((function)(shared + 3))(1) != want)
            ;
        reached = i;
    }
    return 0;
}

static int sum_of(int (*f)(int), int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += f(i);
    return sum;
}

/* The compiler makes a trampoline on the stack. */
static int nested(int k) {
    int add(int x) { return x * k; }
    return sum_of(add, 10);
}

int main(void) {
    long sum = 0;
    /* To something else and back, entered at two places. */
    uint8_t *both = map(0, ALL, 0);
    for (int i = 0; i < 300; i++) {
        emit(both, i % 2 ? 7 : 9);
        sum += ((function)both)(1) * 3 + ((function)(both + i % 6))(2);
    }
    printf("back and forth %ld\n", sum);

    /* Under another thread, which goes on when it sees the new code. */
    shared = map(0, ALL, 0);
    emit(shared, 0);
    pthread_t t;
    if (pthread_create(&t, 0, follow, 0))
        return 1;
    for (int i = 1; i <= 400; i++) {
        __atomic_store_n((int *)(shared + 8), i % 3 * 1000, __ATOMIC_SEQ_CST);
        wanted = i;
        while (reached < i)
            ;
        sum += ((function)(shared + 1))(i);
    }
    pthread_join(t, 0);
    printf("threads %ld\n", sum);

    /* Moved, and replaced at its place. */
    for (int i = 0; i < 50; i++) {
        uint8_t *here = map(0, PROT_READ | PROT_WRITE, 0);
        emit(here, i);
        mprotect(here, PAGE, PROT_READ | PROT_EXEC);
        sum += ((function)here)(1);
        uint8_t *there = map(0, PROT_NONE, 0);
        if (mremap(here, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) != there)
            return 2;
        sum += ((function)there)(2);
        map(here, PROT_READ | PROT_WRITE, MAP_FIXED);
        emit(here, i * 2);
        mprotect(here, PAGE, PROT_READ | PROT_EXEC);
        sum += ((function)here)(3);
        map(there, PROT_READ | PROT_WRITE, MAP_FIXED);
        emit(there, i * 3);
        mprotect(there, PAGE, PROT_READ | PROT_EXEC);
        sum += ((function)there)(4);
        munmap(here, PAGE);
        munmap(there, PAGE);
    }
    printf("moves %ld\n", sum);

    for (int i = 0; i < 50; i++)
        sum += nested(i);
    printf("trampolines %ld\n", sum);

    /* A child has the code as it was, and changes its own copy. Its parent and the child's child do so too, at
       the same place. */
    uint8_t *fresh = map(0, PROT_NONE, 0);
    fflush(stdout);
    for (int round = 0; round < 4; round++) {
        emit(both, round);
        sum += ((function)both)(0);
        pid_t child = fork();
        long mine = sum + ((function)both)(round);
        map(fresh, ALL, MAP_FIXED);
        emit(fresh, child ? 100 + round : 200 + round);
        mine += ((function)fresh)(1);
        emit(both, child ? 11 : 22);
        mine += ((function)both)(1);
        if (!child) {
            pid_t grandchild = fork();
            mine += ((function)fresh)(1) + ((function)both)(1);
            emit(fresh, grandchild ? 31 : 32);
            mine += ((function)fresh)(1);
            if (grandchild)
                waitpid(grandchild, 0, 0);
            printf("%s %d %ld\n", grandchild ? "child" : "grandchild", round, mine);
            exit(0);
        }
        waitpid(child, 0, 0);
        mine += ((function)fresh)(1) + ((function)both)(1);
        printf("parent %d %ld\n", round, mine);
        fflush(stdout);
    }
    return 0;
}

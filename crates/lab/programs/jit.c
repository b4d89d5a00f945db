/* Makes and changes code at run time in the ways that JIT compilers do. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*function)(int);

/* lea eax, [rdi + n]; ret */
static void emit(uint8_t *at, int n) {
    const uint8_t code[] = {0x8d, 0x87, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), 0, 0xc3};
    memcpy(at, code, sizeof code);
}

int main(void) {
    long sum = 0;
    /* Writable and executable at once, changed between calls. */
    uint8_t *both = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3000; i++) {
        emit(both, i);
        sum += ((function)both)(1);
    }
    printf("%ld\n", sum);

    /* Across a page boundary, one byte changed at a time. */
    uint8_t *across = both + 4096 - 4;
    emit(across, 0);
    for (int i = 0; i < 200; i++) {
        across[2] = (uint8_t)i;
        sum += ((function)across)(2);
        across[3] = (uint8_t)(i / 2);
        sum += ((function)across)(3);
    }
    printf("%ld\n", sum);

    /* Writable, then executable, by turns. */
    uint8_t *turns = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 300; i++) {
        mprotect(turns, 4096, PROT_READ | PROT_WRITE);
        emit(turns + i % 32, i * 3);
        mprotect(turns, 4096, PROT_READ | PROT_EXEC);
        sum += ((function)(turns + i % 32))(4);
    }
    printf("%ld\n", sum);

    /* Two views of the same pages: one to write, one to execute. */
    int fd = memfd_create("code", 0);
    if (ftruncate(fd, 4096))
        return 1;
    uint8_t *write = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint8_t *execute = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    for (int i = 0; i < 300; i++) {
        emit(write + 64, i * 5);
        sum += ((function)(execute + 64))(5);
    }
    printf("%ld\n", sum);

    /* Code that changes the instruction after the one that writes:
       mov byte [rip + 1], 9; mov eax, 1; ret */
    static const uint8_t self[] = {0xc6, 0x05, 1, 0, 0, 0, 9, 0xb8, 1, 0, 0, 0, 0xc3};
    memcpy(both + 256, self, sizeof self);
    sum += ((function)(both + 256))(0) * 1000;
    /* Unmapped and mapped again at the same place with other code. */
    for (int i = 0; i < 50; i++) {
        munmap(turns, 4096);
        turns = mmap(turns, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        emit(turns, i * 7);
        sum += ((function)turns)(6);
    }
    printf("%ld\n", sum);
    return 0;
}

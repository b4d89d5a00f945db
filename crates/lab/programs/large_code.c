/* Two threads execute more code at the same time than one part of a code cache holds. Then all of it is replaced, twice. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS 3200
#define ROOM 512
/* Each takes about a hundred bytes where it is checked: its flags are needed before and behind the read. */
#define READS 150

typedef uint32_t (*function)(const uint32_t *data);

static uint8_t *code;
static uint32_t data[READS % 128 + 128];

/* mov eax, n; and then adc eax, [rdi + k], again and again; ret */
static void emit(uint8_t *at, uint32_t n) {
    *at++ = 0xb8;
    memcpy(at, &n, 4);
    at += 4;
    for (int i = 0; i < READS; i++) {
        *at++ = 0x13;
        *at++ = 0x47;
        *at++ = (uint8_t)(i % 128);
    }
    *at = 0xc3;
}

static void emit_all(uint32_t round) {
    mprotect(code, FUNCTIONS * ROOM, PROT_READ | PROT_WRITE);
    for (uint32_t i = 0; i < FUNCTIONS; i++)
        emit(code + i * ROOM, i * 17 + round);
    mprotect(code, FUNCTIONS * ROOM, PROT_READ | PROT_EXEC);
}

/* One thread goes up and the other one down, so each meets what the other one has translated. */
static void *sweep(void *down) {
    uintptr_t sum = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < FUNCTIONS; i++) {
            int at = down ? FUNCTIONS - 1 - i : i;
            sum = sum * 3 + ((function)(void *)(code + at * ROOM))(data);
        }
    return (void *)sum;
}

int main(void) {
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        data[i] = (uint32_t)(i * 0x9e3779b9u);
    code = mmap(0, FUNCTIONS * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint32_t round = 0; round < 3; round++) {
        emit_all(round);
        pthread_t other;
        void *sum;
        pthread_create(&other, 0, sweep, code);
        uintptr_t own = (uintptr_t)sweep(0);
        pthread_join(other, &sum);
        printf("%lx %lx\n", (unsigned long)own, (unsigned long)sum);
    }
    return 0;
}

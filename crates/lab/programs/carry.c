// Locked instructions that read the carry, and those on AH to DH, from two threads at once.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { ROUNDS = 50000 };
static uint64_t sum, difference;
static uint8_t bytes, exchanged, compared;

static void *work(void *arg) {
    unsigned long seen = 0;
    for (long i = 0; i < ROUNDS; i++) {
        asm volatile("stc; lock adcq $1, %0" : "+m"(sum)::"cc");
        asm volatile("stc; lock sbbq $0, %0" : "+m"(difference)::"cc");
        asm volatile("clc; lock sbbq %1, %0" : "+m"(difference) : "r"(2UL) : "cc");
        unsigned rax = 3 << 8, rbx = 5 << 8, rdx = i << 8;
        asm volatile("lock xadd %%ah, %0" : "+m"(bytes), "+a"(rax)::"cc");
        asm volatile("lock add %%bh, %0" : "+m"(bytes), "+b"(rbx)::"cc");
        asm volatile("xchg %%dh, %0" : "+m"(exchanged), "+d"(rdx));
        // Counts only if nobody else came in between.
        uint8_t counted = 0;
        while (!counted) {
            uint8_t old = *(volatile uint8_t *)&compared;
            unsigned rcx = (old + 1 & 0xff) << 8;
            asm volatile("lock cmpxchg %%ch, %0; sete %1" : "+m"(compared), "=q"(counted), "+a"(old), "+c"(rcx)::"cc");
        }
        seen += (rdx >> 8 & 0xff) <= 0xff && (rax & 0xff) == 0 && (rbx >> 8 & 0xff) == 5;
    }
    return (void *)seen;
}

int main(void) {
    pthread_t t[2];
    void *seen[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], &seen[i]);
    printf("%lu %ld %d %d %ld %ld\n", sum, (long)difference, bytes, compared, (long)seen[0], (long)seen[1]);
}

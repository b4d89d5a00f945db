/* Code that is changed in place, and reads flags from before the branch that leads to it. The branches are calls
   through pointers, jumps and returns. The code may also lie across older code. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned char Byte;

/* xor eax, eax; ret  and  setc al; movzx eax, al; ret */
static const Byte zero[] = {0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90};
static const Byte carry[] = {0x0f, 0x92, 0xc0, 0x0f, 0xb6, 0xc0, 0xc3};
static volatile long memory[2];

/* Goes to `at` with the carry as the lowest bit of `c`, after reads. */
static long called(void *at, long c) {
    long r = 7;
    void *slot[1] = {at};
    __asm__ volatile("bt $0, %1\n mov (%2), %%rcx\n mov 8(%2), %%rdx\n call *(%3)"
                     : "+a"(r)
                     : "r"(c), "r"(memory), "r"(slot)
                     : "rcx", "rdx", "memory", "cc");
    return r;
}
static long jumped(void *at, long c) {
    long r = 7;
    __asm__ volatile("lea 1f(%%rip), %%rcx\n push %%rcx\n bt $0, %1\n mov (%2), %%rcx\n jmp *%3\n 1:"
                     : "+a"(r)
                     : "r"(c), "r"(memory), "r"(at)
                     : "rcx", "rdx", "memory", "cc");
    return r;
}
static long returned(void *at, long c) {
    long r = 7;
    __asm__ volatile("lea 1f(%%rip), %%rcx\n push %%rcx\n push %3\n mov %1, %%rdx\n add $-1, %%rdx\n"
                     "mov (%2), %%rcx\n ret\n 1:"
                     : "+a"(r)
                     : "r"(c & 1), "r"(memory), "r"(at)
                     : "rcx", "rdx", "memory", "cc");
    return r;
}

int main(void) {
    Byte *c = mmap(0, 8192, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Another way to the code that changes: a jump in memory that changes as well. */
    Byte *jump = c + 2048;
    jump[0] = 0xe9;
    *(int *)(jump + 1) = 4090 - 2048 - 5;
    Byte *places[] = {c, c + 4090};
    for (int round = 0; round < 12; round++) {
        Byte *at = places[round / 2 % 2];
        memcpy(at, round & 1 ? carry : zero, sizeof zero);
        for (int i = 0; i < 6; i++) {
            memory[0] = i * round;
            printf("%ld%ld%ld ", called(at, i), jumped(at, i), returned(at, i));
            if (at != c) printf("%ld%ld ", called(jump, i), returned(jump, i));
        }
        puts("");
    }
    /* The same with pages that are not written while they are executed. */
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 2; i++) {
            mprotect(c, 8192, PROT_READ | PROT_WRITE);
            memcpy(places[1], i ? carry : zero, sizeof zero);
            mprotect(c, 8192, PROT_READ | PROT_EXEC);
            for (int k = 0; k < 3; k++)
                printf("%ld%ld%ld%ld ", called(jump, k), jumped(jump, k), returned(places[1], k), called(places[1], k + 1));
        }
        puts("");
    }
    return 0;
}

/* Short string instructions on memory that another thread changes at the same time. Prints 1. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
static volatile unsigned long shared[64];
static volatile int stop;
static void *writer(void *unused) {
    for (unsigned long n = 1; !stop; n++)
        for (int i = 0; i < 64; i++) shared[i] = n * 77 + i;
    return unused;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, writer, 0);
    unsigned long seen = 1, local[64], filled[64];
    for (int k = 0; k < 5000; k++) {
        long n = k % 41;
        void *to = local + k % 13, *from = (void *)(shared + k % 23), *end;
        __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
        n = k % 200;
        to = (char *)local + 1, from = (char *)shared + 8 + k % 50;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
        /* Onto what the other thread writes. */
        n = k % 9, to = (void *)(shared + 50);
        __asm__ volatile("rep stosq" : "+D"(to), "+c"(n) : "a"(seen) : "memory");
        /* Each word from the one before. */
        n = 9, to = (void *)(shared + 31), from = (void *)(shared + 30);
        __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
        /* Downwards, with flags that are needed behind. */
        n = 7, to = filled + 20, from = (void *)(shared + 20);
        unsigned char same;
        __asm__ volatile("std; cmp %5, %4; movsq; rep movsl; sete %3; cld"
                         : "+D"(to), "+S"(from), "+c"(n), "=r"(same) : "r"(seen & 1), "r"(1UL) : "memory", "cc");
        if (k % 8 == 0) sched_yield();
        for (int i = 0; i < 41; i++) seen = seen * 31 + (i < 13 ? local[i] : 0);
        end = to;
        seen += same + ((char *)end - (char *)filled);
    }
    stop = 1;
    pthread_join(t, 0);
    printf("%d\n", seen != 0);
    return 0;
}

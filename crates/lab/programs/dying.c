// Dies with known registers, of a fault or of a signal that was sent. With another argument it does so while there
// are other threads, or ("aside") in a thread other than the first.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <pthread.h>
#include <unistd.h>

static const char vector[16] = "registers' truth";

__attribute__((noinline)) void dies(long *address) {
    asm volatile("movdqu %1, %%xmm13\n\t"
                 "mov $0x1234567890, %%rbx\n\t"
                 "mov $0x1111, %%r10\n\t"
                 "mov $0x2222, %%r11\n\t"
                 "mov $0x3333, %%r15\n\t"
                 "movq $77, (%0)\n"
                 "here: nop\n\t" ::"r"(address), "m"(vector)
                 : "rbx", "r10", "r11", "r15", "memory");
}

static volatile int ready;
static volatile long never;

// Where it is and what it holds, whenever somebody looks.
__attribute__((noinline)) void spins(const char *bytes) {
    asm volatile("movdqu %1, %%xmm13\n\t"
                 "mov $0x1717, %%r10\n\t"
                 "mov $0x1818, %%r11\n\t"
                 "mov $0x9876543210, %%rbx\n\t"
                 "lock incl %0\n\t"
                 "1: jmp 1b\n\t"
                 : "+m"(ready) : "m"(vector) : "rbx", "r10", "r11", "memory");
}

static void *spinning(void *unused) {
    spins(vector);
    return NULL;
}

// In a loop of many instructions.
__attribute__((noinline)) void counts(void) {
    __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;) never += never * 3 + 1;
}

static void *counting(void *unused) {
    counts();
    return NULL;
}

static void *waiting(void *ends) {
    char c;
    asm volatile("mov $0x5555, %%r15" ::: "r15");
    __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
    read(*(int *)ends, &c, 1);
    return NULL;
}

static void others(void) {
    int ends[2];
    pthread_t t;
    pipe(ends);
    pthread_create(&t, NULL, spinning, NULL);
    pthread_create(&t, NULL, counting, NULL);
    pthread_create(&t, NULL, waiting, ends);
    while (ready < 3) usleep(1000);
    usleep(20000);
}

static void *aside(void *address) {
    while (ready < 4) usleep(1000);
    dies(address);
    return NULL;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 2) others();
    if (argc > 2 && !strcmp(argv[2], "aside")) {
        pthread_t t;
        pthread_create(&t, NULL, aside, (void *)0x4440);
        spins(vector);
    }
    if (argc > 1 && !strcmp(argv[1], "fault")) dies((long *)0x4440);
    if (argc > 1) abort();
    return 0;
}

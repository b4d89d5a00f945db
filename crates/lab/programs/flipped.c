// A page of code becomes writable while threads have it, and changes at a place that nobody has executed since. One
// thread is the first to come there. Another one follows without a look at what has changed, because all that it
// executes is linked.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int function(void);
enum { ROUNDS = 5 };
static struct {
    volatile int phase;
    unsigned char *volatile called;
    int seen[ROUNDS];
} threads[2];

// mov eax, n; ret
static void emit(unsigned char *at, unsigned char n) {
    const unsigned char code[] = {0xb8, n, 0, 0, 0, 0xc3};
    memcpy(at, code, sizeof code);
}

// Waits without many instructions: those that pass without an event are counted.
static void rest(void) { __asm__ volatile(".rept 200\n pause\n .endr"); }

static int call(void *at) { return ((function *)at)(); }

static void *calls(void *arg) {
    int t = (long)arg;
    for (int i = 0; i < ROUNDS; i++) {
        while (threads[t].phase != 2 * i)
            rest();
        threads[t].seen[i] = ((function *)threads[t].called)();
        threads[t].phase = 2 * i + 1;
    }
    for (int i = 0; i < ROUNDS; i++)
        lseek(-1, threads[t].seen[i], SEEK_SET);
    return arg;
}

// Has a thread call it.
static void has(int t, int i, unsigned char *at) {
    threads[t].called = at;
    threads[t].phase = 2 * i;
    while (threads[t].phase == 2 * i)
        rest();
}

int main(void) {
    const int rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;
    unsigned char *page = mmap(0, 2 * 4096, rw | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *other = page + 4096;
    emit(page, 1), emit(page + 256, 2), emit(other, 3), emit(other + 512, 4);
    mprotect(page, 4096, rx);
    int sum = call(page) + call(page + 256) + call(other);
    pthread_t t[2];
    for (long i = 0; i < 2; i++) {
        threads[i].phase = -1;
        pthread_create(&t[i], 0, calls, (void *)i);
    }
    for (int i = 0; i < 3; i++)
        has(0, i, page), has(1, i, page);
    mprotect(page, 4096, rw | PROT_EXEC);
    sum = sum * 10 + call(page + 256);
    // Code that is new to all: they take note of what has changed until now.
    has(0, 3, other + 512), has(1, 3, other + 512);
    emit(other, 5);
    sum = sum * 10 + call(other);
    emit(page, 6);
    has(0, 4, page), has(1, 4, page);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("%d %d %d\n", sum, threads[0].seen[4], threads[1].seen[4]);
    return 0;
}

// Loops that read vectors in pairs: over the end of readable memory, with a handler that changes what they read, and
// beside a thread that changes it.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 6 };

static uint8_t *memory;
static int faults;
static volatile int ticks;
static volatile int stop;
extern char first_sse[], second_sse[], first_avx[], second_avx[];

// Sums of the halves of a pair of vectors, so that a value in the wrong one shows.
struct sums {
    uint64_t v[8];
};

// The upper one is read first.
__attribute__((noinline)) static void sse(const uint8_t *from, uint64_t n, struct sums *out) {
    __asm__ volatile("pxor %%xmm2, %%xmm2\npxor %%xmm3, %%xmm3\n"
                     "1:\nfirst_sse: movdqu 16(%0), %%xmm0\n"
                     "second_sse: movdqu (%0), %%xmm1\n"
                     "add $32, %0\n"
                     "paddq %%xmm0, %%xmm2\npaddq %%xmm1, %%xmm3\n"
                     "dec %1\njne 1b\n"
                     "movdqu %%xmm2, (%2)\nmovdqu %%xmm3, 16(%2)\n"
                     : "+r"(from), "+r"(n)
                     : "r"(out)
                     : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

// The address is moved on between the two, and the second one is an operand.
__attribute__((noinline)) static void avx(const uint8_t *from, uint64_t n, struct sums *out) {
    __asm__ volatile("vpxor %%xmm2, %%xmm2, %%xmm2\nvpxor %%xmm3, %%xmm3, %%xmm3\n"
                     "1:\nfirst_avx: vpaddq (%0), %%ymm2, %%ymm2\n"
                     "add $64, %0\n"
                     "second_avx: vpaddq -32(%0), %%ymm3, %%ymm3\n"
                     "dec %1\njne 1b\n"
                     "vmovdqu %%ymm2, (%2)\nvmovdqu %%ymm3, 32(%2)\nvzeroupper\n"
                     : "+r"(from), "+r"(n)
                     : "r"(out)
                     : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

// Reads of memory that may have the same cells as what lies between.
__attribute__((noinline)) static void two(const uint8_t *from, uint64_t n, const uint8_t *other, struct sums *out) {
    __asm__ volatile("pxor %%xmm2, %%xmm2\npxor %%xmm3, %%xmm3\n"
                     "1: movdqu (%0), %%xmm0\n"
                     "movdqu (%2), %%xmm1\n"
                     "paddq %%xmm1, %%xmm2\n"
                     "movdqu 16(%0), %%xmm1\n"
                     "paddq %%xmm0, %%xmm2\npaddq %%xmm1, %%xmm3\n"
                     "movdqu 16(%2), %%xmm1\n"
                     "add $32, %0\nadd $32, %2\n"
                     "paddq %%xmm1, %%xmm3\n"
                     "dec %1\njne 1b\n"
                     "movdqu %%xmm2, (%3)\nmovdqu %%xmm3, 16(%3)\n"
                     : "+r"(from), "+r"(n), "+r"(other)
                     : "r"(out)
                     : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

// Moves that demand an aligned address.
__attribute__((noinline)) static void aligned(const uint8_t *from, uint64_t n, struct sums *out, uint64_t step) {
    __asm__ volatile("vpxor %%xmm2, %%xmm2, %%xmm2\n"
                     "1:\nfirst_aligned: vmovaps (%0), %%ymm0\n"
                     "vmovaps 32(%0), %%ymm1\n"
                     "vpaddq %%ymm0, %%ymm2, %%ymm2\nvpaddq %%ymm1, %%ymm2, %%ymm2\n"
                     "add %3, %0\n"
                     "dec %1\njne 1b\n"
                     "vmovdqu %%ymm2, (%2)\nvzeroupper\n"
                     : "+r"(from), "+r"(n)
                     : "r"(out), "r"(step)
                     : "xmm0", "xmm1", "xmm2", "memory");
}

static void show(const char *what, const struct sums *s) {
    printf("%s:", what);
    for (int i = 0; i < 8; i++)
        printf(" %llx", (unsigned long long)s->v[i]);
    printf("\n");
}

static void fault(int sig, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    char *at = (char *)u->uc_mcontext.gregs[REG_RIP];
    const char *where = at == first_sse    ? "first of sse"
                        : at == second_sse ? "second of sse"
                        : at == first_avx  ? "first of avx"
                        : at == second_avx ? "second of avx"
                                           : "elsewhere";
    uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    const uint32_t *x = (const uint32_t *)&u->uc_mcontext.fpregs->_xmm[2];
    printf("signal %d at the %s, address %lx, xmm2 %x %x\n", sig, where,
           (long)((uint8_t *)info->si_addr - memory), x[0], x[3]);
    faults++;
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    memset(page, 0x11 * faults, 64);
}

static void tick(int sig) {
    (void)sig;
    ticks++;
    for (int i = 0; i < PAGE * PAGES; i += 24)
        memory[i]++;
}

static void *change(void *unused) {
    (void)unused;
    for (uint64_t n = 1; !stop; n++)
        for (int i = 0; i < PAGE; i += 8)
            *(volatile uint64_t *)(memory + PAGE + i) = n * 0x0101010101010101;
    return NULL;
}

typedef void Loop(const uint8_t *, uint64_t, struct sums *);

// In a process of its own, with two pages that cannot be read.
static void with_faults(const char *name, Loop *loop, int from, uint64_t n) {
    fflush(stdout);
    if (fork() == 0) {
        struct sums s = {0};
        mprotect(memory + 2 * PAGE, PAGE, PROT_NONE);
        mprotect(memory + 4 * PAGE, PAGE, PROT_NONE);
        // Until the loop has been translated as one that leads to its beginning.
        loop(memory, 4, &s);
        loop(memory + from, n, &s);
        show(name, &s);
        printf("%d faults\n", faults);
        fflush(stdout);
        _exit(0);
    }
    int status;
    wait(&status);
}

static void all_faults(const char *name, Loop *loop, int step) {
    for (int shift = 0; shift <= step; shift += step / 2)
        with_faults(name, loop, shift, (PAGES - 1) * PAGE / step);
    // Only the lower one cannot be read.
    with_faults(name, loop, 3 * PAGE - step / 2, 9);
    // Both can, up to the last byte.
    with_faults(name, loop, PAGE, PAGE / step);
    with_faults(name, loop, 3 * PAGE, PAGE / step);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int has_avx2 = __builtin_cpu_supports("avx2");
    memory = mmap(NULL, PAGE * PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PAGE * PAGES; i++)
        memory[i] = i * 7 + i / 256;
    struct sums s = {0};
    if (!strcmp(what, "faults")) {
        struct sigaction a = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &a, NULL);
        all_faults("sse", sse, 32);
        if (has_avx2)
            all_faults("avx", avx, 64);
        return 0;
    }
    if (!strcmp(what, "dies")) {
        mprotect(memory + 3 * PAGE, PAGE, PROT_NONE);
        sse(memory + 16, 2 * PAGES * PAGE / 32, &s);
    }
    if (!strcmp(what, "cells")) {
        size_t apart = (size_t)1 << 32;
        uint8_t *a = mmap(NULL, apart + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memset(a, 1, PAGE);
        memset(a + apart, 2, PAGE);
        for (int round = 0; round < 3; round++) {
            two(a, PAGE / 32, a + apart, &s);
            show("two", &s);
        }
        return 0;
    }
    if (!strcmp(what, "aligned")) {
        if (has_avx2)
            aligned(memory + 32, 9, &s, 64);
        show("aligned", &s);
        fflush(stdout);
        // Not the first time around.
        aligned(memory + 32, 9, &s, 16);
        show("not aligned", &s);
        return 0;
    }
    pthread_t t;
    if (!strcmp(what, "ticks")) {
        struct sigaction a = {.sa_handler = tick};
        sigaction(SIGALRM, &a, NULL);
        struct itimerval often = {{0, 2000}, {0, 2000}};
        setitimer(ITIMER_REAL, &often, NULL);
    } else {
        pthread_create(&t, NULL, change, NULL);
    }
    struct sums sum = {0};
    for (int round = 0; round < 3000 || (!strcmp(what, "ticks") && ticks < 50); round++) {
        sse(memory + 16, (PAGES - 1) * PAGE / 32, &s);
        if (has_avx2)
            avx(memory + 8, (PAGES - 1) * PAGE / 64, &s);
        for (int i = 0; i < 8; i++)
            sum.v[i] = sum.v[i] * 31 + s.v[i];
    }
    if (!strcmp(what, "ticks")) {
        struct itimerval never = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &never, NULL);
    } else {
        stop = 1;
        pthread_join(t, NULL);
    }
    // Not the same in two runs; that replay comes to the same is verified.
    fprintf(stderr, "%llx\n", (unsigned long long)(sum.v[0] ^ sum.v[7]));
    printf("done\n");
    return 0;
}

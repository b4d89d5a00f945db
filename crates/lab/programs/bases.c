// A program that sets the bases of segments by itself, as sandboxes and runtimes do.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HWCAP2_FSGSBASE 2
#define ARCH_SET_GS 0x1001

static __thread uint64_t current;
static sigjmp_buf back;

static void wrong(int signal) {
    siglongjmp(back, signal);
}

// The check, the instruction and what follows stand as compilers leave them.
__attribute__((noinline)) static uint64_t enter(const uint64_t *memory) {
    if (current != (uint64_t)memory) {
        current = (uint64_t)memory;
        __asm__ volatile("wrgsbase %0" ::"r"(memory));
    }
    uint64_t v;
    __asm__ volatile("movq %%gs:8, %0" : "=r"(v));
    return v;
}

static void *work(void *name) {
    static const uint64_t memory[3][4] = {{1, 20, 3, 4}, {5, 60, 7, 8}, {9, 100, 11, 12}};
    uint64_t sum = 0, v, w, flags;
    for (int i = 0; i < 3000; i++) sum += enter(memory[i / 4 % 3]) * (i & 7);
    __asm__ volatile("rdgsbase %0" : "=r"(v));
    printf("%s: %lu, last %d\n", (char *)name, sum, (int)((const uint64_t(*)[4])v - memory));

    // Flags pass.
    __asm__ volatile("stc\n wrgsbase %2\n setc %b1\n movq %%gs:16, %0"
                     : "=r"(v), "=q"(flags)
                     : "r"(memory[1])
                     : "cc");
    printf("%lu %d\n", v, (int)(flags & 1));

    // The base of thread-local storage, for moments, and back.
    __asm__ volatile("rdfsbase %%rcx\n wrfsbase %2\n movq %%fs:8, %0\n addq %%fs:24, %0\n wrfsbase %%rcx\n"
                     "movq %%fs:0, %1\n sub %%rcx, %1"
                     : "=&r"(v), "=&r"(w)
                     : "r"(memory[2])
                     : "rcx", "cc");
    printf("%lu %lu\n", v, w);

    // Half of a register; by a system call; where nothing can be.
    __asm__ volatile("wrgsbase %k1\n rdgsbase %0" : "=r"(v) : "r"(0xffffffff80001234));
    printf("%lx\n", v);
    syscall(SYS_arch_prctl, ARCH_SET_GS, memory[0]);
    __asm__ volatile("movq %%gs:24, %0\n rdgsbase %k1" : "=r"(v), "=r"(w));
    printf("%lu %d\n", v, w == (uint32_t)(uint64_t)memory[0]);
    int signal = sigsetjmp(back, 1);
    if (!signal) __asm__ volatile("wrgsbase %0" ::"r"(0x8000000000000000));
    __asm__ volatile("movq %%gs:0, %0" : "=r"(v));
    printf("signal %d, then %lu\n", signal, v);
    return 0;
}

int main(void) {
    if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE)) {
        puts("the kernel does not allow it");
        return 0;
    }
    struct sigaction a = {.sa_handler = wrong};
    sigaction(SIGSEGV, &a, 0);
    work("alone");
    pthread_t t;
    pthread_create(&t, 0, work, "thread");
    pthread_join(t, 0);
    return 0;
}

// An allocator of its own, linked with a part of glibc: before a block stands what glibc never has there. Checks that nothing of a block
// changes that the program has written, and that a stack which the program has written is left alone.

#define _GNU_SOURCE
#include <gnu/libc-version.h>
#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Set: the next call of `malloc` leaves by a jump.
static jmp_buf out;
static volatile int leaves;

static char pool[8 << 20] __attribute__((aligned(4096)));
static size_t taken;

static void *block(size_t align, size_t n)
{
    taken = (taken + 16 + align - 1) / align * align;
    char *p = pool + taken;
    taken += n;
    // Where glibc has the size of the block.
    memset(p - 16, 0, 16);
    return p;
}

void *malloc(size_t n)
{
    if (leaves) {
        leaves = 0;
        longjmp(out, 1);
    }
    return block(16, n);
}

void free(void *p)
{
    (void)p;
}

void *calloc(size_t n, size_t of)
{
    return memset(block(16, n * of), 0, n * of);
}

void *realloc(void *p, size_t n)
{
    void *q = block(16, n);
    if (p)
        memcpy(q, p, n < 64 ? n : 64);
    return q;
}

void *memalign(size_t align, size_t n)
{
    return block(align < 16 ? 16 : align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

static int all(const char *p, char value, size_t n)
{
    while (n && *p == value)
        p++, n--;
    return !n;
}

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "wrong: %s\n", what);
        _exit(3);
    }
}

static void *nothing(void *unused)
{
    return unused;
}

// The block comes from elsewhere if the call does not return: both ways meet behind the call.
__attribute__((noinline)) static char *either(char *other)
{
    char *p;
    if (setjmp(out)) {
        // Straight to behind the call: its return address still stands below.
        __asm__ volatile("mov %1, %%rax\n\tjmp 1f" : "=a"(p) : "r"(other));
    }
    __asm__ volatile("mov $100, %%edi\n\tcall malloc\n1:"
                     : "=a"(p)
                     :
                     : "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory");
    return p;
}

int main(void)
{
    static char other[100];
    must(gnu_get_libc_version()[0] != 0, "version");
    char *p = realloc(malloc(64), 64);
    memset(p, 7, 64);
    p = realloc(p, 64);
    must(all(p, 7, 64), "realloc keeps");

    memset(other, 7, sizeof other);
    leaves = 1;
    p = either(other);
    must(p == other && all(other, 7, sizeof other), "a block of a call that was left");

    // A program that wants to know how much of a stack is used.
    size_t size = 256 << 10;
    char *stack = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    memset(stack, 0x5a, size);
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstack(&a, stack, size);
    pthread_t t;
    pthread_create(&t, &a, nothing, 0);
    pthread_join(t, 0);
    must(all(stack, 0x5a, size - (48 << 10)), "a stack that was written");
    puts("right");
    return 0;
}

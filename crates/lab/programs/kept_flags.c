/* Flags between the instruction that sets them and an indirect branch, after reads. A fault's handler sees them, a
   timer's handler does, and so does the branch's target. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

enum { STATUS = 0x8d5 };
static volatile long good[4] = {1, 2, 3, 4};
static volatile long faults, at_fault, ticks;
static volatile long wrong;

static void mend(int s, siginfo_t *i, void *c) {
    greg_t *r = ((ucontext_t *)c)->uc_mcontext.gregs;
    faults++;
    at_fault = r[REG_EFL] & STATUS;
    r[REG_RSI] = (long)good;
}
static void tick(int s, siginfo_t *i, void *c) {
    ticks++;
}

/* Computes flags from a and b, reads memory through rsi, and reads the flags where an indirect branch leads. */
#define WAYS(name, text)                                                                                       \
    static __attribute__((noinline)) uint64_t name(uint64_t a, uint64_t b, const long *from, int way) {       \
        uint64_t f = 0, way_ = way;                                                                           \
        __asm__ volatile(                                                                                      \
            "test %[way], %[way]\n jnz 2f\n"                                                                   \
            "lea 1f(%%rip), %%rdx\n push %%rdx\n" text "\n mov (%%rsi), %%r8\n mov 8(%%rsi), %%r9\n"           \
            "mov %%r8, %%r10\n mov 16(%%rsi), %%r11\n ret\n"                                                   \
            "2: lea 1f(%%rip), %%rdx\n" text "\n mov (%%rsi), %%r8\n movdqu (%%rsi), %%xmm0\n"                 \
            "lea 8(%%rdx), %%r9\n movdqa %%xmm0, %%xmm1\n jmp *%%rdx\n"                                        \
            "1: pushfq\n pop %[f]\n"                                                                           \
            : [f] "=&r"(f), "+a"(a), "+b"(b), "+S"(from), [way] "+r"(way_)                                     \
            :                                                                                                  \
            : "rdx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "memory", "cc");                                \
        return f & STATUS;                                                                                     \
    }
WAYS(add8, "add $0x7f, %%al")
WAYS(add32, "add $-5, %%eax")
WAYS(add64, "add $0x12345678, %%rax")
WAYS(sub16, "sub $0x1234, %%ax")
WAYS(sub64, "sub $-128, %%rbx")
WAYS(cmp32, "cmp $77, %%eax")
WAYS(cmp64, "cmp $-1, %%rax")
WAYS(cmp8, "cmp $0x80, %%bl")
WAYS(high, "add $3, %%ah")
WAYS(and32, "and %%ebx, %%eax")
WAYS(xor8, "xor $0x55, %%al")
WAYS(test64, "test %%rax, %%rax")
WAYS(test2, "test %%rbx, %%rax")
WAYS(addr, "add %%rbx, %%rax")
WAYS(inc, "stc\n inc %%eax")
WAYS(shl, "shl $3, %%rax")
WAYS(bt, "bt $5, %%rax")
WAYS(neg, "neg %%eax")
WAYS(mul, "imul %%rbx, %%rax")
WAYS(changed, "add $9, %%eax\n mov %%ebx, %%eax")
WAYS(partly, "add $9, %%eax\n mov $7, %%al")
WAYS(carry, "clc\n adc $9, %%rax")
WAYS(cx, "cmp $9, %%rbx\n movzbl %%bl, %%ebx")

#define ALL(X) X(add8) X(add32) X(add64) X(sub16) X(sub64) X(cmp32) X(cmp64) X(cmp8) X(high) X(and32) X(xor8) \
    X(test64) X(test2) X(addr) X(inc) X(shl) X(bt) X(neg) X(mul) X(changed) X(partly) X(carry) X(cx)

int main(void) {
    static const uint64_t values[] = {0, 1, 77, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff,
                                      0x8000000000000000, ~0ull, 0x123456789abcdef0, 0x1234};
    enum { N = sizeof values / sizeof *values };
    struct sigaction a = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    const long *bad = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#define RUN(f)                                                                                                \
    {                                                                                                         \
        uint64_t sum = 0;                                                                                     \
        for (int i = 0; i < N; i++)                                                                           \
            for (int k = 0; k < N; k++)                                                                       \
                for (int way = 0; way < 4; way++) {                                                           \
                    at_fault = 0;                                                                             \
                    good[0] = i * k + way;                                                                    \
                    uint64_t x = f(values[i], values[k], way & 2 ? bad : (const long *)good, way & 1);                      \
                    if (way & 2 && x != at_fault) wrong++;                                                    \
                    sum = sum * 31 + x;                                                                       \
                }                                                                                             \
        printf(#f " %016lx %ld %ld\n", sum, faults, wrong);                                                   \
    }
    ALL(RUN)
    /* A timer in the middle of it. */
    a.sa_sigaction = tick;
    a.sa_flags |= SA_RESTART;
    sigaction(SIGALRM, &a, 0);
    struct itimerval t = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &t, 0);
    uint64_t first[64] = {0}, n = 0;
#define AGAIN(f)                                                                                              \
    {                                                                                                         \
        for (int i = 0; i < 3000; i++) {                                                                      \
            good[0] = i;                                                                                      \
            uint64_t x = f(values[3], values[7], (const long *)good, i & 1);                                                \
            if (i < 2) first[i] = x;                                                                          \
            else if (x != first[i & 1]) wrong++;                                                              \
        }                                                                                                     \
    }
    while (ticks < 20) { ALL(AGAIN) }
    t.it_value.tv_usec = t.it_interval.tv_usec = 0;
    setitimer(ITIMER_REAL, &t, 0);
    printf("%ld\n", wrong);
    return 0;
}

// Handlers that change what they return to: registers, flags, vectors, stack, everything.
#define _GNU_SOURCE
#include <cpuid.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

static void act(int signo, void *handler, int flags) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(signo, &sa, NULL);
}

static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
uint64_t seen[18], after[17] __attribute__((used));

static void all_registers(int signo, siginfo_t *info, void *context) {
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    for (int i = 0; i < 16; i++) {
        seen[i] = g[order[i]];
        if (order[i] != REG_RSP && order[i] != REG_RBP) g[order[i]] = 0x1111111111111111ULL * i;
    }
    seen[16] = g[REG_EFL];
    seen[17] = g[REG_CSGSFS];
    g[REG_EFL] ^= 0x8d5 | 0x400;
    g[REG_RIP] += 2;
}

static void general(void) {
    act(SIGILL, all_registers, 0);
    __asm__ volatile(
        "push %%rbp; push %%rbx; mov %%rsp, %0;"
        "mov $1, %%eax; mov $2, %%ecx; mov $3, %%edx; mov $4, %%ebx; mov $5, %%esi; mov $6, %%edi;"
        "mov $7, %%r8d; mov $8, %%r9d; mov $9, %%r10d; mov $10, %%r11d; mov $11, %%r12d; mov $12, %%r13d;"
        "mov $13, %%r14d; mov $14, %%r15d; cmp %%eax, %%ecx; ud2;"
        "mov %%rax, after(%%rip); mov %%rcx, after+8(%%rip); mov %%rdx, after+16(%%rip);"
        "mov %%rbx, after+24(%%rip); mov %%rsi, after+48(%%rip);"
        "mov %%rdi, after+56(%%rip); mov %%r8, after+64(%%rip); mov %%r9, after+72(%%rip);"
        "mov %%r10, after+80(%%rip); mov %%r11, after+88(%%rip); mov %%r12, after+96(%%rip);"
        "mov %%r13, after+104(%%rip); mov %%r14, after+112(%%rip); mov %%r15, after+120(%%rip);"
        "pushfq; popq after+128(%%rip); cld; pop %%rbx; pop %%rbp"
        : "=m"(seen[0])::"rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
          "memory", "cc");
    for (int i = 0; i < 16; i++)
        if (i != 4 && i != 5) printf("%d: %lx %lx\n", i, seen[i], after[i]);
    printf("flags %lx %lx segments %lx\n", seen[16], after[16], seen[17]);
}

static uint32_t component(unsigned n, uint32_t *size) {
    unsigned a, b, c, d;
    __cpuid_count(0xd, n, a, b, c, d);
    *size = a;
    return b;
}

static void vectors_handler(int signo, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    unsigned char *x = (void *)u->uc_mcontext.fpregs;
    uint32_t *sw = (uint32_t *)(x + 464);
    uint64_t bv = *(uint64_t *)(x + 512);
    printf("extended %d, flags %lx\n", sw[0] == FP_XSTATE_MAGIC1, u->uc_flags);
    uint32_t n, at;
    for (int c = 2; c < 8; c++) {
        if (!(*(uint64_t *)(sw + 2) >> c & 1) || c == 3 || c == 4) continue;
        at = component(c, &n);
        unsigned sum = 0;
        if (bv >> c & 1) {
            for (uint32_t i = 0; i < n; i++) sum = sum * 31 + x[at + i];
            for (uint32_t i = 0; i < n; i++) x[at + i] ^= 0x5a;
        }
        printf("component %d: %x\n", c, sum);
    }
    for (int i = 160; i < 416; i++) x[i] += i;
    u->uc_mcontext.gregs[REG_RIP] += 2;
    // The handler's own use of the registers leaves no traces.
    __asm__ volatile("vpternlogd $255, %%zmm17, %%zmm17, %%zmm17; vpternlogd $255, %%zmm31, %%zmm31, %%zmm31; kxnorq "
                     "%%k7, %%k7, %%k7" ::: "memory");
}

__attribute__((target("avx512f,avx512bw"))) static void vectors(void) {
    static unsigned char in[32 * 64], out[32 * 64];
    static uint64_t masks[8];
    for (int i = 0; i < 32 * 64; i++) in[i] = i * 7 + i / 64;
    act(SIGILL, vectors_handler, 0);
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) \
    F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29) F(30) F(31)
#define LOAD(n) "vmovdqu64 64*" #n "(%0), %%zmm" #n ";"
#define STORE(n) "vmovdqu64 %%zmm" #n ", 64*" #n "(%1);"
#define MASKS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define LOADK(n) "kmovq 8*" #n "(%0), %%k" #n ";"
#define STOREK(n) "kmovq %%k" #n ", 8*" #n "(%2);"
    __asm__ volatile(EACH(LOAD) MASKS(LOADK) "ud2;" EACH(STORE) MASKS(STOREK)
                     :
                     : "r"(in), "r"(out), "r"(masks)
                     : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",
                       "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29",
                       "xmm30", "xmm31");
    for (int i = 0; i < 32; i++) {
        unsigned sum = 0;
        for (int j = 0; j < 64; j++) sum = sum * 31 + out[64 * i + j];
        printf("zmm%d %x\n", i, sum);
    }
    for (int i = 0; i < 8; i++) printf("k%d %lx\n", i, masks[i]);
}

static void x87_handler(int signo, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    unsigned char *x = (void *)u->uc_mcontext.fpregs;
    printf("x87: control %x status %x tags %x\n", *(uint16_t *)x, *(uint16_t *)(x + 2), x[4]);
    *(uint16_t *)x = 0x27f;                    // double precision
    *(uint32_t *)(x + 24) = 0x1f80 | 3 << 13;  // towards zero
    uint64_t one[2] = {0xc000000000000000ULL, 0x3fff};  // 1.5
    memcpy(x + 32, one, 10);
    u->uc_mcontext.gregs[REG_RIP] += 2;
}

static void x87(void) {
    act(SIGILL, x87_handler, 0);
    double top;
    uint16_t control;
    __asm__ volatile("fninit; fldpi; fld1; ud2; fstpl %0; fstp %%st(0); fnstcw %1; fninit" : "=m"(top), "=m"(control));
    printf("top %g control %x mxcsr %x\n", top, control, _mm_getcsr());
    _mm_setcsr(0x1f80);
}

// A handler that has the program call a function before it goes on, as Go's preemption does.
__attribute__((used)) volatile long calls, ticks;
__attribute__((naked, used)) static void called(void) {
    __asm__("pushfq; push %rax; mov calls(%rip), %rax; inc %rax; mov %rax, calls(%rip); pop %rax; popfq; ret $128");
}
static void preempt(int signo, siginfo_t *info, void *context) {
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    ticks++;
    // Over the red zone.
    uint64_t *sp = (uint64_t *)(g[REG_RSP] - 128);
    *--sp = g[REG_RIP];
    g[REG_RSP] = (greg_t)sp;
    g[REG_RIP] = (greg_t)called;
}
static void injected_calls(void) {
    act(SIGALRM, preempt, SA_RESTART);
    struct itimerval t = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &t, NULL);
    uint64_t sum = 1;
    while (calls < 100)
        for (int i = 0; i < 1000; i++) sum = sum * 6364136223846793005ULL + i;
    memset(&t, 0, sizeof t);
    setitimer(ITIMER_REAL, &t, NULL);
    printf("injected %d\n", ticks == calls && sum != 0);
}

// A frame that no signal made: the context is that of an earlier handler, moved and changed.
static ucontext_t kept;
static unsigned char kept_fp[8192] __attribute__((aligned(64)));
static void keep(int signo, siginfo_t *info, void *context) {
    kept = *(ucontext_t *)context;
    unsigned size = ((uint32_t *)kept.uc_mcontext.fpregs)[117];
    if (((uint32_t *)kept.uc_mcontext.fpregs)[116] != FP_XSTATE_MAGIC1) size = 512;
    memcpy(kept_fp, kept.uc_mcontext.fpregs, size);
}
__attribute__((noinline, noreturn)) static void go(void *sp) {
    __asm__ volatile("mov %0, %%rsp; mov $15, %%eax; syscall; ud2" ::"r"(sp));
    __builtin_unreachable();
}
static volatile int arrived;
static sigjmp_buf home;
__attribute__((used)) static void landing(long a, long b) {
    double d;
    __asm__ volatile("movsd %%xmm3, %0" : "=m"(d));
    printf("landed with %ld %ld, xmm3 %g, stack aligned %d\n", a, b, d, ((uintptr_t)__builtin_frame_address(0) & 15) == 0);
    arrived++;
    siglongjmp(home, 1);
}
static void handmade(int with_fp) {
    static char stack[65536] __attribute__((aligned(64)));
    act(SIGUSR1, keep, 0);
    raise(SIGUSR1);
    struct { uint64_t back; ucontext_t uc; siginfo_t info; } *frame = (void *)(stack + 16);
    // Only the kernel's part of ucontext_t: 304 bytes.
    memcpy(&frame->uc, &kept, 304);
    greg_t *g = frame->uc.uc_mcontext.gregs;
    g[REG_RIP] = (greg_t)landing;
    g[REG_RSP] = (greg_t)(stack + 60008);
    g[REG_RDI] = 11, g[REG_RSI] = 22;
    double d = 2.75;
    memcpy(kept_fp + 160 + 48, &d, 8);
    *(uint64_t *)(kept_fp + 512) |= 2;
    frame->uc.uc_mcontext.fpregs = with_fp ? (void *)kept_fp : NULL;
    if (!sigsetjmp(home, 1)) go(&frame->uc);
    printf("home %d\n", arrived);
}

static ucontext_t main_context, other_context;
static int hops;
static void other_side(void) {
    for (int i = 0; i < 5; i++) {
        hops++;
        swapcontext(&other_context, &main_context);
    }
}
static void from_handler(int signo, siginfo_t *info, void *context) { setcontext(&main_context); }
static void contexts(void) {
    static char stack[65536];
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = stack;
    other_context.uc_stack.ss_size = sizeof stack;
    other_context.uc_link = &main_context;
    makecontext(&other_context, other_side, 0);
    for (int i = 0; i < 5; i++) swapcontext(&main_context, &other_context);
    act(SIGUSR2, from_handler, 0);
    volatile int times = 0;
    getcontext(&main_context);
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("hops %d times %d blocked %d\n", hops, times, sigismember(&now, SIGUSR2));
    if (times++ < 3) raise(SIGUSR2);
}

static void bad_frame(int signo, siginfo_t *info, void *context) {
    printf("bad frame: %d %d %p\n", signo, info->si_code, info->si_addr);
    siglongjmp(home, 1);
}
static void spoil(int signo, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    if (arrived == 10) u->uc_mcontext.gregs[REG_RIP] = 0x800000000000;
    if (arrived == 11) *(uint32_t *)((char *)u->uc_mcontext.fpregs + 24) |= 0xffff0000;
    if (arrived == 12) u->uc_mcontext.fpregs = (void *)0x10;
    if (arrived == 13) ((uint16_t *)&u->uc_mcontext.gregs[REG_CSGSFS])[0] = 0x1b;
    if (arrived == 14) u->uc_mcontext.gregs[REG_EFL] |= 0x3000 | 0x20000;
    if (arrived == 15) u->uc_mcontext.gregs[REG_RIP] = 0x10;
}
static void spoiled(void) {
    act(SIGSEGV, bad_frame, SA_NODEFER);
    act(SIGBUS, bad_frame, SA_NODEFER);
    act(SIGUSR1, spoil, 0);
    for (arrived = 10; arrived < 16; arrived++) {
        if (arrived == 13) continue;
        if (!sigsetjmp(home, 1)) {
            raise(SIGUSR1);
            uint64_t f;
            __asm__ volatile("pushfq; popq %0" : "=r"(f));
            printf("no complaint of %d, flags %lx\n", arrived, f & ~0x8d5);
        }
    }
    // The frame cannot be read.
    static char other[65536];
    sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL);
    act(SIGSEGV, bad_frame, SA_NODEFER | SA_ONSTACK);
    if (!sigsetjmp(home, 1)) go((void *)0x1000);
    if (!sigsetjmp(home, 1)) go((void *)0x8000000000000000);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    general();
    if (__builtin_cpu_supports("avx512bw")) vectors();
    x87();
    injected_calls();
    handmade(1);
    handmade(0);
    contexts();
    spoiled();
}

// What handlers of faults are told.
#define _GNU_SOURCE
#include <fcntl.h>
#include <fenv.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static uintptr_t base;
static char *pages;

static void where(uintptr_t a) {
    extern char __executable_start, _end;
    if (a >= (uintptr_t)pages && a < (uintptr_t)pages + 0x10000) printf("page+%lx", a - (uintptr_t)pages);
    else if (a >= (uintptr_t)&__executable_start && a < (uintptr_t)&_end) printf("code");
    else printf("%lx", a);
}

static int is_rip;
static void report(int signo, siginfo_t *info, void *context) {
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    printf("signal %d code %d errno %d addr ", signo, info->si_code, info->si_errno);
    where((uintptr_t)info->si_addr);
    if ((uintptr_t)info->si_addr == g[REG_RIP]) printf(" (rip)");
    printf(" trap %lld err %llx", g[REG_TRAPNO], g[REG_ERR]);
    if (signo == SIGSEGV && g[REG_TRAPNO] == 14) printf(" cr2 %d", g[REG_CR2] == (greg_t)info->si_addr);
    printf("\n");
    siglongjmp(back, 1);
}

#define TRY(what, ...) \
    do { \
        printf("%s: ", what); \
        if (!sigsetjmp(back, 1)) { __VA_ARGS__; printf("nothing\n"); } \
    } while (0)

static void on(int exceptions) {
    fedisableexcept(FE_ALL_EXCEPT);
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(exceptions);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int s = 1; s < 32; s++) {
        struct sigaction sa = {.sa_sigaction = report, .sa_flags = SA_SIGINFO};
        if (s == SIGSEGV || s == SIGBUS || s == SIGFPE || s == SIGILL || s == SIGTRAP) sigaction(s, &sa, NULL);
    }
    pages = mmap(NULL, 0x10000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 0x8000, 0x8000);
    mprotect(pages, 0x1000, PROT_READ), mprotect(pages + 0x1000, 0x1000, PROT_READ | PROT_WRITE);
    pages[0x1ffc] = 1;
    volatile char *p = pages;
    volatile uint64_t *q;
    TRY("read of nothing", p[0x8010]);
    TRY("write of nothing", p[0x8020] = 1);
    TRY("read of PROT_NONE", p[0x3005]);
    TRY("write of PROT_READ", p[5] = 1);
    TRY("null", *(volatile int *)0 = 1);
    TRY("across", q = (void *)(pages + 0x1ffc); *q);
    TRY("write across", q = (void *)(pages + 0x1ffc); *q = 2);
    TRY("non-canonical", *(volatile char *)0x8000000000000000);
    TRY("non-canonical write", *(volatile char *)0x800000000000 = 1);
    TRY("non-canonical stack", __asm__ volatile("push %%rbp; mov $0x8000000000000000, %%rbp; mov (%%rbp), %%rax; pop %%rbp" ::: "rax"));
    TRY("kernel address", *(volatile char *)0xffffffff80000000);
    TRY("string", __asm__ volatile("cld; rep stosb" : : "D"(pages + 0x1f00), "c"(0x300), "a"(7) : "memory"));
    TRY("string read", __asm__ volatile("cld; rep lodsb" : : "S"(pages + 0x1f00), "c"(0x300) : "rax"));
    TRY("vector", _mm_storeu_si128((void *)(pages + 0x1ff8), _mm_setzero_si128()));
    TRY("misaligned", __asm__ volatile("movaps %%xmm0, (%0)" ::"r"(pages + 0x1004)));
    TRY("call of nothing", ((void (*)(void))(pages + 0x8000))());
    TRY("call of data", ((void (*)(void))(pages + 0x1000))());
    TRY("call of null", ((void (*)(void))0)());
    TRY("jump to non-canonical", __asm__ volatile("mov $0x8000000000000000, %%rax; jmp *%%rax" ::: "rax"));
    TRY("call of non-canonical", __asm__ volatile("mov $0x8000000000000000, %%rax; call *%%rax" ::: "rax"));
    TRY("return to non-canonical", __asm__ volatile("mov $0x8000000000000000, %%rax; push %%rax; ret" ::: "rax"));
    TRY("privileged", __asm__ volatile("hlt"));
    TRY("cli", __asm__ volatile("cli"));
    TRY("in", __asm__ volatile("inb $0x80, %%al" ::: "rax"));
    TRY("ud2", __asm__ volatile("ud2"));
    TRY("invalid", __asm__ volatile(".byte 0x06"));
    TRY("invalid vex", __asm__ volatile(".byte 0xc5, 0xf8, 0x04, 0xc0"));
    TRY("lock", __asm__ volatile(".byte 0xf0, 0x01, 0xc0"));
    TRY("int3", __asm__ volatile("int3"));
    TRY("cd 03", __asm__ volatile(".byte 0xcd, 3"));
    TRY("int1", __asm__ volatile(".byte 0xf1"));
    TRY("int 0x2d", __asm__ volatile("int $0x2d"));
    TRY("into memory", __asm__ volatile("int $4"));
    TRY("division", __asm__ volatile("cltd; idivl %1" : : "a"(5), "r"(0) : "edx"));
    TRY("overflow", __asm__ volatile("cltd; idivl %1" : : "a"(0x80000000), "r"(-1) : "edx"));
    volatile double zero = 0, big = 1e308, tiny = 1e-308, three = 3;
    TRY("float division", on(FE_DIVBYZERO); volatile double r = 1 / zero);
    TRY("float invalid", on(FE_INVALID); volatile double r = zero / zero);
    TRY("float overflow", on(FE_OVERFLOW); volatile double r = big * big);
    TRY("float underflow", on(FE_UNDERFLOW); volatile double r = tiny * tiny);
    TRY("float inexact", on(FE_INEXACT); volatile double r = 1 / three);
    on(FE_DIVBYZERO | FE_INVALID);
    TRY("x87 division", volatile long double l = 0; volatile long double r = 1 / l);
    __asm__ volatile("fninit");
    feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    TRY("x87 stack", __asm__ volatile("fninit; fnstcw %0; andw $0xfffe, %0; fldcw %0; fstp %%st(0); fwait" : "=m"(*(short *)(pages + 0x1100))));
    __asm__ volatile("fninit");
    char name[] = "/tmp/hindsight-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    ftruncate(fd, 100);
    char *file = mmap(pages + 0x4000, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    TRY("end of file", file[200] = 1);
    TRY("beyond the file", file[0x1000] = 1);
    TRY("read beyond the file", *(volatile char *)(file + 0x1fff));
    ftruncate(fd, 0);
    TRY("truncated", *(volatile char *)(file + 5));
    mprotect(pages + 0x2000, 0x1000, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(pages + 0x2ffe, "\x48\xb8", 2);
    TRY("code cut off", ((void (*)(void))(pages + 0x2ffe))());
    memcpy(pages + 0x2ff0, "\x90\x90\x90\x0f\x0b", 5);
    TRY("code in a page", ((void (*)(void))(pages + 0x2ff0))());
    TRY("vsyscall read", *(volatile char *)0xffffffffff600000);
    if (__builtin_cpu_supports("avx2")) {
        TRY("gather", __asm__ volatile("vpcmpeqd %%ymm1, %%ymm1, %%ymm1; vpxor %%ymm2, %%ymm2, %%ymm2; vpgatherdd %%ymm1, (%0,%%ymm2,4), %%ymm3" ::"r"(pages + 0x8000) : "xmm1", "xmm2", "xmm3"));
        TRY("masked", __asm__ volatile("vpxor %%ymm1, %%ymm1, %%ymm1; vmaskmovps (%0), %%ymm1, %%ymm3" ::"r"(pages + 0x8000) : "xmm1", "xmm3"));
    }
}

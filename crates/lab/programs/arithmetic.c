/* Floating point of all kinds, flags and modes, time stamps, processor identification. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static sigjmp_buf back;
static void escape(int signo) { siglongjmp(back, signo); }

static uint64_t stamp(void) {
    uint32_t low, high, extra;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(extra));
    return (uint64_t)high << 32 | low;
}

int main(void) {
    volatile long double x = 1.0L;
    for (int i = 1; i < 2000; i++)
        x = sinl(x) * 1.7L + sqrtl((long double)i) / 3.0L;
    printf("%.18Lg\n", x);
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 4; i++) {
        fesetround(modes[i]);
        volatile double third = 1.0, minus = -10.0;
        third /= 3.0;
        printf("%.17g %ld %.17g\n", third, lrint(minus / 4), rint(2.5));
    }
    fesetround(FE_TONEAREST);
    feclearexcept(FE_ALL_EXCEPT);
    volatile double zero = 0, big = 1e308, tiny = 5e-324;
    volatile double results[] = {1 / zero, big * 10, tiny / 3, sqrt(-1 - zero)};
    printf("%g %g %g %d\n", results[0], results[1], results[2], fetestexcept(FE_ALL_EXCEPT));
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
    printf("%g\n", tiny * 4);
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
    signal(SIGFPE, escape);
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_DIVBYZERO);
    if (sigsetjmp(back, 1) == 0)
        printf("%g\n", 3 / zero);
    else
        printf("trapped\n");
    fedisableexcept(FE_ALL_EXCEPT);
    uint64_t before = stamp(), after = stamp();
    struct timespec t, u;
    clock_gettime(CLOCK_MONOTONIC, &t);
    clock_gettime(CLOCK_MONOTONIC, &u);
    int ordered = u.tv_sec > t.tv_sec || (u.tv_sec == t.tv_sec && u.tv_nsec >= t.tv_nsec);
    printf("%d %d\n", after >= before, ordered);
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    printf("%d %.4s\n", a > 6, (char *)&b);
    __cpuid(1, a, b, c, d);
    if (c & bit_RDRND) {
        unsigned long long r;
        unsigned char ok;
        __asm__ volatile("rdrand %0; setc %1" : "=r"(r), "=r"(ok));
        printf("%s\n", ok < 2 ? "random" : "odd");
    } else {
        printf("random\n");
    }
    if (c & bit_OSXSAVE) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        printf("%u\n", low & 3);
        static uint8_t area[16384] __attribute__((aligned(64)));
        __asm__ volatile("xsave %0; xrstor %0" : "+m"(area) : "a"(3), "d"(0) : "memory");
    }
    return 0;
}

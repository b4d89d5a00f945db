/* Saves and restores the whole vector state, at every place in two pages where XSAVE may put it. Counts the registers
   that come back changed. */
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDE __attribute__((target("avx512f,xsavec"), noinline))

WIDE static int wrong_at(char *area) {
    _Alignas(64) unsigned char want[16][64], got[16][64];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 64; j++)
            want[i][j] = (unsigned char)(i * 64 + j + 1);
    /* x87 and protection keys are left out. */
    unsigned low = 0xe6;
    memset(area, 0, 4096);
#define LOAD(n) "vmovdqa64 64*(" #n "-16)(%[w]), %%zmm" #n "\n"
#define CLEAR(n) "vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
#define STORE(n) "vmovdqa64 %%zmm" #n ", 64*(" #n "-16)(%[g])\n"
#define ALL(f) f(16) f(17) f(18) f(19) f(20) f(21) f(22) f(23) f(24) f(25) f(26) f(27) f(28) f(29) f(30) f(31)
    __asm__ volatile(ALL(LOAD) "mov %[low], %%eax\n xor %%edx, %%edx\n xsavec (%[area])\n" ALL(CLEAR)
                     "mov %[low], %%eax\n xor %%edx, %%edx\n xrstor (%[area])\n" ALL(STORE)
                     :
                     : [w] "r"(want), [g] "r"(got), [area] "r"(area), [low] "r"(low)
                     : "eax", "edx", "memory", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22",
                       "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
    int wrong = 0;
    for (int i = 0; i < 16; i++)
        wrong += memcmp(want[i], got[i], 64) != 0;
    return wrong;
}

int main(void) {
    unsigned a, b, c, d;
    __builtin_cpu_init();
    int able = __builtin_cpu_supports("avx512f") && __get_cpuid_count(13, 1, &a, &b, &c, &d) && a & 2;
    if (!able) {
        puts("no AVX-512");
        return 0;
    }
    char *pages = aligned_alloc(4096, 5 * 4096);
    int wrong = 0;
    for (int at = 0; at < 2 * 4096; at += 64)
        wrong += wrong_at(pages + at);
    printf("%d registers changed\n", wrong);
    return wrong != 0;
}

// Uses AVX, and AVX-512 if the processor has it. With AVX-512 the upper halves of registers hold something while instructions
// of AVX and of SSE are executed, and masks and the high registers do so all the time.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint64_t sum;

static void take(const void *p, int n)
{
    for (int i = 0; i < n; i++)
        sum = sum * 31 + ((const uint8_t *)p)[i];
}

static void avx(int round)
{
    float in[8], out[8];
    for (int i = 0; i < 8; i++)
        in[i] = (float)(round + i) / 3;
    __asm__ volatile("vmovups %1, %%ymm0\n\tvmulps %%ymm0, %%ymm0, %%ymm1\n\tvaddps %%ymm0, %%ymm1, %%ymm2\n\t"
                     "vmovups %%ymm2, %0\n\tvzeroupper"
                     : "=m"(out)
                     : "m"(in)
                     : "xmm0", "xmm1", "xmm2");
    take(out, sizeof out);
}

static void avx512(int round)
{
    uint8_t in[64], full[64], merged[64], high[64];
    uint64_t mask = 0x123456789abcdef0u * (uint64_t)(round + 1), back;
    for (int i = 0; i < 64; i++)
        in[i] = (uint8_t)(i * 5 + round);
    __asm__ volatile("vmovdqu64 %5, %%zmm3\n\t"
                     "vmovdqu64 %%zmm3, %%zmm17\n\t"
                     "kmovq %6, %%k2\n\t"
                     // SSE leaves the upper halves alone, AVX zeroes them: of zmm4, not of zmm3.
                     "pxor %%xmm3, %%xmm3\n\t"
                     "vmovdqa64 %%zmm17, %%zmm4\n\t"
                     "vpaddb %%ymm4, %%ymm4, %%ymm4\n\t"
                     "vmovdqu64 %%zmm3, %0\n\t"
                     "vmovdqu64 %%zmm4, %1\n\t"
                     "vzeroupper\n\t"
                     // These outlast it.
                     "vpaddb %%zmm17, %%zmm17, %%zmm17%{%%k2%}\n\t"
                     "vmovdqu64 %%zmm17, %2\n\t"
                     "kmovq %%k2, %3"
                     : "=m"(full), "=m"(merged), "=m"(high), "=r"(back), "+r"(round)
                     : "m"(in), "r"(mask)
                     : "xmm3", "xmm4");
    take(full, 64);
    take(merged, 64);
    take(high, 64);
    take(&back, 8);
}

__attribute__((noinline)) static void round_of(int round)
{
    avx(round);
    if (__builtin_cpu_supports("avx512bw"))
        avx512(round);
    char text[300];
    memset(text, 'a' + round % 26, sizeof text - 1);
    text[sizeof text - 1] = 0;
    sum += strlen(text) + (size_t)(strchr(text, 0) - text);
}

int main(void)
{
    for (int round = 0; round < 200; round++)
        round_of(round);
    printf("%llx\n", (unsigned long long)sum);
    return 0;
}

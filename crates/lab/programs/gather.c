// Gathers, with elements that share cells of a small predictor, and scatters where there are any.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static int32_t table[1 << 20];
static int64_t wide[1 << 18];

__attribute__((target("avx2"))) static int64_t avx2(void) {
    int64_t sum = 0;
    for (int i = 0; i < 20000; i++) {
        __m256i x = _mm256_setr_epi32(i, i * 3, i * 5, i * 7, i + 1024, i * 9, i + 1, i + 2048);
        x = _mm256_and_si256(x, _mm256_set1_epi32(0xfffff));
        __m256i g = _mm256_i32gather_epi32(table, x, 4);
        __m256i some = _mm256_mask_i32gather_epi32(x, table, x, g, 4);
        __m128i low = _mm256_castsi256_si128(x);
        __m128i q = _mm256_i64gather_epi32(table, _mm256_cvtepi32_epi64(low), 4);
        __m256i d = _mm256_i32gather_epi64((const long long *)wide, _mm_srli_epi32(low, 2), 8);
        int64_t v[12];
        _mm256_storeu_si256((__m256i *)v, g);
        _mm256_storeu_si256((__m256i *)(v + 4), _mm256_xor_si256(some, d));
        _mm256_storeu_si256((__m256i *)(v + 8), _mm256_castsi128_si256(q));
        for (int k = 0; k < 10; k++)
            sum = sum * 31 + v[k];
    }
    return sum;
}

__attribute__((target("avx512f,avx512vl,avx512dq"))) static int64_t avx512(void) {
    int64_t sum = 0;
    for (int i = 0; i < 20000; i++) {
        __m512i x = _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
        x = _mm512_mullo_epi32(_mm512_set1_epi32(i), x);
        x = _mm512_and_si512(x, _mm512_set1_epi32(0xffc0f));
        __m512i g = _mm512_mask_i32gather_epi32(x, (__mmask16)(i * 40503), x, table, 4);
        _mm512_mask_i32scatter_epi32(table, (__mmask16)(i * 2749), x, g, 4);
        __m256i low = _mm512_castsi512_si256(_mm512_srli_epi32(x, 2));
        __m512i q = _mm512_i32gather_epi64(low, wide, 8);
        low = _mm256_srli_epi32(low, 1);
        _mm512_i32scatter_epi64(wide, low, q, 8);
        sum = sum * 31 + _mm512_reduce_add_epi32(g) + _mm512_reduce_add_epi64(q);
    }
    return sum;
}

// Elements 4 GiB apart.
__attribute__((target("avx2"))) static int64_t far_apart(void) {
    long long base = 0x200000000, step = 0x100000000;
    for (int i = 0; i < 4; i++) {
        int64_t *p = mmap((void *)(base + i * step), 4096, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        p[3] = i * 1000003;
    }
    int64_t sum = 0;
    for (int i = 0; i < 100; i++) {
        __m256i x = _mm256_setr_epi64x(base, base + step, base + 2 * step, base + 3 * step);
        __m256i g = _mm256_i64gather_epi64((const long long *)24, x, 1);
        int64_t v[4];
        _mm256_storeu_si256((__m256i *)v, g);
        for (int k = 0; k < 4; k++)
            sum = sum * 31 + v[k];
    }
    return sum;
}

int main(void) {
    for (int i = 0; i < 1 << 20; i++)
        table[i] = i * 2654435761u;
    for (int i = 0; i < 1 << 18; i++)
        wide[i] = i * 0x9e3779b97f4a7c15;
    if (__builtin_cpu_supports("avx2"))
        printf("%llx %llx\n", (unsigned long long)avx2(), (unsigned long long)far_apart());
    if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        printf("%llx\n", (unsigned long long)avx512());
    for (int i = 0; i < 1 << 18; i++)
        wide[0] = wide[0] * 31 + wide[i] + table[i];
    printf("%llx\n", (unsigned long long)wide[0]);
    return 0;
}

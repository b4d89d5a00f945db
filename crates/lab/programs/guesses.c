/* The finer approximations of AVX-512: of numbers of all kinds, with and without a mask, while denormals are zero or not. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>

static uint64_t seed = 88172645463325252, digest = 1;

static void add(const void *from, int length) {
    const uint8_t *b = from;
    for (int i = 0; i < length; i++)
        digest = (digest ^ b[i]) * 0x100000001b3;
}

int main(void) {
    static const unsigned modes[] = {0x1f80, 0x9f80, 0x1fc0, 0x9fc0};
    for (int i = 0; i < 4000; i++) {
        uint64_t bits[8];
        for (int n = 0; n < 8; n++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            bits[n] = seed;
        }
        /* Some have exponents that are next to the ends. */
        if (i % 3 == 0)
            bits[i & 7] &= 0x801fffff803fffff;
        if (i % 3 == 1)
            bits[i & 7] |= 0x7fc000007e800000;
        _mm_setcsr(modes[i & 3]);
        __m512 s = _mm512_loadu_ps(bits), r;
        __m512d d = _mm512_loadu_pd(bits), t;
        r = _mm512_rcp14_ps(s), add(&r, 64);
        r = _mm512_mask_rsqrt14_ps(s, (__mmask16)bits[0], r), add(&r, 64);
        t = _mm512_maskz_rcp14_pd((__mmask8)bits[1], d), add(&t, 64);
        t = _mm512_rsqrt14_pd(d), add(&t, 64);
        __m128 one = _mm_rsqrt14_ss(_mm512_castps512_ps128(r), _mm512_castps512_ps128(s));
        add(&one, 16);
    }
    _mm_setcsr(0x1f80);
    printf("%016lx\n", digest);
    return 0;
}

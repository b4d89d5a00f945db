/* Memory that is mapped, unmapped, moved and mapped anew, read from files, shared with children; masked vector stores,
 * gathers and scatters; code that changes; deep stacks. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <stdlib.h>
#include <immintrin.h>
#include <time.h>
static volatile long sink;
static long sum(volatile char *p, int n) { long s = 0; for (int i = 0; i < n; i++) s += p[i]; sink = s; return s; }
__attribute__((noinline)) static int rec(int n) { char pad[64]; memset(pad, n, 64); sum(pad, 3); return n ? rec(n - 1) + pad[5] : 0; }
__attribute__((noinline,target("avx512f,avx512bw,avx512vl"))) static void avx(char *a) {
    __m512i z = _mm512_loadu_si512(a + 60); __mmask64 k = 0x8421842184218421; _mm512_mask_storeu_epi8(a + 4090, k, z);
    __m512i idx = _mm512_set_epi32(0,5,9,1000,3,77,2000,1,2,6,8,10,12,14,500,1023);
    __m512i g = _mm512_mask_i32gather_epi32(z, 0xbeef, idx, a, 4); _mm512_mask_i32scatter_epi32(a, 0x7777, idx, g, 4);
    _mm512_mask_compressstoreu_epi32(a + 2000, 0x0ff0, g); z = _mm512_mask_expandloadu_epi32(z, 0x5555, a + 3001);
    _mm256_mask_storeu_epi64(a + 100, 0x9, _mm512_castsi512_si256(z));
}
__attribute__((target("avx2"))) static void avx2(char *a) { __m256i m = _mm256_set_epi32(-1,0,0,-1,-1,0,-1,0); __m256i v = _mm256_maskload_epi32((int*)(a+31), m); _mm256_maskstore_epi32((int*)(a+4085), m, v);
   __m128i w = _mm_loadu_si128((void*)(a+7)); _mm_maskmoveu_si128(w, _mm_set1_epi16(0x80ff), a + 50); }
int main() {
    char *a = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 65536; i += 97) a[i] = i;
    sum(a, 300);
    munmap(a, 8192); char *b = mmap(a, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); sum(b, 200); b[3] = 5; sum(b, 10);
    int fd = open("file.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600); for (int i = 0; i < 300; i++) { char t[40]; sprintf(t, "line %d of the file\n", i); write(fd, t, strlen(t)); }
    char *f = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0); sum(f, 500);
    char *g = mmap(a + 16384, 4096, 3, MAP_PRIVATE | MAP_FIXED, fd, 0); sum(g + 100, 100); g[120] = 1; sum(g + 100, 30);
    madvise(g, 4096, MADV_DONTNEED); sum(g + 100, 100);
    madvise(a + 32768, 4096, MADV_DONTNEED); sum(a + 32768 + 10, 300);
    char *r = mremap(a + 32768, 32768, 131072, MREMAP_MAYMOVE); sum(r, 100); sum(r + 40000, 100); r[40000] = 3;
    char *brk = sbrk(8192); sum(brk, 20); brk[5] = 1; sbrk(-8192); brk = sbrk(8192); sum(brk, 20);
    lseek(fd, 0, 0); struct iovec v[2] = { { r + 10, 33 }, { r + 5000, 4000 } }; readv(fd, v, 2); sum(r, 60); sum(r + 4990, 200);
    pread(fd, r + 8000, 5000, 3); sum(r + 8000, 100);
    if (__builtin_cpu_supports("avx512bw")) for (int i = 0; i < 3; i++) avx(r + i * 4096 + i);
    if (__builtin_cpu_supports("avx2")) avx2(r + 20000);
    rec(30);
    struct timespec ts; for (int i = 0; i < 5; i++) { clock_gettime(CLOCK_MONOTONIC, &ts); sink = ts.tv_nsec; time(0); }
    // self modifying code
    unsigned char *x = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 6; i++) { x[0] = 0xb8; *(int *) (x + 1) = i; x[5] = 0xc3; sink = ((int (*)(void)) x)(); }
    char *s = mmap(0, 8192, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); strcpy(s, "before the fork"); int p[2]; pipe(p);
    char *fs = mmap(0, 4096, 3, MAP_SHARED, fd, 0); sum(fs, 50);
    for (int k = 0; k < 3; k++) if (!fork()) { char t; strcpy(s + 100 * k, "from the child"); fs[10 + k] = 'X'; sum(s, 400); sum(r, 100); sum(fs, 40); r[3] = k; write(p[1], "k", 1); rec(4); _exit(k); }
    for (int k = 0; k < 3; k++) { char t; read(p[0], &t, 1); sum(s, 400); sum(fs, 40); s[7] = k; }
    int st; while (wait(&st) > 0) sum((char *) &st, 4); sum(s, 400); sum(r, 10);
    char big[100000]; big[3] = 1; big[99999] = 2; sum(big, 10); long stack = 0; { volatile char deep[400000]; deep[0] = 1; stack += deep[0] + deep[200000]; }
    __asm__ volatile("xsave %0" : "+m"(*(char (*)[4096]) (((long) r + 63) / 64 * 64)) : "a"(7), "d"(0)); sum((char *) (((long) r + 63) / 64 * 64), 700);
    memset(r + 60000, 0x2b, 40); for (int i = 0; i < 3; i++) __asm__ volatile("verr %0; verw %1" : : "m"(*(short *) (r + 60003 + 7 * i)), "m"(*(short *) (r + 4095 + 4096 * i)) : "cc");
    return 0;
}

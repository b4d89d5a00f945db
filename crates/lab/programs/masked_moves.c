/* Stores whose operand is at rdi in a segment, as only prefixes say: in no segment, in FS, in GS, with 32-bit
   addresses. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char text[16] = "ABCDEFGHIJKLMNOP", mask[16] = {-1, 0, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1, 0, -1, -1, -1};
static char *there;

static void clear(void) { memset(there, '.', 64); }

static void show(const char *what) { printf("%s [%.32s]\n", what, there); }

#define SSE(name, prefixes, at)                                                                          \
  do {                                                                                                   \
    clear();                                                                                             \
    asm volatile("movups %1, %%xmm0; movups %2, %%xmm1; .byte " prefixes "0x66, 0x0f, 0xf7, 0xc1" ::"D"( \
                     (unsigned long)(at)),                                                               \
                 "m"(text), "m"(mask)                                                                    \
                 : "xmm0", "xmm1", "memory");                                                            \
    show(name);                                                                                          \
  } while (0)

#define MMX(name, prefixes, at)                                                                           \
  do {                                                                                                    \
    clear();                                                                                              \
    asm volatile("movq %1, %%mm0; movq %2, %%mm1; .byte " prefixes "0x0f, 0xf7, 0xc1; emms" ::"D"(        \
                     (unsigned long)(at)),                                                                \
                 "m"(text), "m"(mask)                                                                     \
                 : "mm0", "mm1", "memory");                                                               \
    show(name);                                                                                           \
  } while (0)

#define AVX(name, prefixes, at)                                                                           \
  do {                                                                                                    \
    clear();                                                                                              \
    asm volatile("vmovups %1, %%xmm0; vmovups %2, %%xmm1; .byte " prefixes "0xc5, 0xf9, 0xf7, 0xc1" ::"D"( \
                     (unsigned long)(at)),                                                                \
                 "m"(text), "m"(mask)                                                                     \
                 : "xmm0", "xmm1", "memory");                                                             \
    show(name);                                                                                           \
  } while (0)

#define EACH(which)                                           \
  which(#which, "", there);                                   \
  which(#which " fs", "0x64, ", there - fs);                  \
  which(#which " gs", "0x65, ", there - gs);                  \
  which(#which " fs ss", "0x64, 0x36, ", there - fs);         \
  which(#which " short", "0x67, ", (long)there | 5L << 32)

int main(void) {
  unsigned long fs, gs;
  there = mmap((void *)0x20000000, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  /* ARCH_SET_GS, ARCH_GET_FS */
  syscall(SYS_arch_prctl, 0x1001, there - 4096);
  gs = (unsigned long)there - 4096;
  syscall(SYS_arch_prctl, 0x1003, &fs);
  EACH(SSE);
  EACH(MMX);
  if (__builtin_cpu_supports("avx")) {
    EACH(AVX);
  }
  return 0;
}

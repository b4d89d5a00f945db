// Instructions that compilers do not emit: what they write, and what they leave alone.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char area[512] __attribute__((aligned(64)));
static uint64_t bits[1000];

int main(int argc, char **argv) {
    // Nested frames need the shadow window.
    int flat = argc > 1;
    memset(area, 0xaa, sizeof area);
    __asm__ volatile("fxsave64 %0" : "+m"(area));
    int kept = 0;
    for (int i = 416; i < 512; i++)
        kept += area[i] == 0xaa;
    printf("fxsave leaves %d of 96\n", kept);

    uint64_t r[4];
    __asm__ volatile("mov %%rsp, %%rcx\n"
                     "pushw $0x1234\n pushw $-2\n pushw %%sp\n pushfw\n"
                     "mov (%%rsp), %%rax\n"
                     "popw %%dx\n popw %%dx\n popw %%dx\n"
                     "sub %%rsp, %%rcx\n popw %%bx\n"
                     : "=a"(r[0]), "=d"(r[1]), "=c"(r[2]), "=b"(r[3])
                     : "1"(0x1111111111111111), "3"(0x2222222222222222)
                     : "memory", "cc");
    printf("%llx %llx %llx %llx\n", (unsigned long long)(r[0] >> 32), (unsigned long long)r[1],
           (unsigned long long)r[2], (unsigned long long)r[3]);

    if (!flat) {
        uint64_t frame[8];
        __asm__ volatile("push %%rbp\n mov %%rsp, %%rdx\n"
                         "lea 64(%1), %%rbp\n"
                         "enter $32, $3\n"
                         "mov %%rdx, %%rcx\n sub %%rsp, %%rcx\n"
                         "sub %%rbp, %%rdx\n"
                         "mov -8(%%rbp), %%rax\n xor -16(%%rbp), %%rax\n"
                         "leave\n pop %%rbp"
                         : "=c"(r[0])
                         : "r"(memset(frame, 0x5a, sizeof frame))
                         : "rax", "rdx", "memory", "cc");
        printf("%llx\n", (unsigned long long)r[0]);
    }

    long count = 0;
    for (long i = 0; i < 64000; i += 3) {
        unsigned char c;
        __asm__ volatile("lock btsq %2, %1\n setc %0"
                         : "=q"(c), "+m"(bits[0])
                         : "r"(i * 7 % 64000)
                         : "memory", "cc");
        count += c;
        __asm__ volatile("btq %2, %1\n setc %0" : "=q"(c), "+m"(bits[0]) : "r"(i) : "memory", "cc");
        count += c;
    }
    printf("%ld\n", count);
    return 0;
}

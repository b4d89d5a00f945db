// Status flags that the manuals leave undefined, stored by the program.
#include <stdint.h>
#include <stdio.h>

static uint64_t sum, seed = 88172645463325252ull;
static volatile uint64_t stored[64];
static unsigned count;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

// The quotient of rdx and rax by rbx has room in rax.
#define FLAGS(text)                                                                                                     \
    do {                                                                                                                \
        uint64_t a = next() >> (next() & 63) >> 1, b = next() >> (next() & 63) | 1, c = next(), d = 0;                  \
        uint64_t before = (next() & 0x8d5) | 2, after;                                                                  \
        asm volatile("push %5\n popfq\n" text "\n pushfq\n pop %4"                                                      \
                     : "+a"(a), "+b"(b), "+c"(c), "+d"(d), "=&r"(after)                                                 \
                     : "r"(before)                                                                                      \
                     : "cc");                                                                                           \
        stored[count++ % 64] = after;                                                                                   \
        sum = sum * 31 + a + after;                                                                                     \
    } while (0)

int main(void) {
    for (int i = 0; i < 300; i++) {
        FLAGS("shl %%cl, %%rax");
        FLAGS("shr %%cl, %%eax");
        FLAGS("sar %%cl, %%ax");
        FLAGS("shl %%cl, %%al");
        FLAGS("shld %%cl, %%rbx, %%rax");
        FLAGS("shrd %%cl, %%ebx, %%eax");
        FLAGS("rol %%cl, %%eax");
        FLAGS("rcr %%cl, %%rax");
        FLAGS("bsf %%rbx, %%rax");
        FLAGS("bsr %%bx, %%ax");
        FLAGS("bt %%rbx, %%rax");
        FLAGS("mul %%rbx");
        FLAGS("imul %%rbx, %%rax");
        FLAGS("div %%rbx");
        FLAGS("idiv %%rbx");
        FLAGS("and %%ebx, %%eax");
    }
    printf("%lx\n", (unsigned long) sum);
    return 0;
}

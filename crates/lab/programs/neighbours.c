// Code in a page that may not be written, directly before a page that may. Small functions at the beginning and
// at the end of the first page are called in turns.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, STEP = 16, TURNS = 30 };

int main(void) {
    uint8_t *code = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint32_t i = 0; i < 2 * PAGE / STEP; i++) {
        // mov eax, i; ret
        uint8_t *f = code + i * STEP;
        f[0] = 0xb8;
        memcpy(f + 1, &i, 4);
        f[5] = 0xc3;
    }
    mprotect(code, PAGE, PROT_READ | PROT_EXEC);
    mprotect(code + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    uint32_t sum = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        sum += ((uint32_t (*)(void))(code + turn * STEP))();
        sum += ((uint32_t (*)(void))(code + PAGE - (turn + 1) * STEP))();
        sum += ((uint32_t (*)(void))(code + PAGE + turn * STEP))();
    }
    printf("%u\n", sum);
}

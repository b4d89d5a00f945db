// Writes tens of thousands of small functions anew, again and again, and calls each.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS 40000
#define APART 64

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    size_t size = (size_t)FUNCTIONS * APART;
    unsigned char *code = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 1;
    unsigned sum = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < FUNCTIONS; i++) {
            // mov eax, VALUE; ret
            unsigned value = round * 1000003u + i;
            unsigned char *f = code + (size_t)i * APART;
            f[0] = 0xb8;
            memcpy(f + 1, &value, 4);
            f[5] = 0xc3;
        }
        for (int i = 0; i < FUNCTIONS; i++) sum = sum * 31 + ((unsigned (*)(void))(code + (size_t)i * APART))();
    }
    printf("%u\n", sum);
}

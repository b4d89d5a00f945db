// Dies with known registers: of a fault, or of a signal that was sent.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

static const char vector[16] = "registers' truth";

__attribute__((noinline)) void dies(long *address) {
    asm volatile("movdqu %1, %%xmm13\n\t"
                 "mov $0x1234567890, %%rbx\n\t"
                 "mov $0x1111, %%r10\n\t"
                 "mov $0x2222, %%r11\n\t"
                 "mov $0x3333, %%r15\n\t"
                 "movq $77, (%0)\n"
                 "here: nop\n\t" ::"r"(address), "m"(vector)
                 : "rbx", "r10", "r11", "r15", "memory");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 1 && !strcmp(argv[1], "fault")) dies((long *)0x4440);
    if (argc > 1) abort();
    return 0;
}

// Waits on a stack that begins a few bytes above something else, as a goroutine's stack may. Says whether that is
// unchanged.
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned char memory[8192] __attribute__((aligned(4096)));

int main(void) {
    const unsigned other = 4096;
    memset(memory, 0xa5, other);
    struct timespec time = {3, 0};
    printf("%d\n", getpid());
    fflush(stdout);
    long result = 35; // nanosleep
    __asm__ volatile("movq %%rsp, %%r12\n\t"
                     "movq %[top], %%rsp\n\t"
                     "syscall\n\t"
                     "movq %%r12, %%rsp"
                     : "+a"(result)
                     : [top] "r"(memory + other + 512), "D"(&time), "S"(0L)
                     : "rcx", "r11", "r12", "memory");
    unsigned changed = 0;
    for (unsigned i = 0; i < other; i++) changed += memory[i] != 0xa5;
    printf("%ld %u\n", result, changed);
}

// Sets the trap flag, to be interrupted after each instruction.
#include <signal.h>
#include <stdio.h>

static void on_trap(int signo) { (void)signo; }

int main(void) {
    puts("before");
    fflush(stdout);
    signal(SIGTRAP, on_trap);
    __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq\n nop\n nop" ::: "memory", "cc");
    puts("after");
    return 0;
}

// Far transfers within the segment of 64-bit code, and segment registers. Linked below 4 GiB, so that all
// processors can name its addresses.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

static sigjmp_buf back;

static void on_fault(int signo, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    printf("signal %d, code %d, trap %lld, error %llx\n", signo, info->si_code,
           u->uc_mcontext.gregs[REG_TRAPNO], u->uc_mcontext.gregs[REG_ERR]);
    siglongjmp(back, 1);
}

struct __attribute__((packed)) pointer { uint32_t offset; uint16_t selector; };

int reached(void);
__asm__("reached: mov $77, %eax; lret");

static void iret(uint64_t ss, uint64_t cs) {
    uint64_t flags = 0;
    __asm__ volatile("mov %%rsp, %%rcx; push %1; push %%rcx; pushq $0x8d7; push %2; lea 1f(%%rip), %%rdx; push %%rdx; iretq; 1: pushf; pop %0"
                     : "=&r"(flags) : "r"(ss), "r"(cs) : "rcx", "rdx", "memory", "cc");
    printf("iret %lx\n", flags & 0xcd5);
}

int main(int argc, char **argv) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &a, 0);
    if (argc > 1 && !strcmp(argv[1], "32")) {
        struct pointer p = {(uintptr_t)reached, 0x23};
        __asm__ volatile("ljmp *%0" : : "m"(p));
    }
    if (argc > 1 && !strcmp(argv[1], "counter")) {
        if (!sigsetjmp(back, 1)) __asm__ volatile("xor %%ecx, %%ecx; rdpmc" : : : "eax", "ecx", "edx");
        return 0;
    }
    int result = 0;
    for (int i = 0; i < 3; i++) {
        struct pointer p = {(uintptr_t)reached, 0x33};
        __asm__ volatile("lcall *%1" : "=a"(result) : "m"(p) : "memory");
        printf("call %d\n", result);
        __asm__ volatile("movl $1f, %0; ljmp *%0; ud2; 1:" : "+m"(p) : : "memory");
        __asm__ volatile("lea 1f(%%rip), %%rax; pushq $0x33; push %%rax; lretq; ud2; 1:" : : : "rax", "memory");
        __asm__ volatile("sub $32, %%rsp; pushq $0x33; lea 1f(%%rip), %%rax; push %%rax; lretq $32; ud2; 1:" : : : "rax", "memory");
        iret(0x2b, 0x33);
    }
    uint64_t selectors[][2] = {{0x2b, 0x10}, {0x28, 0x33}, {0, 0x33}, {0x2b, 0x30}, {0x10, 0x33}};
    for (int i = 0; i < 5; i++)
        if (!sigsetjmp(back, 1)) iret(selectors[i][0], selectors[i][1]);
    if (!sigsetjmp(back, 1)) {
        struct pointer p = {0, 0x1234 & ~4};
        __asm__ volatile("lcall *%0" : : "m"(p) : "memory");
    }
    if (!sigsetjmp(back, 1)) __asm__ volatile("push %%rax; push %%rax; mov $1, %%ecx; shl $63, %%rcx; mov %%rcx, (%%rsp); movq $0x33, 8(%%rsp); lretq" : : : "rcx", "memory");
    uint64_t gs = 1;
    __asm__ volatile("push %%gs; pop %0; push %%gs; pop %%gs; mov %k1, %%ds; mov %k1, %%es; mov %k1, %%gs; mov %%ss, %k2; mov %k2, %%ss"
                     : "=&r"(gs) : "r"(0), "r"(0x2b) : "memory");
    printf("gs %lu\n", gs);
    return 0;
}

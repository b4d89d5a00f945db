// Whether the kernel and the processor agree which register sets there are.
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t xgetbv(void) {
    uint32_t a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return a | (uint64_t)d << 32;
}

int main(void) {
    uint64_t supported = 0;
    // ARCH_GET_XCOMP_SUPP; kernels before 5.16 do not have it.
    syscall(SYS_arch_prctl, 0x1021, &supported);
    printf("supported %d\n", (supported & ~xgetbv()) == 0);
    fflush(stdout);
    int pid = fork();
    if (!pid) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    static uint64_t area[4096];
    struct iovec all = {area, sizeof area};
    int status;
    waitpid(pid, &status, 0);
    if (!WIFSTOPPED(status) || ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all)) return 1;
    printf("traced %d\n", area[58] == xgetbv() && (area[64] & ~xgetbv()) == 0);
    ptrace(PTRACE_CONT, pid, 0, 0);
    waitpid(pid, &status, 0);
    return 0;
}

/* A process traces its forked child, which executes no program, and looks where it stands. "attach", "seize": it
   attaches when the child waits for a byte. "young": it attaches at once. "asks": the child asks for it and stops. */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* The two places are behind the breakpoints of the child. */
extern char stop_here[], stop_again[];

static void child_work(void) {
    __asm__ volatile("mov $0x1234567, %%ebx\n int3\nstop_here: nop\n add $1, %%ebx\n int3\nstop_again: nop" ::: "rbx");
}

static void show(pid_t child, const char *when) {
    struct user_regs_struct r, set;
    struct iovec part = {&set, sizeof set};
    ptrace(PTRACE_GETREGS, child, 0, &r);
    ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &part);
    long rip = ptrace(PTRACE_PEEKUSER, child, offsetof(struct user_regs_struct, rip), 0);
    const char *where = r.rip == (unsigned long)stop_here ? "first"
        : r.rip == (unsigned long)stop_again              ? "second"
                                                          : "elsewhere";
    printf("%s: %s, rbx %llx, the same %d %d\n", when, where, where[0] == 'e' ? 0 : r.rbx, r.rip == rip,
           set.rip == r.rip && set.rbx == r.rbx);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *how = argv[1];
    int ends[2], status;
    pipe(ends);
    pid_t child = fork();
    if (!child) {
        char byte;
        if (!strcmp(how, "asks")) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
        } else {
            read(ends[0], &byte, 1);
        }
        child_work();
        _exit(7);
    }
    if (!strcmp(how, "attach") || !strcmp(how, "seize")) usleep(100000);
    if (!strcmp(how, "seize")) {
        printf("seize: %ld\n", ptrace(PTRACE_SEIZE, child, 0, 0));
        ptrace(PTRACE_INTERRUPT, child, 0, 0);
    } else if (strcmp(how, "asks")) {
        printf("attach: %ld\n", ptrace(PTRACE_ATTACH, child, 0, 0));
    }
    waitpid(child, &status, 0);
    printf("stopped: %d\n", WIFSTOPPED(status));
    if (!strcmp(how, "attach") || !strcmp(how, "seize")) {
        struct user_regs_struct r;
        ptrace(PTRACE_GETREGS, child, 0, &r);
        printf("in call: %d\n", r.rip - (unsigned long)read < 4096);
    }
    write(ends[1], "x", 1);
    ptrace(PTRACE_CONT, child, 0, 0);
    for (int i = 0; i < 2; i++) {
        waitpid(child, &status, 0);
        if (!WIFSTOPPED(status)) break;
        printf("signal %d\n", WSTOPSIG(status));
        show(child, i ? "then" : "now");
        ptrace(PTRACE_CONT, child, 0, 0);
    }
    waitpid(child, &status, 0);
    printf("ended: %x\n", status);
    return 0;
}

/* A debugger in small: it lists the system calls of a program that it starts, and where that stands. The
   child asks to be traced ("asks"), also as a child of vfork ("vfork"), or is seized when it has stopped ("seized"). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static char *program[] = {"/bin/echo", "traced", NULL};

int main(int argc, char **argv) {
    int seized = !strcmp(argv[1], "seized"), status;
    pid_t child = strcmp(argv[1], "vfork") ? fork() : vfork();
    if (!child) {
        if (seized)
            raise(SIGSTOP);
        else
            ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(program[0], program);
        _exit(127);
    }
    if (seized) {
        waitpid(child, &status, WUNTRACED);
        ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACEEXEC);
        kill(child, SIGCONT);
        // The stop and the signal.
        for (int i = 0; i < 20; i++) {
            waitpid(child, &status, 0);
            if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) break;
            int event = status >> 16, signal = WSTOPSIG(status);
            ptrace(PTRACE_CONT, child, 0, event ? 0 : signal == SIGTRAP ? 0 : signal);
        }
    } else {
        waitpid(child, &status, 0);
    }
    printf("executed: %x\n", status);
    struct user_regs_struct r;
    for (int i = 0; i < 20; i++) {
        ptrace(PTRACE_SINGLESTEP, child, 0, 0);
        waitpid(child, &status, 0);
        ptrace(PTRACE_GETREGS, child, 0, &r);
        long word = ptrace(PTRACE_PEEKTEXT, child, r.rip, 0);
        printf("%03llx %lx\n", r.rip & 0xfff, word & 0xff);
    }
    for (int i = 0; i < 10000; i++) {
        ptrace(PTRACE_SYSCALL, child, 0, 0);
        waitpid(child, &status, 0);
        if (!WIFSTOPPED(status)) break;
        ptrace(PTRACE_GETREGS, child, 0, &r);
        printf("%lld ", r.orig_rax);
    }
    printf("\nended: %x\n", status);
    return 0;
}

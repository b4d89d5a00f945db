/* A small debugger. It lists the system calls of a program that it starts, and where the program stands. The child
   asks to be traced ("asks"), also as a child of vfork ("vfork"), or is seized when it has stopped ("seized"). Or the
   debugger attaches to a running program, looks where it is and lets it end ("attached"). Or it seizes a program that
   waits for its child of vfork, and lets it go on ("waits"). */
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

static volatile struct {
    unsigned long from, to;
    long go;
} place;

/* Turns until somebody writes `go`. */
__attribute__((noinline)) static void turn(void) {
    while (!place.go) {}
}

__attribute__((noinline)) static void after(void) {
    __asm__ volatile("");
}

static int runs(int fd) {
    place.from = (unsigned long)turn;
    place.to = (unsigned long)after;
    unsigned long told[3] = {place.from, place.to, (unsigned long)&place.go};
    if (write(fd, told, sizeof told) != sizeof told) return 1;
    turn();
    after();
    return 5;
}

/* Whether the link to a process's program leads to ours, or nobody may change where it leads. */
static int linked(pid_t child) {
    char name[40], paths[2][4096] = {{0}}, line[200];
    unsigned long caps = 0;
    snprintf(name, sizeof name, "/proc/%d/exe", child);
    readlink(name, paths[0], sizeof paths[0] - 1);
    readlink("/proc/self/exe", paths[1], sizeof paths[1] - 1);
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f)) sscanf(line, "CapEff: %lx", &caps);
    fclose(f);
    int may = (caps >> 21 | caps >> 40) & 1;
    return !may || !strcmp(paths[0], paths[1]);
}

static int attach(char *own) {
    int ends[2], status;
    unsigned long told[3];
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (!child) {
        char number[20];
        snprintf(number, sizeof number, "%d", ends[1]);
        execl(own, own, "runs", number, NULL);
        _exit(127);
    }
    if (read(ends[0], told, sizeof told) != sizeof told) return 1;
    usleep(20000);
    printf("attach: %ld\n", ptrace(PTRACE_ATTACH, child, 0, 0));
    waitpid(child, &status, 0);
    struct user_regs_struct r;
    ptrace(PTRACE_GETREGS, child, 0, &r);
    printf("stopped: %x, in the loop: %d\n", status, r.rip >= told[0] && r.rip < told[1]);
    printf("its program: %d\n", linked(child));
    ptrace(PTRACE_POKEDATA, child, told[2], 1L);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    waitpid(child, &status, 0);
    ptrace(PTRACE_GETREGS, child, 0, &r);
    printf("call %lld with %lld\n", r.orig_rax, r.rdi);
    ptrace(PTRACE_DETACH, child, 0, 0);
    waitpid(child, &status, 0);
    printf("ended: %x\n", status);
    return 0;
}

static int waits(int to, int from) {
    char c = 'w';
    if (!vfork()) {
        write(to, &c, 1);
        read(from, &c, 1);
        _exit(0);
    }
    return 7;
}

static int seize(char *own) {
    int there[2], back[2], status;
    char c;
    if (pipe(there) || pipe(back)) return 1;
    pid_t child = fork();
    if (!child) {
        char numbers[2][20];
        snprintf(numbers[0], 20, "%d", there[1]);
        snprintf(numbers[1], 20, "%d", back[0]);
        execl(own, own, "parent", numbers[0], numbers[1], NULL);
        _exit(127);
    }
    if (read(there[0], &c, 1) != 1) return 1;
    printf("seize: %ld\n", ptrace(PTRACE_SEIZE, child, 0, 0));
    if (write(back[1], &c, 1) != 1) return 1;
    // Its signals are ours to pass on.
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status));
    printf("ended: %x\n", status);
    return 0;
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "parent")) return waits(atoi(argv[2]), atoi(argv[3]));
    if (!strcmp(argv[1], "waits")) return seize(argv[0]);
    if (!strcmp(argv[1], "runs")) return runs(atoi(argv[2]));
    if (!strcmp(argv[1], "attached")) return attach(argv[0]);
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

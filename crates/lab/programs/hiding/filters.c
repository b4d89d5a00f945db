// Filters of system calls that the program sets for itself.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NR BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ARG(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n]))
#define IF(nr, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)
#define ELSE(action) BPF_STMT(BPF_RET | BPF_K, action)

static int install(struct sock_filter *code, int n, int flags) {
    struct sock_fprog p = {n, code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p);
}
#define INSTALL(flags, ...) ({ struct sock_filter c[] = {__VA_ARGS__}; install(c, sizeof c / sizeof *c, flags); })

static void say(const char *what, long r) {
    char line[200];
    int n = snprintf(line, sizeof line, "%s: %ld %s\n", what, r, r == -1 ? strerrorname_np(errno) : "");
    syscall(SYS_write, 1, line, n);
    errno = 0;
}

static void trapped(int signo, siginfo_t *i, void *context) {
    ucontext_t *u = context;
    greg_t *g = u->uc_mcontext.gregs;
    char line[200];
    int n = snprintf(line, sizeof line, "trapped: %d code %d errno %d call %d arch %x rax %lld at rip %d before %x\n", signo, i->si_code, i->si_errno,
             i->si_syscall, i->si_arch, g[REG_RAX], (greg_t)i->si_call_addr == g[REG_RIP], *(unsigned short *)(g[REG_RIP] - 2));
    write(1, line, n);
    g[REG_RAX] = 4711;
}

static void in_child(const char *what, void (*f)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        f();
        syscall(SYS_exit_group, 55);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%s: status %x\n", what, status & 0xff7f);
}

static void errors(void) {
    INSTALL(0, NR, IF(SYS_getppid, SECCOMP_RET_ERRNO | ENOTTY), IF(SYS_mmap, SECCOMP_RET_ERRNO | EPERM), ELSE(SECCOMP_RET_ALLOW));
    say("getppid", syscall(SYS_getppid));
    say("mmap", (long)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // A second one on top; the lower value wins.
    INSTALL(0, NR, IF(SYS_getppid, SECCOMP_RET_ERRNO | EIO), IF(SYS_getuid, SECCOMP_RET_ERRNO | 0), ELSE(SECCOMP_RET_ALLOW));
    say("getppid", syscall(SYS_getppid));
    say("getuid", syscall(SYS_getuid));
    say("mode", prctl(PR_GET_SECCOMP));
    char text[4000] = "";
    int fd = open("/proc/self/status", O_RDONLY);
    read(fd, text, sizeof text);
    char *s = strstr(text, "Seccomp:");
    printf("%.10s %.18s\n", s, strstr(text, "Seccomp_filters:"));
    // Children and programs inherit them.
    pid_t child = fork();
    if (!child) {
        say("child", syscall(SYS_getppid));
        execl("/proc/self/exe", "filters", "inherit", NULL);
        execl("/bin/true", "x", NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    say("status", status);
}
static void traps(void) {
    struct sigaction sa = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &sa, NULL);
    INSTALL(0, NR, IF(SYS_getppid, SECCOMP_RET_TRAP | 77), IF(9999, SECCOMP_RET_TRAP), ELSE(SECCOMP_RET_ALLOW));
    say("getppid", syscall(SYS_getppid, 1, 2, 3));
    say("9999", syscall(9999));
}
static void trap_unhandled(void) {
    INSTALL(0, NR, IF(SYS_getppid, SECCOMP_RET_TRAP), ELSE(SECCOMP_RET_ALLOW));
    say("getppid", syscall(SYS_getppid));
}
static void kills(void) {
    struct sigaction sa = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &sa, NULL);
    INSTALL(0, NR, IF(SYS_getppid, SECCOMP_RET_KILL_PROCESS), ELSE(SECCOMP_RET_ALLOW));
    say("getppid", syscall(SYS_getppid));
}
static void *killed(void *a) { syscall(SYS_getppid); return NULL; }
static void kills_thread(void) {
    INSTALL(0, NR, IF(SYS_getppid, SECCOMP_RET_KILL_THREAD), ELSE(SECCOMP_RET_ALLOW));
    pthread_t t;
    pthread_create(&t, NULL, killed, NULL);
    usleep(100000);
    say("the other is gone, this goes on", 0);
}
static void only_what_is_needed(void) {
    // The recorder's own calls are not among these.
    int r = INSTALL(0, NR, IF(SYS_write, SECCOMP_RET_ALLOW), IF(SYS_exit_group, SECCOMP_RET_ALLOW), IF(SYS_brk, SECCOMP_RET_ALLOW), ELSE(SECCOMP_RET_ERRNO | EPERM));
    say("installed", r);
    volatile char *p = malloc(100000);
    for (int i = 0; i < 100000; i++) p[i] = i;
    long sum = 0;
    for (int i = 0; i < 100000; i++) sum += p[i];
    char text[100];
    snprintf(text, sizeof text, "%g", 3.25 * sum);
    say(text, sum);
    say("open", open("/dev/null", O_RDONLY));
    say("fork", syscall(SYS_fork));
    say("sigaction", syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 8));
    say("another", INSTALL(0, ELSE(SECCOMP_RET_ALLOW)));
}
static void strict(void) {
    say("strict", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    volatile double x = 0;
    for (int i = 0; i < 100000; i++) x += i * 0.5;
    say("still writes", (long)x);
    syscall(SYS_exit, 3);
}
static void strict_killed(void) {
    say("strict", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
    syscall(SYS_getpid);
    say("not reached", 0);
}
static pthread_barrier_t barrier;
static void *synced(void *a) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    say("in the other thread", syscall(SYS_getppid));
    return NULL;
}
static void synchronised(void) {
    pthread_t t;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&t, NULL, synced, NULL);
    pthread_barrier_wait(&barrier);
    say("synced", INSTALL(SECCOMP_FILTER_FLAG_TSYNC, NR, IF(SYS_getppid, SECCOMP_RET_ERRNO | ENOTTY), ELSE(SECCOMP_RET_ALLOW)));
    pthread_barrier_wait(&barrier);
    pthread_join(t, NULL);
}
static void arguments(void) {
    INSTALL(0, NR, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup, 0, 5), ARG(0), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
            BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 2, 1, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_A, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    say("dup of 1", syscall(SYS_dup, 1) > 0);
    INSTALL(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)), BPF_STMT(BPF_MISC | BPF_TAX, 0),
            BPF_STMT(BPF_LD | BPF_IMM, AUDIT_ARCH_X86_64), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 1, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 4), BPF_STMT(BPF_ALU | BPF_NEG, 0),
            BPF_STMT(BPF_LDX | BPF_MEM, 3), NR, IF(SYS_getuid, SECCOMP_RET_ERRNO | 99999), ELSE(SECCOMP_RET_ALLOW));
    say("errno is bounded", syscall(SYS_getuid));
    say("trace without tracer", INSTALL(0, NR, IF(SYS_getgid, SECCOMP_RET_TRACE), IF(SYS_geteuid, SECCOMP_RET_LOG), IF(SYS_getegid, 0x12340000), ELSE(SECCOMP_RET_ALLOW)));
    say("getgid", syscall(SYS_getgid));
    say("geteuid", syscall(SYS_geteuid) >= 0);
    say("unknown action kills", syscall(SYS_getegid));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        say("after exec", syscall(SYS_getppid));
        say("mode", prctl(PR_GET_SECCOMP));
        return 12;
    }
    say("mode", prctl(PR_GET_SECCOMP));
    int actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW, 0x12340000};
    for (int i = 0; i < 3; i++) say("available", syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[i]));
    if (geteuid()) say("without no_new_privs", INSTALL(0, ELSE(SECCOMP_RET_ALLOW)));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    say("no filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    say("empty", install(NULL, 0, 0));
    say("no return", INSTALL(0, NR));
    say("wild jump", INSTALL(0, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 5, 0), ELSE(SECCOMP_RET_ALLOW)));
    say("bad load", INSTALL(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), ELSE(SECCOMP_RET_ALLOW)));
    say("odd load", INSTALL(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), ELSE(SECCOMP_RET_ALLOW)));
    say("byte load", INSTALL(0, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), ELSE(SECCOMP_RET_ALLOW)));
    say("uninitialised", INSTALL(0, BPF_STMT(BPF_LD | BPF_MEM, 0), ELSE(SECCOMP_RET_ALLOW)));
    say("division", INSTALL(0, BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), ELSE(SECCOMP_RET_ALLOW)));
    say("flags", INSTALL(0x4000, ELSE(SECCOMP_RET_ALLOW)));
    say("operation", syscall(SYS_seccomp, 77, 0, NULL));
    say("strict with flags", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    in_child("errors", errors), in_child("traps", traps), in_child("trap unhandled", trap_unhandled);
    in_child("kills", kills), in_child("kills thread", kills_thread), in_child("only what is needed", only_what_is_needed);
    in_child("strict", strict), in_child("strict killed", strict_killed), in_child("synchronised", synchronised);
    in_child("arguments", arguments);
}

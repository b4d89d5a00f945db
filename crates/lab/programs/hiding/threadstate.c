// What the kernel keeps for a thread.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long r) { printf("%s: %ld %s\n", what, r, r == -1 ? strerrorname_np(errno) : ""); errno = 0; }

static pthread_mutex_t robust;
static void *dies(void *a) { pthread_mutex_lock(&robust); return NULL; }

static volatile int word = 1;
static char stack[65536];
static int clears(void *a) { usleep(1000); syscall(SYS_exit, 0); return 0; }

static sigjmp_buf back;
static void caught(int s, siginfo_t *i, void *c) { printf("caught %d code %d\n", s, i->si_code); siglongjmp(back, 1); }

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction sa = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    say("set_tid_address", syscall(SYS_set_tid_address, &word) == getpid());
    void *head;
    size_t len;
    say("get_robust_list", syscall(SYS_get_robust_list, 0, &head, &len)), printf("%d %zu\n", head != NULL, len);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr), pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attr);
    pthread_t t;
    pthread_create(&t, NULL, dies, NULL), pthread_join(t, NULL);
    printf("robust %s\n", strerrorname_np(pthread_mutex_lock(&robust)));
    int tid = clone(clears, stack + 65536, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID, NULL, NULL, NULL, &word);
    while (word) syscall(SYS_futex, &word, FUTEX_WAIT, tid, NULL, 0, 0);
    printf("cleared\n");
    uint64_t fs = 0, gs = 1;
    say("get fs", syscall(SYS_arch_prctl, ARCH_GET_FS, &fs)), printf("%d\n", fs == (uint64_t)pthread_self());
    say("get gs", syscall(SYS_arch_prctl, ARCH_GET_GS, &gs)), printf("%lx\n", gs);
    static uint64_t area[4] = {11, 22, 33, 44};
    say("set gs", syscall(SYS_arch_prctl, ARCH_SET_GS, area));
    uint64_t v;
    __asm__ volatile("mov %%gs:8, %0" : "=r"(v));
    say("get gs", syscall(SYS_arch_prctl, ARCH_GET_GS, &gs)), printf("%ld %d\n", v, gs == (uint64_t)area);
    say("bad gs", syscall(SYS_arch_prctl, ARCH_SET_GS, 0x800000000000));
    say("highest gs", syscall(SYS_arch_prctl, ARCH_SET_GS, 0x7fffffffeff8));
    say("above", syscall(SYS_arch_prctl, ARCH_SET_GS, 0x7ffffffff000));
    say("to nowhere", syscall(SYS_arch_prctl, ARCH_GET_GS, 16));
    say("cpuid faulting", syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0));
    say("set cpuid", syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1));
    if (!sigsetjmp(back, 1)) {
        long r = syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
        if (r) printf("no cpuid faulting: %s\n", strerrorname_np(errno));
        else { unsigned a, b, c, d; __cpuid(0, a, b, c, d); printf("cpuid worked\n"); }
    }
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
    uint64_t out;
    say("shadow stack status", syscall(SYS_arch_prctl, 0x5005, &out));
    say("shadow stack enable", syscall(SYS_arch_prctl, 0x5001, 1));
    say("xcomp supported", syscall(SYS_arch_prctl, 0x1021, &out));
    say("xcomp permitted", syscall(SYS_arch_prctl, 0x1022, &out));
    // Without MPX, which some processors have and a recorded program is not shown.
    printf("%lx\n", out & 0xe7);
    say("xcomp nonsense", syscall(SYS_arch_prctl, 0x1023, 60));
    say("xcomp that needs no permission", syscall(SYS_arch_prctl, 0x1023, 1));
    say("tagged addresses", syscall(SYS_arch_prctl, 0x4001, &out));
    say("nonsense", syscall(SYS_arch_prctl, 0x9999, 0));
    uint64_t ssp = 0;
    __asm__ volatile("rdsspq %0" : "+r"(ssp));
    printf("ssp %lx\n", ssp);
    // prctl
    char name[17] = "";
    say("set name", prctl(PR_SET_NAME, "a long name for a thread")), prctl(PR_GET_NAME, name), printf("%s\n", name);
    int sig = -1;
    say("pdeathsig", prctl(PR_SET_PDEATHSIG, SIGUSR1)), prctl(PR_GET_PDEATHSIG, &sig), printf("%d\n", sig);
    prctl(PR_SET_PDEATHSIG, 0);
    say("dumpable", prctl(PR_GET_DUMPABLE)), say("undumpable", prctl(PR_SET_DUMPABLE, 0)), say("dumpable", prctl(PR_GET_DUMPABLE));
    prctl(PR_SET_DUMPABLE, 1);
    int mode = 0;
    say("tsc", prctl(PR_GET_TSC, &mode)), printf("%d\n", mode);
    if (!sigsetjmp(back, 1)) {
        say("forbid tsc", prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
        __builtin_ia32_rdtsc();
        printf("rdtsc worked\n");
    }
    if (!sigsetjmp(back, 1)) {
        unsigned aux;
        __builtin_ia32_rdtscp(&aux);
        printf("rdtscp worked\n");
    }
    say("tsc mode", prctl(PR_GET_TSC, &mode)), printf("%d\n", mode);
    say("allow tsc", prctl(PR_SET_TSC, PR_TSC_ENABLE));
    printf("tsc %d\n", __builtin_ia32_rdtsc() != 0);
    say("no thp", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)), say("thp", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    say("timerslack", prctl(PR_SET_TIMERSLACK, 12345)), say("slack", prctl(PR_GET_TIMERSLACK));
    say("subreaper", prctl(PR_SET_CHILD_SUBREAPER, 1));
    say("keepcaps", prctl(PR_SET_KEEPCAPS, 1));
    say("endian", prctl(PR_GET_ENDIAN, &mode)), say("mce", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
    say("speculation", prctl(PR_GET_SPECULATION_CTRL, 0, 0, 0, 0) >= 0);
    say("name of memory", prctl(0x53564d41, 0, 0, 0, 0));
    void *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("name of memory", prctl(0x53564d41, 0, m, 4096, "mine"));
    extern char *program_invocation_name;
    say("mm map size", prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &mode, 0, 0));
    say("mm start brk", prctl(PR_SET_MM, PR_SET_MM_START_BRK, 0, 0, 0));
    say("mm arg start", prctl(PR_SET_MM, PR_SET_MM_ARG_START, argv[0], 0, 0));
    say("mdwe", prctl(66, 0, 0, 0, 0));
    say("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)), say("so", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say("personality", personality(0xffffffff));
    say("set", personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC));
    say("now", personality(0xffffffff));
    personality(0);
    say("membarrier", syscall(SYS_membarrier, 0, 0, 0) > 0);
    unsigned node, cpu;
    say("getcpu", syscall(SYS_getcpu, &cpu, &node, NULL));
    int status;
    pid_t child = fork();
    if (!child) {
        // No mapping may be both written and executed.
        say("mdwe on", prctl(65, 1, 0, 0, 0));
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("mapping", p == MAP_FAILED ? -1 : 0);
        say("protection", mprotect(m, 4096, PROT_READ | PROT_EXEC));
        for (volatile int i = 0; i < 100; i++) getppid();
        printf("still here %d\n", atoi("42"));
        exit(0);
    }
    waitpid(child, &status, 0), printf("status %x\n", status);
}

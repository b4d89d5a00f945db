// What /proc tells of the program itself.
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char text[1 << 22];
static int load(const char *name) {
    int fd = open(name, O_RDONLY), n, len = 0;
    if (fd < 0) return -1;
    while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0) len += n;
    close(fd);
    text[len] = 0;
    return n < 0 ? -1 : len;
}

static const char *base(const char *p) { return strrchr(p, '/') ? strrchr(p, '/') + 1 : p; }

// Each mapping's permissions and name, in order; addresses as far as they are not random.
static void mappings(const char *name) {
    int n = load(name);
    printf("%s: %d\n", strstr(name, "task") ? "task" : base(name), n > 0);
    static char found[200][100];
    int i = 0, odd = 0;
    uintptr_t last = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        uintptr_t a, b;
        char perms[8], path[200] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %199[^\n]", &a, &b, perms, path) < 3 || !strchr(line, '-') || line[0] < '0' || (line[0] > '9' && line[0] < 'a')) continue;
        if (a < last) odd++;
        last = b;
        char *p = path;
        while (*p == ' ') p++;
        if (i < 200) snprintf(found[i++], 100, "  %s %s\n", perms, base(p));
    }
    // The kernel places the vDSO elsewhere among them.
    qsort(found, i, 100, (int (*)(const void *, const void *))strcmp);
    for (int k = 0; k < i; k++) printf("%s", found[k]);
    printf("  %d mappings, %d out of order\n", i, odd);
}

static void keys(const char *name, const char *wanted[]) {
    load(name);
    for (int i = 0; wanted[i]; i++) {
        char *at = text;
        size_t n = strlen(wanted[i]);
        while (at && strncmp(at, wanted[i], n)) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
        if (at) printf("  %.*s\n", (int)strcspn(at, "\n"), at);
        else printf("  no %s\n", wanted[i]);
    }
}
static long key(const char *name, const char *wanted) {
    load(name);
    char *at = strstr(text, wanted);
    return at ? strtol(at + strlen(wanted), NULL, 10) : -1;
}

static void handler(int s) {}
static pthread_barrier_t barrier;
static void *thread(void *a) {
    prctl(PR_SET_NAME, "second thread");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void list(const char *name) {
    struct dirent **e;
    int n = scandir(name, &e, NULL, alphasort);
    printf("%s:", name);
    for (int i = 0; i < n; i++) printf(" %s", e[i]->d_name);
    printf(n < 0 ? " no\n" : "\n");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    sbrk(8192);
    signal(SIGUSR1, handler), signal(SIGUSR2, SIG_IGN), signal(SIGPIPE, SIG_IGN), signal(SIGSEGV, SIG_DFL);
    sigset_t s;
    sigemptyset(&s), sigaddset(&s, SIGHUP), sigaddset(&s, SIGSEGV), sigprocmask(SIG_BLOCK, &s, NULL);
    raise(SIGHUP), raise(SIGSEGV);
    char name[100];
    mappings("/proc/self/maps");
    mappings("/proc/self/smaps");
    mappings("/proc/self/numa_maps");
    sprintf(name, "/proc/%d/maps", getpid()), mappings(name);
    sprintf(name, "/proc/%d/task/%d/maps", getpid(), getpid()), mappings(name);
    sprintf(name, "/proc/self/task/%d/maps", getpid()), mappings(name);
    chdir("/proc/self"), mappings("maps"), chdir("/");
    int dir = open("/proc/self", O_RDONLY);
    int fd = openat(dir, "maps", O_RDONLY);
    char buf[4096];
    int lines = 0, n;
    while ((n = read(fd, buf, sizeof buf)) > 0)
        for (int i = 0; i < n; i++) lines += buf[i] == '\n';
    printf("openat: %d\n", lines);
    printf("seek %ld, write %ld\n", (long)lseek(fd, 0, SEEK_SET), (long)write(fd, "x", 1));
    n = 0;
    const char *status[] = {"Name", "State", "Tgid", "TracerPid", "Uid", "FDSize", "Threads", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
                            "NoNewPrivs", "Seccomp:", "CoreDumping", "THP_enabled", NULL};
    load("/proc/self/status");
    const char *fixed[] = {"Name", "State", "Umask", "TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp:", "CoreDumping", NULL};
    keys("/proc/self/status", fixed);
    keys("/proc/thread-self/status", fixed);
    sprintf(name, "/proc/self/task/%d/status", getpid()), keys(name, fixed);
    long size = key("/proc/self/status", "VmSize:"), rss = key("/proc/self/status", "VmRSS:"), peak = key("/proc/self/status", "VmPeak:");
    printf("size below 64 MB %d, resident %d, data %d, locked %ld, swap %ld\n", size < 65536, rss < 16384, key("/proc/self/status", "VmData:") < 16384, key("/proc/self/status", "VmLck:"), key("/proc/self/status", "VmSwap:"));
    printf("peak above size %d, stack %d, exe %d\n", peak >= size, key("/proc/self/status", "VmStk:") < 1000, key("/proc/self/status", "VmExe:") < 100);
    load("/proc/self/statm");
    long pages_size, pages_rss;
    sscanf(text, "%ld %ld", &pages_size, &pages_rss);
    printf("statm: like status %d %d\n", labs(pages_size * 4 - size) < 1000, labs(pages_rss * 4 - rss) < 4000);
    load("/proc/self/stat");
    char comm[64], state;
    int pid, ppid;
    sscanf(text, "%d (%63[^)]) %c %d", &pid, comm, &state, &ppid);
    printf("stat: %d %s %c %d\n", pid == getpid(), comm, state, ppid == getppid());
    unsigned long field[60] = {0};
    int k = 4;
    for (char *p = strtok(strchr(text, ')') + 4, " "); p; p = strtok(NULL, " ")) field[k++] = strtoul(p, NULL, 10);
    // vsize, startcode, endcode, startstack, kstkesp, signals, start_data, end_data, start_brk, arg, env
    extern char __executable_start, etext, edata, end;
    printf("vsize %d rss %d\n", field[23] / 1024 < 65536, field[24] * 4 < 16384);
    printf("code %d %d stack %d\n", field[26] == (unsigned long)&__executable_start || field[26] < (unsigned long)&etext && field[26] > (unsigned long)&__executable_start, field[27] > field[26] && field[27] < (unsigned long)&end, field[28] > (unsigned long)&pid && field[28] < (unsigned long)argv[0]);
    printf("signals %lx %lx %lx %lx\n", field[31], field[32], field[33], field[34]);
    printf("data %d brk %d\n", field[45] > field[26] && field[45] < (unsigned long)&end, field[47] <= (unsigned long)sbrk(0) && field[47] > (unsigned long)&__executable_start);
    printf("args %d %d env %d exit code %ld\n", field[48] == (unsigned long)argv[0], field[49] > field[48], field[50] == (unsigned long)environ[0], field[52]);
    load("/proc/self/comm"), printf("comm %s", text);
    prctl(PR_SET_NAME, "renamed"), load("/proc/self/comm"), printf("comm %s", text);
    n = load("/proc/self/cmdline");
    printf("cmdline %d %d\n", !strcmp(text, argv[0]), n == (int)strlen(argv[0]) + 1);
    n = load("/proc/self/environ");
    printf("environ %d\n", !strcmp(text, environ[0]));
    n = load("/proc/self/auxv");
    Elf64_auxv_t *v = (void *)text;
    printf("auxv of %d:", n / 16);
    for (; v->a_type; v++) {
        // Restartable sequences are not offered.
        if (v->a_type == 1 || v->a_type == 27 || v->a_type == 28) continue;
        int same = getauxval(v->a_type) == v->a_un.a_val;
        if (v->a_type == AT_RANDOM || v->a_type == AT_EXECFN || v->a_type == AT_PLATFORM || v->a_type == AT_SYSINFO_EHDR) printf(" %ld:%d", v->a_type, same);
        else printf(" %ld:%d", v->a_type, same);
    }
    printf("\n");
    keys("/proc/self/limits", (const char *[]){"Max stack", "Max open files", "Max locked memory", "Max address space", NULL});
    list("/proc/self/task/../ns");
    pthread_t t;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&t, NULL, thread, NULL);
    pthread_barrier_wait(&barrier);
    struct dirent **e;
    n = scandir("/proc/self/task", &e, NULL, alphasort);
    printf("tasks %d\n", n - 2);
    sprintf(name, "/proc/self/task/%s/comm", e[n - 1]->d_name), load(name), printf("its name %s", text);
    pthread_barrier_wait(&barrier);
    pthread_join(t, NULL);
    printf("links: "), n = readlink("/proc/self/cwd", buf, sizeof buf), printf("%.*s ", n, buf);
    n = readlink("/proc/self/root", buf, sizeof buf), printf("%.*s\n", n, buf);
    // Memory through /proc, and through the kernel's other door.
    static volatile long secret = 0x1234567;
    long copy = 0;
    fd = open("/proc/self/mem", O_RDWR);
    printf("mem: %ld", (long)pread(fd, &copy, 8, (off_t)&secret));
    printf(" %lx", copy);
    long other = 0x7654321;
    printf(" %ld", (long)pwrite(fd, &other, 8, (off_t)&secret));
    printf(" %lx\n", secret);
    // Read-only memory can be written so.
    static const volatile char constant[] = "constant";
    printf("mem: %ld %s\n", (long)pwrite(fd, "K", 1, (off_t)constant), constant);
    struct iovec a = {&copy, 8}, b = {(void *)&secret, 8};
    n = process_vm_readv(getpid(), &a, 1, &b, 1, 0);
    printf("process_vm_readv %d %lx\n", n, copy);
    copy = 99;
    n = process_vm_writev(getpid(), &a, 1, &b, 1, 0);
    printf("process_vm_writev %d %lx\n", n, secret);
    load("/proc/self/syscall"), printf("syscall %d\n", !strncmp(text, "0 ", 2));
    load("/proc/self/wchan"), printf("wchan %s\n", text);
    uint64_t entry = 0;
    fd = open("/proc/self/pagemap", O_RDONLY);
    printf("pagemap %d", (int)pread(fd, &entry, 8, ((uintptr_t)&secret >> 12) * 8));
    printf(" present %d\n", (int)(entry >> 63));
    load("/proc/self/personality"), printf("personality %s", text);
    load("/proc/self/timerslack_ns"), printf("slack %s", text);
    printf("loginuid %d mountinfo %d io %d\n", load("/proc/self/loginuid") >= 0, load("/proc/self/mountinfo") > 0, load("/proc/self/io") > 0);
    list("/proc/self/fd");
}

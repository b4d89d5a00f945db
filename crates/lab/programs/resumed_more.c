// Goes on from a place, as `resumed.c`: what others chose for it, and names that come to lead elsewhere.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *self;

static void ask(int fd) {
    struct stat st;
    fstat(fd, &st);
}

static void place(void) {
    fflush(stdout);
    getppid();
}

// What it blocks and ignores.
static int show(void) {
    place();
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    for (int i = 1; i < 32; i++)
        if (sigismember(&now, i))
            printf("blocks %d\n", i);
    printf("end\n");
    return 11;
}

// A child unblocks what its parent had blocked around the fork, and loads a program.
static int unblocks(void) {
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    sigaddset(&block, SIGUSR2);
    sigprocmask(SIG_BLOCK, &block, &old);
    int child = fork();
    if (!child) {
        sigdelset(&block, SIGUSR2);
        sigprocmask(SIG_UNBLOCK, &block, NULL);
        execl(self, self, "show", NULL);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void *blocks_all(void *arg) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    *(volatile int *)arg = 1;
    for (;;)
        pause();
}

// Another thread's mask is not that of who loads a program.
static int thread_loads(void) {
    static volatile int done;
    pthread_t other;
    pthread_create(&other, NULL, blocks_all, (void *)&done);
    while (!done)
        usleep(1000);
    execl(self, self, "show", NULL);
    return 1;
}

// It began with a signal ignored and one blocked, and asks.
static int asks(void) {
    struct sigaction old;
    sigset_t now;
    sigaction(SIGHUP, NULL, &old);
    sigprocmask(SIG_BLOCK, NULL, &now);
    place();
    raise(SIGHUP);
    raise(SIGUSR1);
    printf("alive\n");
    return 12;
}

static void handler(int signo) {
    printf("handler %d\n", signo);
}

static int arrives(void) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    printf("end\n");
    return 13;
}

// A path leads to another file while the first one is open.
static int replaced(void) {
    char b[16] = "";
    int f = open("cfg", O_RDONLY);
    ask(f);
    pread(f, b, sizeof b - 1, 0);
    int w = open("new", O_CREAT | O_EXCL | O_WRONLY, 0600);
    ask(w);
    write(w, "V2V2", 4);
    close(w);
    rename("new", "./cfg");
    int g = open("cfg", O_RDONLY);
    ask(g);
    pread(g, b, sizeof b - 1, 0);
    place();
    memset(b, 0, sizeof b);
    pread(f, b, sizeof b - 1, 0);
    printf("old %s\n", b);
    return 14;
}

// A mapping of the same file under another name writes to it.
static int alias(void) {
    char b[16] = "";
    int f = open("data", O_RDONLY);
    ask(f);
    pread(f, b, sizeof b - 1, 0);
    int g = open("./data", O_RDWR);
    char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, g, 0);
    close(g);
    memcpy(m, "NEW", 3);
    munmap(m, 4096);
    place();
    pread(f, b, sizeof b - 1, 0);
    printf("%s\n", b);
    return 15;
}

// It appends although it was not opened so.
static int appends(void) {
    char b[16];
    int f = open("data", O_RDWR);
    ask(f);
    pread(f, b, sizeof b, 0);
    fcntl(f, F_SETFL, O_APPEND);
    write(f, "abcd", 4);
    place();
    printf("at %ld\n", (long)lseek(f, 0, SEEK_CUR));
    return 16;
}

// A folder is renamed, and another one gets its name.
static int folder(void) {
    mkdir("work", 0700);
    int d = open("work", O_RDONLY | O_DIRECTORY);
    rename("./work", "done");
    mkdir("work", 0700);
    place();
    printf("%s\n", openat(d, "x", O_CREAT | O_WRONLY, 0600) < 0 ? strerror(errno) : "made");
    return 17;
}

// A folder that it holds becomes another one only later.
static int kept_folder(void) {
    int d = open("work", O_RDONLY | O_DIRECTORY);
    ask(d);
    place();
    printf("%s\n", openat(d, "x", O_CREAT | O_WRONLY, 0600) < 0 ? strerror(errno) : "made");
    return 17;
}

static int working(void) {
    mkdir("work", 0700);
    chdir("work");
    rename("../work", "../done");
    mkdir("../work", 0700);
    place();
    return 18;
}

// A descriptor comes over a socket.
static int received(void) {
    int ends[2], f = open("data", O_RDONLY);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    char control[64] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(4)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(4);
    memcpy(CMSG_DATA(c), &f, 4);
    sendmsg(ends[0], &m, 0);
    m.msg_controllen = sizeof control;
    recvmsg(ends[1], &m, 0);
    place();
    return 19;
}

// A message comes without one.
static int message(void) {
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    char control[64] = {0}, byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    sendmsg(ends[0], &m, 0);
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    recvmsg(ends[1], &m, 0);
    place();
    printf("end\n");
    return 20;
}

// A lock that cannot be changed is lost.
static int lock_lost(void) {
    int a = open("data", O_RDWR), b = open("data", O_RDWR);
    ask(a);
    ask(b);
    flock(a, LOCK_SH);
    flock(b, LOCK_SH);
    flock(a, LOCK_EX | LOCK_NB);
    place();
    printf("alone %d\n", flock(b, LOCK_EX | LOCK_NB));
    return 21;
}

// Shared memory appears a second time.
static int mirrored(void) {
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *q = mremap(p, 0, 4096, MREMAP_MAYMOVE);
    p[0] = 2;
    place();
    p[0] = 7;
    printf("%d\n", q[0]);
    return 22;
}

// A stack for handlers that each handler takes away.
static int disarms(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536, .ss_flags = 1U << 31};
    sigaltstack(&stack, NULL);
    place();
    return 23;
}

// A file is mapped to be read. Most of it is read only later.
static int cached(void) {
    int f = open("data", O_RDONLY);
    ask(f);
    unsigned char *m = mmap(NULL, 3 * 4096, PROT_READ, MAP_SHARED, f, 0);
    close(f);
    unsigned sum = 0;
    // In many pieces, so that much is unknown between them.
    for (int i = 0; i < 4096; i += 32)
        sum += m[i];
    place();
    for (int i = 0; i < 3 * 4096; i++)
        sum += m[i];
    int next = open("data", O_RDONLY);
    printf("sum %u, next %d\n", sum, next);
    return 24;
}

// A file is mapped to be read, and open to be written.
static int cached_and_written(void) {
    int f = open("data", O_RDONLY), g = open("data", O_RDWR);
    ask(f);
    ask(g);
    char *m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, f, 0);
    place();
    pwrite(g, "new", 3, 0);
    printf("%.5s\n", m);
    return 25;
}

// The working directory is reached by a link to a folder that is renamed.
static int linked_folder(void) {
    mkdir("work", 0700);
    symlink("work", "link");
    chdir("link");
    rename("../work", "../done");
    mkdir("../work", 0700);
    place();
    return 26;
}

// A folder of which something was read.
static int reads_folder(void) {
    DIR *d = opendir(".");
    readdir(d);
    place();
    return 28;
}

// A folder that was not opened as one.
static int dot(void) {
    int d = open(".", O_RDONLY);
    chdir("/");
    place();
    printf("%d\n", fchdir(d));
    return 29;
}

static void other(int signo) {
    printf("other %d\n", signo);
}

// A child begins late, when its parent has already chosen otherwise for itself.
static int forks(const char *then) {
    signal(SIGUSR1, then ? SIG_IGN : handler);
    umask(022);
    int child = fork();
    if (!child) {
        for (volatile int i = 0; i < 20000000; i++)
            ;
        if (then)
            execl(self, self, then, NULL);
        place();
        raise(SIGUSR1);
        printf("umask %o\n", umask(0));
        return 30;
    }
    signal(SIGUSR1, then ? SIG_DFL : other);
    umask(077);
    for (int i = 0; i < 50; i++)
        getuid();
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static int parent_goes_on(void) {
    return forks(NULL);
}

static int starter_goes_on(void) {
    return forks("raises");
}

static int raises(void) {
    place();
    raise(SIGUSR1);
    printf("alive\n");
    return 31;
}

// Somebody else makes a file longer than the program was told.
static int grown(void) {
    char b[16] = "";
    int f = open("data", O_RDONLY);
    ask(f);
    mkdir("ready", 0700);
    while (access("go", F_OK) < 0)
        usleep(1000);
    read(f, b, 10);
    place();
    memset(b, 0, sizeof b);
    printf("%zd %s\n", pread(f, b, 10, 0), b);
    return 32;
}

// A file is written to under a path that begins as those of devices do.
static int device_path(void) {
    char path[4096] = "/dev/..", b[16] = "";
    int f = open("data", O_RDONLY);
    ask(f);
    pread(f, b, sizeof b - 1, 0);
    getcwd(path + 7, sizeof path - 16);
    int g = open(strcat(path, "/data"), O_RDWR);
    pwrite(g, "NEW", 3, 0);
    place();
    return 33;
}

// Memory is written by a file.
static int memory_file(void) {
    static volatile int value = 1;
    int f = open("/proc/self/mem", O_RDWR), two = 2;
    pwrite(f, &two, sizeof two, (off_t)(long)&value);
    close(f);
    place();
    printf("%d\n", value);
    return 34;
}

static int locked_input(void) {
    flock(0, LOCK_EX);
    place();
    return 35;
}

// A child without the handlers of its parent.
static int without_handlers(void) {
    signal(SIGUSR1, handler);
    unsigned long args[11] = {1UL << 32, 0, 0, 0, SIGCHLD};
    if (!syscall(SYS_clone3, args, 64)) {
        place();
        raise(SIGUSR1);
        _exit(36);
    }
    wait(NULL);
    return 36;
}

// Its paths begin elsewhere.
static int apart(void) {
    mkdir("root", 0700);
    unshare(CLONE_NEWUSER);
    if (chroot("root") < 0 || chdir("/") < 0)
        perror("chroot");
    place();
    return 27;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {
        {"show", show}, {"unblocks", unblocks}, {"thread-loads", thread_loads}, {"asks", asks}, {"arrives", arrives},
        {"replaced", replaced}, {"alias", alias}, {"appends", appends}, {"folder", folder}, {"kept-folder", kept_folder},
        {"working", working}, {"received", received}, {"message", message},
        {"lock-lost", lock_lost}, {"mirrored", mirrored}, {"disarms", disarms}, {"cached", cached},
        {"cached-and-written", cached_and_written}, {"linked-folder", linked_folder}, {"apart", apart},
        {"reads-folder", reads_folder}, {"dot", dot}, {"parent-goes-on", parent_goes_on}, {"starter-goes-on", starter_goes_on},
        {"raises", raises}, {"grown", grown}, {"device-path", device_path}, {"memory-file", memory_file},
        {"locked-input", locked_input}, {"without-handlers", without_handlers},
    };
    self = argv[0];
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name)) {
            int status = all[i].run();
            fflush(stdout);
            return status;
        }
    return 1;
}

// Less common ways in and out: io_uring, aio, userfaultfd, signalfd and pidfd, namespaces, tracing.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long r) { printf("%s: %ld %s\n", what, r, r == -1 ? strerrorname_np(errno) : ""); errno = 0; }

static void uring(void) {
    struct io_uring_params p = {0};
    int fd = syscall(SYS_io_uring_setup, 8, &p);
    if (fd < 0) return say("io_uring", fd);
    size_t sq_len = p.sq_off.array + p.sq_entries * 4, cq_len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t len = sq_len > cq_len ? sq_len : cq_len;
    char *ring = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    int ends[2];
    pipe(ends);
    char buf[32] = "";
    for (int round = 0; round < 20; round++) {
        unsigned tail = *(unsigned *)(ring + p.sq_off.tail), mask = *(unsigned *)(ring + p.sq_off.ring_mask);
        for (int i = 0; i < 2; i++) {
            struct io_uring_sqe *e = &sqes[(tail + i) & mask];
            memset(e, 0, sizeof *e);
            e->opcode = i ? IORING_OP_WRITE : IORING_OP_READ;
            e->fd = ends[i], e->off = -1;
            e->addr = (uintptr_t)(i ? "through the ring" : buf), e->len = 16, e->user_data = i;
            ((unsigned *)(ring + p.sq_off.array))[(tail + i) & mask] = (tail + i) & mask;
        }
        __atomic_store_n((unsigned *)(ring + p.sq_off.tail), tail + 2, __ATOMIC_RELEASE);
        syscall(SYS_io_uring_enter, fd, 2, 2, IORING_ENTER_GETEVENTS, NULL, 0);
        unsigned head = *(unsigned *)(ring + p.cq_off.head);
        int sum = 0;
        for (int i = 0; i < 2; i++) {
            while (head == __atomic_load_n((unsigned *)(ring + p.cq_off.tail), __ATOMIC_ACQUIRE)) {}
            struct io_uring_cqe *c = (struct io_uring_cqe *)(ring + p.cq_off.cqes) + (head & *(unsigned *)(ring + p.cq_off.ring_mask));
            sum += c->res;
            head++;
        }
        __atomic_store_n((unsigned *)(ring + p.cq_off.head), head, __ATOMIC_RELEASE);
        if (round % 10 == 0) printf("ring: %d %s\n", sum, buf);
    }
}

static void aio(void) {
    aio_context_t ctx = 0;
    say("io_setup", syscall(SYS_io_setup, 4, &ctx));
    char name[] = "/tmp/hindsight-aio-XXXXXX", buf[16] = "";
    int fd = mkstemp(name);
    unlink(name);
    pwrite(fd, "asynchronous", 12, 0);
    struct iocb cb = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)buf, .aio_nbytes = 12, .aio_data = 5}, *list = &cb;
    say("io_submit", syscall(SYS_io_submit, ctx, 1, &list));
    struct io_event e;
    say("io_getevents", syscall(SYS_io_getevents, ctx, 1, 1, &e, NULL));
    printf("%s %lld %lld\n", buf, (long long)e.data, (long long)e.res);
    say("io_destroy", syscall(SYS_io_destroy, ctx));
}

static int uffd;
static void *pager(void *a) {
    for (int i = 0; i < 3; i++) {
        struct uffd_msg m;
        if (read(uffd, &m, sizeof m) != sizeof m) return NULL;
        static char page[4096] __attribute__((aligned(4096)));
        memset(page, 'a' + i, 4096);
        struct uffdio_copy c = {.dst = m.arg.pagefault.address & ~4095, .src = (uintptr_t)page, .len = 4096};
        ioctl(uffd, UFFDIO_COPY, &c);
    }
    return NULL;
}
static void faults(void) {
    uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0) return say("userfaultfd", uffd);
    struct uffdio_api api = {.api = UFFD_API};
    ioctl(uffd, UFFDIO_API, &api);
    char *area = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register r = {.range = {(uintptr_t)area, 3 * 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    say("register", ioctl(uffd, UFFDIO_REGISTER, &r));
    pthread_t t;
    pthread_create(&t, NULL, pager, NULL);
    printf("paged: %c", area[10]);
    printf("%c", area[5000]);
    int ends[2];
    pipe(ends);
    write(ends[1], "k", 1);
    read(ends[0], area + 8192, 1);
    printf("%c%c\n", area[8192], area[8193]);
    pthread_join(t, NULL);
}

static void tracing(void) {
    // Stops, memory and registers of another one; system calls counted by it.
    static volatile long cell = 5;
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(cell);
    }
    int status;
    waitpid(child, &status, 0);
    printf("stopped %x\n", status);
    errno = 0;
    say("peek", ptrace(PTRACE_PEEKDATA, child, &cell, 0));
    say("poke", ptrace(PTRACE_POKEDATA, child, &cell, 77L));
    say("go on", ptrace(PTRACE_CONT, child, 0, 0));
    waitpid(child, &status, 0);
    printf("ended %x\n", status);
}

static void spaces(void) {
    fflush(stdout);
    int status;
    pid_t child = fork();
    if (!child) {
        uid_t uid = getuid();
        say("user namespace", unshare(CLONE_NEWUSER));
        printf("uid %d\n", getuid() != uid || uid == 65534);
        say("mount namespace", unshare(CLONE_NEWNS));
        say("others", unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET));
        say("process namespace", unshare(CLONE_NEWPID));
        fflush(stdout);
        pid_t inner = fork();
        if (!inner) {
            printf("pid %d parent %d\n", getpid(), getppid());
            fflush(stdout);
            int st;
            pid_t p = fork();
            if (!p) execl("/bin/echo", "echo", "inside", NULL);
            waitpid(p, &st, 0), printf("%x\n", st);
            // No /proc, and nothing else.
            say("hide /proc", mount("none", "/proc", "tmpfs", 0, NULL));
            fflush(stdout);
            p = fork();
            if (!p) execl("/bin/echo", "echo", "without proc", NULL);
            waitpid(p, &st, 0), printf("%x\n", st);
            say("hide /tmp", mount("none", "/tmp", "tmpfs", 0, NULL));
            fflush(stdout);
            p = fork();
            if (!p) execl("/bin/echo", "echo", "without tmp", NULL);
            waitpid(p, &st, 0), printf("%x\n", st);
            mkdir("/tmp/empty", 0700);
            say("chroot", chroot("/tmp/empty")), chdir("/");
            p = fork();
            if (!p) { pthread_t t; printf("forked\n"); exit(4); }
            waitpid(p, &st, 0), printf("%x\n", st);
            exit(6);
        }
        waitpid(inner, &status, 0), printf("status %x\n", status);
        exit(0);
    }
    waitpid(child, &status, 0), printf("status %x\n", status);
}

static void ids(void) {
    int status;
    pid_t child = fork();
    if (!child) { pause(); }
    int fd = syscall(SYS_pidfd_open, child, 0);
    say("pidfd", fd > 0), say("signal", syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    struct pollfd p = {fd, POLLIN};
    say("poll", poll(&p, 1, 10000));
    siginfo_t i = {0};
    say("waitid", waitid(P_PIDFD, fd, &i, WEXITED)), printf("%d %d\n", i.si_code, i.si_status);
    int ends[2];
    pipe(ends);
    fd = syscall(SYS_pidfd_open, getpid(), 0);
    int copy = syscall(SYS_pidfd_getfd, fd, ends[1], 0);
    char c = 0;
    write(copy, "q", 1), read(ends[0], &c, 1), printf("through the copy %c\n", c);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    uring(), aio(), faults(), ids(), tracing();
    if (geteuid() == 0) spaces();
}

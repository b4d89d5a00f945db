/* Ways in which memory changes, or may, in a program with one thread. Each prints what it reads. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* A sum of memory that depends on each byte. */
static uint64_t sum(const volatile void *at, size_t n) {
    const volatile unsigned char *p = at;
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) s = s * 31 + p[i];
    return s;
}
static void show(const char *what, const volatile void *at, size_t n) {
    printf("%s %016lx\n", what, sum(at, n));
}
static char *fresh(size_t n) {
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(99);
    return p;
}
static void discarded(void) {
    char *p = fresh(8 * PAGE);
    memset(p, 7, 8 * PAGE);
    madvise(p + PAGE, PAGE, MADV_DONTNEED);
    show("dontneed", p, 8 * PAGE);
    /* A part is not mapped: the rest is discarded all the same. */
    munmap(p + 4 * PAGE, PAGE);
    printf("hole %d %d\n", madvise(p + 3 * PAGE, 3 * PAGE, MADV_DONTNEED), errno);
    show("before", p, 4 * PAGE);
    show("behind", p + 5 * PAGE, 3 * PAGE);
    memset(p, 9, 2 * PAGE);
    madvise(p, PAGE, MADV_FREE);
    p[0] = 1;
    show("one", p + PAGE, PAGE);
    madvise(p + PAGE, PAGE, 102); /* MADV_GUARD_INSTALL, where there is one */
    madvise(p + PAGE, PAGE, 103);
    volatile char c = p[PAGE];
    show("data", p + 2 * PAGE, PAGE);
}

static void moved(void) {
    char *p = fresh(4 * PAGE);
    for (int i = 0; i < 4 * PAGE; i++) p[i] = i * 7;
    munmap(p + PAGE, PAGE);
    char *q = mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    show("hole", q, PAGE);
    show("all", p, 4 * PAGE);
    char *big = fresh(64 * PAGE);
    memset(big, 3, 64 * PAGE);
    big = mremap(big, 64 * PAGE, 600 * PAGE, MREMAP_MAYMOVE);
    show("grown", big, 600 * PAGE);
    big = mremap(big, 600 * PAGE, 10 * PAGE, 0);
    show("shrunk", big, 10 * PAGE);
    big = mremap(big, 10 * PAGE, 20 * PAGE, MREMAP_MAYMOVE);
    show("grown again", big, 20 * PAGE);
    char *b = sbrk(40 * PAGE);
    memset(b, 5, 40 * PAGE);
    sbrk(-30 * PAGE);
    sbrk(30 * PAGE);
    show("heap", b, 40 * PAGE);
}

/* What is behind in the address space is free, but other memory has the low bits. */
static void neighbours(void) {
    uint64_t span = 1ull << 32;
    /* Low bits that nobody has yet: those to which the heap has not come. */
    uint64_t low = ((uint64_t)sbrk(0) + (900ull << 20)) & (span - 1) & -PAGE;
    /* Far from where the kernel maps anything. */
    uint64_t at = 0x2000 * span + low;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    char *first = mmap((char *)at, 8 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *other = mmap((char *)at + span + 8 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (first == MAP_FAILED || other == MAP_FAILED) exit(98);
    memset(first, 1, 8 * PAGE);
    memset(other, 2, 8 * PAGE);
    char *grown = mremap(first, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED) exit(97);
    memset(grown + 8 * PAGE, 3, 8 * PAGE);
    show("grown", grown, 16 * PAGE);
    show("other", other, 8 * PAGE);
}

/* A heap of some hundred MiB, of which little is used. */
static void heap(void) {
    uint64_t size = 700ull << 20;
    char *p = sbrk(size);
    if (p == (char *)-1) return;
    for (uint64_t at = 0; at < size; at += 50ull << 20) p[at] = at >> 20;
    show("heap", p, PAGE);
}

/* Uninitialised stack, far below. */
static __attribute__((noinline)) uint64_t deep(int n) {
    volatile char frame[PAGE];
    if (n > 0) return deep(n - 1) + frame[n % PAGE] * 3;
    return sum(frame, sizeof frame);
}
static void stack(const char *mib) {
    volatile uint64_t unknown = deep(1500);
    struct rlimit r;
    getrlimit(RLIMIT_STACK, &r);
    r.rlim_cur = (mib ? atol(mib) : 64) << 20;
    if (r.rlim_cur > r.rlim_max) r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_STACK, &r);
    char *p = fresh(64 * PAGE);
    memset(p, 1, 64 * PAGE);
    if (r.rlim_cur >= 64 << 20) unknown = deep(12000);
    show("mapped", p, 64 * PAGE);
}

/* Two mappings with the same low address bits. One of them cannot be accessed while the other is used. */
static void twins(void) {
    char *p = fresh(PAGE);
    memset(p, 1, PAGE);
    mprotect(p, PAGE, PROT_NONE);
    char *at = (char *)((uintptr_t)p - (1ull << 32));
    char *q = mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (q != MAP_FAILED) {
        memset(q, 2, PAGE);
        mprotect(q, PAGE, PROT_NONE);
    }
    mprotect(p, PAGE, PROT_READ);
    show("first", p, PAGE);
}

/* Reserved memory that shares low address bits with memory in use. It comes, is used beside the other, and goes.
   Garbage collected languages reserve memory at addresses of their choice. */
static void reserved(void) {
    char *p = fresh(16 * PAGE);
    munmap(p, 8 * PAGE);
    char *at = (char *)(((uintptr_t)p & 0xffffffff) + (192ull << 32));
    p += 8 * PAGE;
    memset(p, 7, 8 * PAGE);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    munmap(at, 64 * PAGE);
    show("nothing is unmapped", p, 8 * PAGE);
    for (int i = 0; i < 2; i++) {
        char *q = mmap(at, 64 * PAGE, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        printf("reserved %d\n", q == at);
        show("others", p, 8 * PAGE);
        mmap(at, 8 * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
        memset(at, 3, 4 * PAGE);
        show("used", at, 8 * PAGE);
        madvise(at + 8 * PAGE, 8 * PAGE, MADV_DONTNEED);
        mmap(at + 8 * PAGE, 8 * PAGE, PROT_NONE, flags | MAP_FIXED, -1, 0);
        show("others", p, 8 * PAGE);
        munmap(at, 64 * PAGE);
        show("others", p, 8 * PAGE);
    }
}

static void outputs(void) {
    char buf[4096];
    memset(buf, 0x5a, sizeof buf);
    int fds[2], pair[2];
    pipe(fds);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    write(fds[1], "0123456789abcdef", 16);
    struct iovec v[3] = {{buf, 3}, {buf + 100, 5}, {buf + 200, 100}};
    printf("%zd\n", readv(fds[0], v, 3));
    show("scattered", buf, 300);
    struct pollfd p[2] = {{fds[0], POLLIN, 0x77}, {fds[1], POLLOUT, 0x77}};
    printf("%d\n", poll(p, 2, 0));
    show("poll", p, sizeof p);
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(fds[0], &r);
    FD_SET(fds[1], &w);
    struct timeval t = {0, 1000};
    printf("%d\n", select(20, &r, &w, 0, &t));
    show("select", &r, 8), show("select", &w, 8), show("time left", &t, 0);
    int e = epoll_create1(0);
    struct epoll_event ev = {EPOLLOUT, {.u64 = 77}}, got[4];
    epoll_ctl(e, EPOLL_CTL_ADD, fds[1], &ev);
    memset(got, 1, sizeof got);
    printf("%d\n", epoll_wait(e, got, 4, 0));
    show("epoll", got, sizeof got);
    char control[256] = {0};
    struct iovec one = {"data", 4};
    struct msghdr m = {0, 0, &one, 1, control, CMSG_SPACE(sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fds[0], sizeof(int));
    sendmsg(pair[0], &m, 0);
    struct iovec in = {buf + 400, 100};
    m = (struct msghdr){0, 0, &in, 1, control, sizeof control};
    memset(control, 9, sizeof control);
    printf("%zd %zu\n", recvmsg(pair[1], &m, 0), m.msg_controllen);
    show("control", control, sizeof control), show("header", &m.msg_flags, 4), show("data", buf, 600);
    int kind, len = sizeof kind;
    getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &kind, &len);
    printf("kind %d %d\n", kind, len);
    char peer[200];
    len = 1;
    printf("%d\n", getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, peer, &len));
    struct sockaddr_un a;
    len = sizeof a;
    memset(&a, 3, sizeof a);
    getsockname(pair[0], (void *)&a, &len);
    printf("name %d ", len), show("", &a, sizeof a);
    struct utsname u;
    memset(&u, 1, sizeof u);
    uname(&u);
    show("machine", u.machine, sizeof u.machine);
    struct __user_cap_header_struct h = {1, 0};
    syscall(SYS_capget, &h, 0);
    printf("capabilities %x\n", h.version);
    h = (struct __user_cap_header_struct){12345, 0};
    struct __user_cap_data_struct d[2];
    printf("%ld %x\n", syscall(SYS_capget, &h, d), h.version);
    unsigned short sizes[3] = {0};
    printf("%ld ", syscall(SYS_seccomp, 3, 0, sizes));
    show("sizes", sizes, 6);
    uint64_t features = 0;
    printf("%ld %d\n", syscall(SYS_arch_prctl, 0x1022, &features), features != 0);
    char title[16] = {0};
    prctl(PR_SET_NAME, "quiet one");
    prctl(PR_GET_NAME, title);
    int n = 0, death = 5;
    prctl(PR_GET_PDEATHSIG, &death);
    ioctl(fds[0], FIONREAD, &n);
    printf("%s %d %d\n", title, death, n);
    unsigned char pages[8];
    memset(pages, 4, 8);
    char *map = fresh(4 * PAGE);
    munmap(map + 2 * PAGE, PAGE);
    map[0] = 1;
    printf("%d\n", mincore(map, 4 * PAGE, pages));
    show("resident", pages, 8);
    getrandom(buf, 100, 0);
    uint64_t zero = sum(buf, 100);
    int f = open("/usr/include/stdio.h", O_RDONLY);
    if (f < 0) f = open("/etc/passwd", O_RDONLY);
    off_t off = 10;
    sendfile(fds[1], f, &off, 20);
    printf("%ld\n", (long)off);
    loff_t at = 5;
    printf("%zd %ld\n", splice(f, &at, fds[1], 0, 16, 0), (long)at);
    printf("%zd\n", preadv(f, v, 3, 7));
    show("scattered", buf + 200, 100);
    struct timespec nothing = {0, 1}, left = {1, 2};
    nanosleep(&nothing, &left);
    printf("%ld %ld %d\n", (long)left.tv_sec, left.tv_nsec, zero != 0);
    struct itimerval timer = {{0, 0}, {100, 0}}, old;
    setitimer(ITIMER_REAL, &timer, 0);
    timer.it_value.tv_sec = 0;
    setitimer(ITIMER_REAL, &timer, &old);
    printf("%d\n", old.it_value.tv_sec > 90);
}

static volatile int seen;
/* Attributes of this file, of the program's own one by its link in /proc, and of one that is not there. The calls came
   with Linux 6.13 and 6.17. */
static void attributes(const char *self) {
    const char *paths[] = {self, "/proc/self/exe", "/nowhere"};
    char list[300], value[100];
    struct { uint64_t value; uint32_t size, flags; } args = {(uintptr_t)value, sizeof value, 0};
    for (int i = 0; i < 3; i++) {
        memset(list, 'l', sizeof list);
        memset(value, 'v', sizeof value);
        printf("%ld\n", syscall(464, AT_FDCWD, paths[i], 0, "user.none", &args, sizeof args));
        show("value", value, sizeof value);
        printf("%ld\n", syscall(465, AT_FDCWD, paths[i], 0, list, sizeof list));
        show("list", list, sizeof list);
        printf("%ld\n", syscall(468, AT_FDCWD, paths[i], value, sizeof value, 0));
        show("file", value, sizeof value);
    }
}

/* Handles of this file, of the program's own one by its link in /proc, and of one that is not there: with room, and
   without. The flag for long numbers of mounts came with Linux 6.12. */
static void handles(const char *self) {
    const char *paths[] = {self, "/proc/self/exe", "/nowhere"};
    const int flags[] = {0, AT_SYMLINK_FOLLOW, AT_SYMLINK_FOLLOW | 1};
    union { struct file_handle head; char bytes[8 + MAX_HANDLE_SZ]; } h;
    uint64_t mount;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (unsigned room = 0; room <= MAX_HANDLE_SZ; room += MAX_HANDLE_SZ) {
                memset(&h, 'h', sizeof h);
                memset(&mount, 'm', sizeof mount);
                h.head.handle_bytes = room;
                long r = syscall(SYS_name_to_handle_at, AT_FDCWD, paths[i], &h, &mount, flags[j]);
                printf("%ld %d %u %016lx\n", r, r ? errno : 0, h.head.handle_bytes, mount);
                show("handle", &h, sizeof h);
            }
    /* By descriptors: the program has only those that it opened. */
    int known = 0;
    for (int fd = 0; fd < 5000; fd++) {
        h.head.handle_bytes = MAX_HANDLE_SZ;
        known += syscall(SYS_name_to_handle_at, fd, "", &h, &mount, AT_EMPTY_PATH) == 0 || errno != EBADF;
    }
    printf("%d\n", known);
}

/* What is known of a queue of messages, and of all of them. What differs from run to run is not shown. */
static void queues(void) {
    struct { struct msqid_ds queue; char behind[200]; } s;
    struct { struct msginfo info; char behind[200]; } all;
    int q = msgget(IPC_PRIVATE, 0600), found = 0;
    struct { long type; char text[9]; } m = {3, "a message"};
    msgsnd(q, &m, sizeof m.text, 0);
    for (int i = 0; i < 2; i++) {
        memset(&s, 'q', sizeof s);
        printf("%d ", msgctl(q, IPC_STAT, &s.queue));
        printf("%o %lu %lu ", s.queue.msg_perm.mode, s.queue.msg_qnum, s.queue.msg_qbytes);
        printf("%d %d\n", s.queue.msg_lspid == getpid(), s.queue.msg_ctime > 0);
        show("behind", &s.queue.msg_lrpid, sizeof s - offsetof(struct msqid_ds, msg_lrpid));
        s.queue.msg_qbytes = 1000, s.queue.msg_perm.mode = 0640;
        printf("%d\n", msgctl(q, IPC_SET, &s.queue));
    }
    memset(&all, 'i', sizeof all);
    int highest = msgctl(0, MSG_INFO, (void *)&all.info);
    printf("%d %d\n", all.info.msgpool > 0, all.info.msgtql > 0);
    show("used", &all.info.msgmax, 3 * sizeof(int)), show("behind", &all.info.msgseg, 200);
    memset(&all, 'i', sizeof all);
    printf("%d\n", msgctl(0, IPC_INFO, (void *)&all.info) >= 0);
    show("limits", &all, sizeof all);
    for (int i = 0; i <= highest; i++)
        for (int command = MSG_STAT; command <= MSG_STAT_ANY; command += MSG_STAT_ANY - MSG_STAT) {
            memset(&s, 's', sizeof s);
            if (msgctl(i, command, &s.queue) != q) continue;
            found++;
            printf("%o %lu\n", s.queue.msg_perm.mode, s.queue.msg_qbytes);
            show("behind", &s.queue.msg_lrpid, sizeof s - offsetof(struct msqid_ds, msg_lrpid));
        }
    memset(&s, 'g', sizeof s);
    printf("%d %d\n", found, msgctl(q, IPC_RMID, &s.queue));
    /* Which argument comes first is open, and other queues may have left an error. */
    int gone = msgctl(q, IPC_STAT, &s.queue);
    printf("%d %d\n", gone, errno);
    int wrong = msgctl(-1, IPC_INFO, &s.queue);
    printf("%d %d\n", wrong, errno);
    show("gone", &s, sizeof s);
}

static void handler(int s, siginfo_t *i, void *c) {
    volatile char frame[512];
    memset((void *)frame, s, sizeof frame);
    seen += i->si_code + sum(frame, sizeof frame) % 1000;
}
static void signals(void) {
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    stack_t s = {.ss_sp = fresh(16 * PAGE), .ss_size = 16 * PAGE}, old;
    sigaction(SIGUSR1, &a, 0);
    sigaction(SIGALRM, &a, 0);
    sigaltstack(&s, &old);
    raise(SIGUSR1);
    show("frame", s.ss_sp, 16);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, 0);
    volatile uint64_t x = 0;
    for (int i = 0; i < 30; i++) {
        struct timespec t = {0, 200000}, left = {0, 0};
        nanosleep(&t, &left);
        x += sum(s.ss_sp, 16 * PAGE) + left.tv_nsec;
    }
    timer.it_interval.tv_usec = timer.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &timer, 0);
    sigset_t set, was;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &was);
    raise(SIGUSR1);
    sigpending(&was);
    siginfo_t info;
    memset(&info, 1, sizeof info);
    printf("%d %d\n", sigismember(&was, SIGUSR1), sigwaitinfo(&set, &info));
    show("info", &info, 8);
}

/* Clocks, which are read in memory that the kernel writes. */
static void clocks(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < 100; i++) {
        clock_gettime(CLOCK_MONOTONIC, &b);
        if (b.tv_sec < a.tv_sec) abort();
        a = b;
    }
    struct timeval t;
    gettimeofday(&t, 0);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("%d\n", t.tv_sec > 0 && u.ru_maxrss > 0);
}

/* What ends the regime. */
static void shared(void) {
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
    char *a = shmat(id, 0, 0), *b = shmat(id, 0, 0);
    shmctl(id, IPC_RMID, 0);
    a[5] = 5;
    printf("%d\n", b[5]);
}
static void memory_file(void) {
    int f = memfd_create("x", 0);
    ftruncate(f, 2 * PAGE);
    char *a = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    char *b = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    a[9] = 9;
    printf("%d\n", b[9]);
    pwrite(f, "zz", 2, 9);
    printf("%d\n", a[10]);
}
static void remote(void) {
    volatile char a[64] = {0};
    char b[64];
    memset(b, 6, 64);
    struct iovec from = {b, 64}, to = {(void *)a, 64};
    printf("%zd\n", process_vm_writev(getpid(), &from, 1, &to, 1, 0));
    show("remote", a, 64);
}
static void partial(void) {
    char *p = fresh(2 * PAGE);
    memset(p, 1, 2 * PAGE);
    mprotect(p + PAGE, PAGE, PROT_READ);
    int f = open("/bin/sh", O_RDONLY), n = pread(f, p + PAGE - 100, 200, 0);
    printf("%d\n", n);
    show("partial", p, 2 * PAGE);
    struct stat *s = (void *)(p + PAGE - 48);
    printf("%d\n", fstat(f, s));
    volatile uint64_t x = sum(p, PAGE);
}
static void passed(const char *path) {
    int f = open(path, O_RDONLY);
    volatile char *p = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    show("mapped", p, 100);
    pwrite(7, "changed", 7, 20);
    show("written", p, 100);
}
static void cut(const char *path) {
    int f = open(path, O_RDONLY);
    volatile char *p = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    show("mapped", p, 100);
    truncate(path, 50);
    show("cut", p, 100);
}
static void renamed(const char *path) {
    int f = open(path, O_RDONLY);
    volatile char *p = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    show("mapped", p, 100);
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    rename(path, other);
    int w = open(other, O_WRONLY);
    pwrite(w, "changed", 7, 20);
    show("written", p, 100);
}
/* What the kernel writes is not read. */
static struct utsname unread_name;
static void unread(void) {
    uname(&unread_name);
    for (int i = 0; i < 40; i++) getppid();
}
/* Pages of files that have come to hold nothing but zeros. */
static char initialised[4 * PAGE] __attribute__((aligned(4096))) = "initialised";
static void zeroed(void) {
    int f = open("/proc/self/exe", O_RDONLY);
    volatile char *p = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
    show("mapped", p, 4 * PAGE);
    memset((char *)p, 0, PAGE);
    memset(initialised, 0, PAGE);
    for (int i = 0; i < 40; i++) getppid(), p[2 * PAGE + i]++;
    show("zeroed", p, 4 * PAGE);
    show("too", initialised, PAGE);
}
/* Another file gets the name, and then none has it. */
static void replaced(const char *path) {
    int f = open(path, O_RDONLY);
    volatile char *p = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
    volatile char *q = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    p[7] = 'x';
    show("mapped", p, 100);
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    write(open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600), other, strlen(other));
    for (int i = 0; i < 30; i++) {
        if (i == 10) rename(other, path);
        if (i == 20) unlink(path);
        getppid();
        if (i % 7 == 0) p[100 + i]++;
        if (i % 10 == 9) show("replaced", p, 400), show("read", q, 100);
    }
}
/* Somebody else changes the file meanwhile: the process at the other end of two pipes. */
static void disturbed(const char *path) {
    char c;
    int f = open(path, O_RDONLY);
    volatile char *p = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    write(1, "go\n", 3);
    read(0, &c, 1);
    printf("%d\n", p[20] != 0);
}

/* String instructions that are stopped on their way by faults, which are mended, and by signals. */
static char *string_pages;
static long string_stops[3], string_ticks;
static void mend(int s, siginfo_t *i, void *c) {
    const greg_t *r = ((ucontext_t *)c)->uc_mcontext.gregs;
    string_stops[0] = r[REG_RCX];
    string_stops[1] = (char *)r[REG_RDI] - string_pages;
    string_stops[2] = (char *)i->si_addr - string_pages;
    mprotect(string_pages, 3 * PAGE, PROT_READ | PROT_WRITE);
}
static void tick(int s) { string_ticks++; }
#define STRING(text, to, from, count)                                                                         \
    {                                                                                                         \
        char *d = p + (to), *f = p + (from);                                                                  \
        long left = (count), a = 0x0102030405060708;                                                          \
        memset(string_stops, 0, sizeof string_stops);                                                         \
        mprotect(p, PAGE, PROT_NONE);                                                                         \
        mprotect(p + 2 * PAGE, PAGE, PROT_NONE);                                                              \
        __asm__ volatile(text "; cld" : "+D"(d), "+S"(f), "+c"(left), "+a"(a) : : "memory");                  \
        mprotect(p, 3 * PAGE, PROT_READ | PROT_WRITE);                                                        \
        printf("%s: %ld %ld %ld, %ld %ld %ld, %016lx\n", text, string_stops[0], string_stops[1],              \
               string_stops[2], left, (long)(d - p), (long)(f - p), sum(p, 3 * PAGE));                        \
    }
static void strings(void) {
    char *p = string_pages = fresh(3 * PAGE);
    for (int i = 0; i < 3 * PAGE; i++) p[i] = i * 13;
    struct sigaction a = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    for (int n = 90; n < 300; n += 150) {
        STRING("rep stosb", 2 * PAGE - 77, PAGE, n);
        STRING("rep stosw", 2 * PAGE - 77, PAGE, n);
        STRING("rep stosq", 2 * PAGE - 77, PAGE, n);
        STRING("rep movsb", PAGE + 7, 2 * PAGE - 50, n);
        STRING("rep movsl", 2 * PAGE - 30, PAGE, n);
        STRING("rep movsq", PAGE + 1, PAGE, n);
        STRING("rep lodsq", PAGE, 2 * PAGE - 50, n);
        STRING("std; rep movsb", PAGE + 60, PAGE + 500, n);
        STRING("std; rep stosl", PAGE + 61, PAGE, n);
    }
    STRING("rep movsb", 2 * PAGE, 0, 0);
    STRING("movsq", 2 * PAGE - 3, PAGE, 0);
    STRING("stosb", 2 * PAGE, PAGE, 0);
    STRING("lodsw", PAGE, 2 * PAGE - 1, 0);
    signal(SIGALRM, tick);
    struct itimerval t = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &t, 0);
    for (long i = 0; string_ticks < 200; i++) {
        char *d = p + i % 500, *f = p + 300;
        long n = 200;
        __asm__ volatile("rep movsb" : "+D"(d), "+S"(f), "+c"(n) : : "memory");
        if (n || d != p + i % 500 + 200) exit(98);
    }
    t.it_value.tv_usec = t.it_interval.tv_usec = 0;
    setitimer(ITIMER_REAL, &t, 0);
}

/* Calls whose results go into what is printed, each right away. */
static void results(void) {
    struct stat s;
    struct timespec t;
    int fds[2], n = 0, d = open("/", O_RDONLY);
    char buf[2000];
    syscall(SYS_fstat, d, &s);
    printf("%ld\n", (long)s.st_ino + s.st_nlink);
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
    printf("%ld\n", (long)t.tv_sec + t.tv_nsec);
    pipe(fds);
    write(fds[1], "some text", 9);
    ioctl(fds[0], FIONREAD, &n);
    printf("%d\n", n);
    read(fds[0], buf, 5);
    printf("%s\n", buf);
    n = syscall(SYS_getdents64, d, buf, sizeof buf);
    show("directory", buf, n);
    char *first = malloc(10), *second = malloc(10);
    struct iovec parts[] = {{first, 3}, {second, 4}};
    write(fds[1], "in parts", 8);
    readv(fds[0], parts, 2);
    printf("%.3s %.4s\n", first, second);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    write(pair[0], "message", 7);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    recvmsg(pair[1], &message, 0);
    printf("%.3s %.4s\n", first, second);
}

int main(int argc, char **argv) {
    const char *w = argv[1], *path = argc > 2 ? argv[2] : 0;
    setvbuf(stdout, 0, _IOLBF, 0);
#define CASE(f, ...) if (!strcmp(w, #f)) f(__VA_ARGS__)
    CASE(discarded);
    CASE(moved);
    CASE(neighbours);
    CASE(heap);
    CASE(stack, path);
    CASE(twins);
    CASE(reserved);
    CASE(outputs);
    CASE(attributes, argv[0]);
    CASE(handles, argv[0]);
    CASE(queues);
    CASE(signals);
    CASE(clocks);
    CASE(shared);
    CASE(memory_file);
    CASE(remote);
    CASE(partial);
    CASE(passed, path);
    CASE(cut, path);
    CASE(renamed, path);
    CASE(replaced, path);
    CASE(zeroed);
    CASE(unread);
    CASE(disturbed, path);
    CASE(results);
    CASE(strings);
    return 0;
}

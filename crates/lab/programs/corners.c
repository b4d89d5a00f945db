/* Calls that write more memory than they say, or other memory, or although they fail. Each part prints what it finds
   in memory. */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static uint64_t sum(const volatile void *at, size_t n) {
    const volatile unsigned char *p = at;
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) s = s * 31 + p[i];
    return s;
}
static void show(const char *what, long ret, const volatile void *at, size_t n) {
    printf("%s %ld %016lx\n", what, ret < 0 ? -errno : ret, sum(at, n));
}
static char *fresh(size_t n) {
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(99);
    memset(p, 0x5a, n);
    return p;
}

/* Both numbers are written before the family is looked at. */
static void pair(void) {
    int f[2] = {77, 77};
    long r = syscall(SYS_socketpair, AF_INET, SOCK_STREAM, 0, f);
    show("pair", r, f, sizeof f);
}
static void childless(void) {
    char i[128];
    memset(i, 0x77, sizeof i);
    long r = syscall(SYS_waitid, P_ALL, 0, i, WEXITED, 0);
    show("childless", r, i, sizeof i);
}
/* Its number is written before the kernel finds that there is no clock of that kind, or no right to it. */
static void alarm_clock(void) {
    int id = 77;
    struct sigevent e = {.sigev_notify = SIGEV_NONE};
    for (int i = 0; i < 2; i++) {
        long r = syscall(SYS_timer_create, i ? CLOCK_REALTIME_ALARM : CLOCK_REALTIME, &e, &id);
        show("alarm_clock", r, &id, sizeof id);
    }
}
/* The data have been received when the length of the address is found wrong. */
static void negative(void) {
    int p[2], length = -1;
    char b[16];
    struct sockaddr_un a;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, p);
    write(p[0], "hello", 5);
    memset(b, 0x77, sizeof b);
    long r = syscall(SYS_recvfrom, p[1], b, sizeof b, 0, &a, &length);
    show("negative", r, b, sizeof b);
}
static void size_of_map(void) {
    int n = 77;
    long r = prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &n, 0, 0);
    show("size_of_map", r, &n, sizeof n);
}
/* The second page of the pipe does not fit: what was copied of it is not counted. */
static void half(void) {
    int p[2], q[2];
    pipe(p);
    char *b = fresh(3 * PAGE), *data = fresh(PAGE);
    memset(data, 3, PAGE);
    write(p[1], data, PAGE);
    write(p[1], data, PAGE);
    munmap(b + 2 * PAGE, PAGE);
    long r = read(p[0], b + 1000, 2 * PAGE);
    show("half", r, b, 2 * PAGE);
    read(p[0], b, 2 * PAGE);
    memset(b, 0x5a, 2 * PAGE);
    write(p[1], data, PAGE);
    write(p[1], data, PAGE);
    struct iovec v[3] = {{b, 10}, {b + 100, PAGE - 10}, {b + 2 * PAGE - 100, PAGE}};
    r = readv(p[0], v, 3);
    show("half of several", r, b, 2 * PAGE);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, q);
    memset(b, 0x5a, 2 * PAGE);
    write(q[0], data, 100);
    write(q[0], data, 200);
    struct iovec one = {b, 100}, two = {b + 2 * PAGE - 50, 200};
    struct mmsghdr m[2] = {{{0, 0, &one, 1}}, {{0, 0, &two, 1}}};
    r = recvmmsg(q[1], m, 2, 0, 0);
    show("half of messages", r, b, 2 * PAGE);
}
/* What is read covers the array that says where it goes. */
static void own_array(void) {
    int p[2];
    char data[64], into[32];
    struct iovec v[2];
    pipe(p);
    memset(data, 0x11, sizeof data);
    write(p[1], data, 40);
    memset(into, 0x77, sizeof into);
    v[0] = (struct iovec){v, 16};
    v[1] = (struct iovec){into, 24};
    long r = readv(p[0], v, 2);
    show("own_array", r, into, sizeof into);
}
static void own_header(void) {
    int p[2];
    char data[100], into[32];
    struct {
        struct msghdr m;
        struct iovec v[2];
    } s = {0};
    socketpair(AF_UNIX, SOCK_DGRAM, 0, p);
    memset(data, 0, sizeof data);
    write(p[0], data, sizeof data);
    memset(into, 0x77, sizeof into);
    s.v[0] = (struct iovec){&s, sizeof s};
    s.v[1] = (struct iovec){into, sizeof into};
    s.m.msg_iov = s.v;
    s.m.msg_iovlen = 2;
    long r = recvmsg(p[1], &s.m, 0);
    show("own_header", r, into, sizeof into);
}
static void own_length(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0), kind[4] = {16, 1, 2, 3};
    long r = getsockopt(s, IPPROTO_IP, IP_TTL, (char *)kind - 2, (socklen_t *)kind);
    show("own_length", r, kind, sizeof kind);
}
/* The device writes whole blocks. */
static void direct(const char *path) {
    int f = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *w = fresh(2 * PAGE), *b = fresh(4 * PAGE);
    write(f, w, 5000);
    fsync(f);
    close(f);
    f = open(path, O_RDONLY);
    fcntl(f, F_SETFL, O_DIRECT);
    long r = read(f, b, 4 * PAGE);
    /* Not every file system can do it. The bytes after the end are not the same on all. */
    if (r < 0) r = pread(f, b, 5000, 0);
    show("direct", r, b, 5000);
    if (sum(b, 4 * PAGE) == 1) puts("unlikely");
    unlink(path);
}
/* Memory that the kernel may drop; where there is none, other memory. */
static void droppable(void) {
    char *p = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, 8 | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) p = fresh(4 * PAGE);
    memset(p, 1, 4 * PAGE);
    madvise(p, 4 * PAGE, 21); /* MADV_PAGEOUT */
    volatile uint64_t dropped = sum(p, 4 * PAGE);
    if (dropped == 1) puts("unlikely");
    memset(p, 2, 4 * PAGE);
    puts("droppable");
}
/* Pages in front of those that are refused are discarded. */
static void locked(void) {
    char *p = fresh(2 * PAGE);
    mlock(p + PAGE, PAGE);
    long r = madvise(p, 2 * PAGE, MADV_DONTNEED);
    show("locked", r, p, 2 * PAGE);
}
/* Far below where the stack began. */
static __attribute__((noinline)) void deep(void) {
    char *p = alloca(4 << 20), *q = (char *)(((uintptr_t)p + PAGE) & -PAGE);
    memset(p, 7, 4 << 20);
    long r = madvise(q, 1 << 20, MADV_DONTNEED);
    show("deep", r, q, 1 << 20);
    q += 1 << 20;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    r = mmap(q, 4 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == q;
    show("mapped", r, q, 8 * PAGE);
}
/* Protections change up to the hole. */
static void protected_in_part(void) {
    char *p = fresh(4 * PAGE);
    munmap(p + 2 * PAGE, PAGE);
    mprotect(p, 2 * PAGE, PROT_NONE);
    long r = mprotect(p, 4 * PAGE, PROT_READ | PROT_WRITE);
    show("protected", r, p, 2 * PAGE);
    static const char one[] = {0xb8, 1, 0, 0, 0, 0xc3};
    char *c = mmap(0, 2 * PAGE, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(c + PAGE, PAGE);
    memcpy(c, one, sizeof one);
    mprotect(c, PAGE, PROT_READ | PROT_EXEC);
    int x = ((int (*)(void))c)();
    r = mprotect(c, 2 * PAGE, 7);
    c[1] = 9;
    printf("%ld %d\n", r, x * 10 + ((int (*)(void))c)());
}
/* Memory that comes within reach by a call that fails has the low address bits of other memory. */
static void twins(void) {
    char *p = fresh(PAGE), *at = p - (1ull << 32);
    memset(p, 1, PAGE);
    char *q = mmap(at, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (q == MAP_FAILED) return;
    long r = mprotect(q, 2 * PAGE, PROT_READ | PROT_WRITE);
    show("second", r, q, PAGE);
    memset(q, 2, PAGE);
    show("first", 0, p, PAGE);
}
/* Several mappings are moved at a time, where the kernel can do that. */
static void several(void) {
    char *p = fresh(6 * PAGE), *to = fresh(6 * PAGE);
    for (int i = 0; i < 6 * PAGE; i++) p[i] = i * 7;
    mprotect(p + PAGE, PAGE, PROT_READ);
    munmap(p + 3 * PAGE, PAGE);
    char *q = mremap(p, 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (q == MAP_FAILED) q = mremap(p, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (q == MAP_FAILED) return;
    show("several", 0, q, 3 * PAGE);
    show("behind", 0, q + 4 * PAGE, PAGE);
}
static void shared(void) {
    char *p = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    p[5] = 5;
    show("shared", 0, p, PAGE);
}

int main(int argc, char **argv) {
    const char *w = argv[1], *path = argc > 2 ? argv[2] : 0;
    setvbuf(stdout, 0, _IOLBF, 0);
#define CASE(f, ...) if (!strcmp(w, #f)) f(__VA_ARGS__)
    CASE(pair);
    CASE(childless);
    CASE(alarm_clock);
    CASE(negative);
    CASE(size_of_map);
    CASE(half);
    CASE(own_array);
    CASE(own_header);
    CASE(own_length);
    CASE(direct, path);
    CASE(droppable);
    CASE(locked);
    CASE(deep);
    CASE(protected_in_part);
    CASE(twins);
    CASE(several);
    CASE(shared);
    return 0;
}

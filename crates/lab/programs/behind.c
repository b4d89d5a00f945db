// Code that changes although it cannot be written where it is mapped, or only at other addresses. It changes at
// places that nobody has executed, and at others.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

typedef int function(void);
enum { PAGE = 4096 };
static const int rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;

// mov eax, n; ret
static void emit(unsigned char *at, unsigned char n) {
    const unsigned char code[] = {0xb8, n, 0, 0, 0, 0xc3};
    memcpy(at, code, sizeof code);
}

// Says what it got in a system call, which replay compares.
static void got(const char *what, int n) {
    lseek(-1, n, SEEK_SET);
    printf("%s %d\n", what, n);
}

static int call(void *at) { return ((function *)at)(); }

static int file(const unsigned char *page) {
    int fd = memfd_create("code", 0);
    if (write(fd, page, PAGE) != PAGE)
        exit(2);
    return fd;
}

int main(void) {
    unsigned char page[PAGE] = {0}, code[8];
    for (int i = 0; i < 16; i++)
        emit(page + 256 * i, i + 1);

    // A private mapping of a file that is written. What was not written through the mapping comes from the file.
    int fd = file(page);
    unsigned char *p = mmap(0, PAGE, rx, MAP_PRIVATE, fd, 0);
    got("file", call(p));
    emit(code, 50);
    if (pwrite(fd, code, 6, 256) != 6)
        return 1;
    got("file", call(p + 256));
    got("file", call(p));

    // A shared one.
    unsigned char *s = mmap(0, PAGE, rx, MAP_SHARED, fd, 0);
    got("shared", call(s) + call(s + 512));
    emit(code, 60);
    if (pwrite(fd, code, 6, 512) != 6)
        return 1;
    got("shared", call(s + 512));

    // The process's memory as a file.
    unsigned char *m = mmap(0, PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(m, page, PAGE);
    mprotect(m, PAGE, rx);
    got("mem", call(m));
    int mem = open("/proc/self/mem", O_RDWR);
    emit(code, 70);
    if (mem < 0 || pwrite(mem, code, 6, (long)(m + 256)) != 6)
        return 1;
    got("mem", call(m + 256));
    got("mem", call(m));

    // Another process's way, which needs memory that can be written.
    mprotect(m, PAGE, rw | PROT_EXEC);
    got("vm", call(m + 512));
    emit(code, 80);
    struct iovec from = {code, 6}, to = {m + 512, 6};
    if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != 6)
        return 1;
    got("vm", call(m + 512));

    // Moved to another place and back, with others in between.
    mprotect(m, PAGE, rx);
    unsigned char *n = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    n = mremap(m, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, n);
    got("moved", call(n) + call(n + 768));
    mmap(m, PAGE, rw | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    emit(m, 90);
    got("moved", call(m));
    emit(m + 768, 91);
    got("moved", call(m + 768));
    n = mremap(n, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m);
    got("moved", call(m) + call(m + 768));
    munmap(m, PAGE);
    m = mmap(m, PAGE, rw | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    emit(m + 1024, 92), emit(m, 93);
    got("mapped", call(m + 1024));
    got("mapped", call(m));
    return 0;
}

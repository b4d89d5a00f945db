/* Maps, moves, protects and releases memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long sum(const unsigned char *p, size_t n) {
    unsigned long s = 5381;
    for (size_t i = 0; i < n; i++)
        s = s * 33 + p[i];
    return s;
}

int main(void) {
    const size_t page = 4096;
    int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *a = mmap(0, 64 * page, rw, anonymous, -1, 0);
    for (size_t i = 0; i < 64 * page; i++)
        a[i] = (unsigned char)(i * 7);
    printf("%lx\n", sum(a, 64 * page));
    munmap(a + 8 * page, 8 * page);
    unsigned char *hole = mmap(a + 8 * page, 8 * page, rw, anonymous | MAP_FIXED, -1, 0);
    printf("%lx %d\n", sum(a, 64 * page), hole == a + 8 * page);
    unsigned char *moved = mremap(a, 64 * page, 200 * page, MREMAP_MAYMOVE);
    printf("%lx\n", sum(moved, 200 * page));
    moved[199 * page] = 1;
    moved = mremap(moved, 200 * page, 10 * page, 0);
    madvise(moved + page, 2 * page, MADV_DONTNEED);
    printf("%lx\n", sum(moved, 10 * page));

    char *before = sbrk(0);
    char *more = sbrk(100000);
    memset(more, 3, 100000);
    printf("%d %lx\n", more == before, sum((unsigned char *)more, 100000));
    sbrk(-50000);
    more = sbrk(60000);
    printf("%lx\n", sum((unsigned char *)before, 50000));

    /* More address space than there is memory, sparsely used. */
    size_t huge = 1UL << 36;
    unsigned char *sparse = mmap(0, huge, rw, anonymous | MAP_NORESERVE, -1, 0);
    unsigned long total = 0;
    if (sparse != MAP_FAILED) {
        for (size_t i = 0; i < huge; i += huge / 64)
            sparse[i] = (unsigned char)(i >> 30);
        for (size_t i = 0; i < huge; i += huge / 64)
            total = total * 3 + sparse[i];
        munmap(sparse, huge);
    }
    printf("%lx\n", total);

    /* A file through a private, a shared mapping and the descriptor at once. */
    FILE *f = tmpfile();
    int fd = fileno(f);
    if (ftruncate(fd, (off_t)(4 * page)))
        return 1;
    unsigned char *shared = mmap(0, 4 * page, rw, MAP_SHARED, fd, 0);
    unsigned char *private = mmap(0, 4 * page, rw, MAP_PRIVATE, fd, 0);
    shared[5] = 50;
    printf("%d", private[5]);
    private[5] = 51;
    if (pwrite(fd, "abc", 3, 5) != 3)
        return 1;
    printf(" %d %d", shared[5], private[5]);
    unsigned char buffer[8] = {0};
    shared[9] = 99;
    if (pread(fd, buffer, 8, 5) != 8)
        return 1;
    printf(" %d %d\n", buffer[0], buffer[4]);

    errno = 0;
    void *refused = mmap(0, 0, rw, anonymous, -1, 0);
    printf("%d %s\n", refused == MAP_FAILED, strerror(errno));
    ssize_t n = read(open("/dev/zero", O_RDONLY), (void *)16, 100);
    printf("%zd %s\n", n, strerror(errno));

    for (int round = 0; round < 50; round++) {
        void *blocks[40];
        for (int i = 0; i < 40; i++)
            memset(blocks[i] = malloc((size_t)(i * i * 97 + 1)), i, (size_t)(i * i * 97 + 1));
        for (int i = 0; i < 40; i++) {
            total += sum(blocks[(i * 7) % 40], 1);
            free(blocks[(i * 7) % 40]);
        }
    }
    printf("%lx\n", total);
    return 0;
}

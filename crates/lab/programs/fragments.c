// Very many mappings, of several kinds.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static char **all;

static int file(void) {
    int fd = open("pages", O_CREAT | O_RDWR, 0600);
    char page[PAGE];
    memset(page, 'p', PAGE);
    if (fd < 0 || write(fd, page, PAGE) != PAGE) exit(1);
    close(fd);
    return open("pages", O_RDONLY);
}

static void map(long i, int prot, int flags, int fd) {
    all[i] = mmap(0, PAGE, prot, flags, fd, 0);
    if (all[i] == MAP_FAILED) exit(2);
}

static void of_files(long n, int flags) {
    int fd = file();
    for (long i = 0; i < n; i++) map(i, PROT_READ, flags, fd);
    for (long i = 0; i < n; i += n / 10)
        if (all[i][5] != 'p') exit(3);
    for (long i = 0; i < n; i++) munmap(all[i], PAGE);
}

static void alternating(long n) {
    for (long i = 0; i < n; i++) map(i, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, ANON, -1);
    for (long i = 0; i < n; i += 2) all[i][1] = i;
    for (long i = 0; i < n; i += 3) munmap(all[i], PAGE);
    // Into the holes.
    for (long i = 0; i < n; i += 3) map(i, PROT_READ, ANON, -1);
    for (long i = 0; i < n; i++) munmap(all[i], PAGE);
}

static void guards(long n) {
    char *p = mmap(0, 2 * n * PAGE, PROT_READ | PROT_WRITE, ANON, -1, 0);
    for (long i = 0; i < n; i++)
        if (mprotect(p + 2 * i * PAGE, PAGE, PROT_NONE)) exit(4);
    for (long i = 0; i < n; i += 7) p[(2 * i + 1) * PAGE] = i;
}

static void pieces(long n) {
    char *p = mmap(0, 2 * n * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    for (long i = 0; i < n; i++)
        if (mmap(p + 2 * i * PAGE, PAGE, PROT_READ | PROT_WRITE, ANON | MAP_FIXED, -1, 0) == MAP_FAILED) exit(5);
    for (long i = 0; i < n; i += 7) p[2 * i * PAGE] = i;
    munmap(p, 2 * n * PAGE);
}

// Maps, unmaps, moves and protects at random, and keeps in mind what each page has to hold.
static void random_ones(long n) {
    enum { MOST = 300 };
    static struct { unsigned char *at; long pages; unsigned char mark; } list[MOST];
    uint64_t r = 88172645463325252u, sum = 0;
    for (long step = 0; step < n; step++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        int i = r % MOST;
        long pages = 1 + (r >> 20) % 40;
        if (!list[i].at) {
            int prot = PROT_READ | PROT_WRITE;
            list[i].at = mmap(0, pages * PAGE, prot, ANON, -1, 0);
            if (list[i].at == MAP_FAILED) exit(6);
            list[i].pages = pages, list[i].mark = r >> 30;
            for (long k = 0; k < pages; k++) {
                if (list[i].at[k * PAGE]) exit(7);
                list[i].at[k * PAGE] = list[i].mark + k;
            }
            continue;
        }
        for (long k = 0; k < list[i].pages; k++)
            if (list[i].at[k * PAGE] != (unsigned char)(list[i].mark + k)) exit(8);
        sum = sum * 31 + list[i].mark;
        switch (r >> 50 & 3) {
        case 0:
            list[i].at = mremap(list[i].at, list[i].pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
            if (list[i].at == MAP_FAILED) exit(9);
            for (long k = list[i].pages; k < pages; k++) list[i].at[k * PAGE] = list[i].mark + k;
            list[i].pages = pages;
            break;
        case 1:
            if (mprotect(list[i].at, (list[i].pages + 1) / 2 * PAGE, PROT_READ)) exit(10);
            if (mprotect(list[i].at, list[i].pages * PAGE, PROT_READ | PROT_WRITE)) exit(11);
            break;
        default:
            munmap(list[i].at, list[i].pages * PAGE);
            list[i].at = 0;
        }
    }
    printf("%lx\n", sum);
}

int main(int argc, char **argv) {
    long n = atol(argv[2]);
    all = malloc(n * sizeof *all);
    if (!strcmp(argv[1], "private")) of_files(n, MAP_PRIVATE);
    if (!strcmp(argv[1], "shared")) of_files(n, MAP_SHARED);
    if (!strcmp(argv[1], "alternating")) alternating(n);
    if (!strcmp(argv[1], "guards")) guards(n);
    if (!strcmp(argv[1], "pieces")) pieces(n);
    if (!strcmp(argv[1], "random")) random_ones(n);
    puts("done");
    return 0;
}

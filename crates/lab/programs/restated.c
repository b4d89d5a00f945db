// Changes its memory in every way of which a key frame has to say something. Between two changes it reads all of it.
// Argument: a file of 8 pages that nobody changes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24, ROUNDS = 400 };

// The first page says of each page, by a byte, whether it is mapped: 1 here, 2 at the address with the same low bits.
static unsigned char *arena, *far_away;
static int fd;
static uint64_t seed = 88172645463325252u, sum;

static unsigned below(unsigned n) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (seed >> 20) % n;
}

static unsigned char *page(unsigned i) {
    return (arena[i] == 2 ? far_away : arena) + i * PAGE;
}

static void fill(unsigned char *p, unsigned n) {
    for (unsigned i = 0; i < n; i += 8) {
        uint64_t v = seed + i;
        memcpy(p + i, &v, 8);
    }
}

static void check(void) {
    for (unsigned i = 1; i < PAGES; i++)
        if (arena[i])
            for (unsigned k = below(64) * 8; k < PAGE; k += 512) {
                uint64_t v;
                memcpy(&v, page(i) + k, 8);
                sum = (sum ^ v) * 0x9e3779b97f4a7c15u;
            }
}

static void map(unsigned char *at, unsigned flags, int file, unsigned offset) {
    int more = MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0) | flags;
    if (mmap(at, PAGE, PROT_READ | PROT_WRITE, more, file, offset) != at)
        exit(3);
}

// Back from the other address, if it is there.
static void home(unsigned i) {
    if (arena[i] != 2)
        return;
    arena[i] = 0;
    munmap(far_away + i * PAGE, PAGE);
    map(arena + i * PAGE, MAP_FIXED, -1, 0);
    arena[i] = 1;
}

static void change(unsigned what, unsigned i) {
    unsigned char *p = arena + i * PAGE;
    unsigned j = 1 + below(PAGES - 1);
    if (what != 0)
        home(i), home(j);
    switch (what) {
    case 0: fill(page(i), PAGE); break;
    case 1: memset(p, 0, PAGE); break;
    case 2: madvise(p, PAGE, MADV_DONTNEED); break;
    case 3:
        arena[i] = 0;
        munmap(p, PAGE);
        map(p, MAP_FIXED, -1, 0);
        arena[i] = 1;
        break;
    case 4: map(p, MAP_FIXED, fd, i % 8 * PAGE); break;
    case 5:
        map(p, MAP_FIXED, fd, i % 7 * PAGE);
        fill(p + 40, 512);
        break;
    case 6:
        if (i == j)
            break;
        map(p, MAP_FIXED, -1, 0);
        fill(p, 64);
        arena[i] = arena[j] = 0;
        if (mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, arena + j * PAGE) == MAP_FAILED)
            exit(4);
        map(p, MAP_FIXED, -1, 0);
        arena[i] = arena[j] = 1;
        break;
    case 7:
        mprotect(p, PAGE, PROT_READ);
        check();
        mprotect(p, PAGE, PROT_READ | PROT_WRITE);
        break;
    case 8: {
        char *end = sbrk(8 * PAGE);
        fill((unsigned char *)end, 8 * PAGE);
        check();
        sbrk(-8 * PAGE);
        break;
    }
    case 9:
        arena[i] = 0;
        munmap(p, PAGE);
        map(far_away + i * PAGE, MAP_FIXED_NOREPLACE, -1, 0);
        arena[i] = 2;
        fill(page(i) + 100, 80);
        break;
    case 10: {
        // As it was before a key frame.
        unsigned char before[PAGE];
        memcpy(before, p, PAGE);
        fill(p, PAGE);
        check();
        memcpy(p, before, PAGE);
        break;
    }
    case 11: {
        volatile unsigned char deep[16 * PAGE];
        for (unsigned k = 0; k < sizeof deep; k += 1000)
            deep[k] = k + i;
        sum += deep[3000];
        break;
    }
    }
}

int main(int argc, char **argv) {
    fd = open(argv[argc - 1], O_RDONLY);
    arena = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || arena == MAP_FAILED)
        return 2;
    // Somewhere nothing is.
    for (far_away = arena + (1ull << 32);; far_away += 1ull << 32) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        if (mmap(far_away, PAGES * PAGE, PROT_NONE, flags, -1, 0) == far_away)
            break;
    }
    munmap(far_away, PAGES * PAGE);
    memset(arena, 1, PAGES);
    for (int n = 0; n < ROUNDS; n++) {
        change(below(12), 1 + below(PAGES - 1));
        check();
        if (n % 40 == 39)
            dprintf(1, "%d: %lx\n", n, (long)sum);
    }
    dprintf(1, "at %p\n", (void *)arena);
    return 0;
}

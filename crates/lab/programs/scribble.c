// Writes anything into the memory that the recorder shares with its collector, in one of several ways. Then it goes
// on. Natively there is no memory of this kind.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t seed;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static uint64_t number(void) {
    switch (next() % 7) {
    case 0: return 0;
    case 1: return ~0ull;
    case 2: return next() % 256;
    case 3: return 1ull << next() % 64;
    case 4: return getpid();
    case 5: return 1;
    default: return next();
    }
}

// Through the kernel: what is not mapped is an error.
static int copy(uint64_t at, void *bytes, size_t len, int write) {
    struct iovec here = {bytes, len}, there = {(void *)at, len};
    ssize_t n = write ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                      : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return n == (ssize_t)len;
}

static uint64_t find(void) {
    uint64_t word;
    for (uint64_t at = 0x680100000000; at < 0x680110000000; at += 4096)
        if (copy(at, &word, 8, 0) && !memcmp(&word, "HSCTL", 5))
            return at;
    return 0;
}

// The header, the locks, the control pages of the first rings, and their data.
static uint64_t somewhere(void) {
    const uint64_t rings = 8192 + 16384, data = rings + 16384ull * 4096 + (8 << 20);
    switch (next() % 6) {
    case 0: return next() % 1024;
    case 1: return next() % 8192;
    case 2: return 8192 + next() % 16384;
    case 3: return rings + next() % 6 * 4096 + next() % 320;
    case 4: return rings + next() % 16384 * 4096 + next() % 320;
    default: return data + next() % (6 << 20);
    }
}

static void scribble(uint64_t base, int times) {
    for (int i = 0; i < times; i++) {
        uint64_t value = number();
        copy(base + (somewhere() & ~7), &value, 8, 1);
    }
}

int main(int argc, char **argv) {
    seed = strtoull(argv[1], 0, 10) * 0x9e3779b97f4a7c15 | 1;
    for (int i = 0; i < 4; i++) next();
    int times = atoi(argv[2]);
    uint64_t base = find();
    printf("%s\n", base ? "found" : "none");
    fflush(stdout);
    if (!base) return 0;
    for (int round = 0; round < 3; round++) {
        scribble(base, times);
        // Others are created meanwhile, and come to the same memory.
        pid_t child = fork();
        if (child == 0) {
            scribble(base, times / 2);
            execl("/bin/true", "true", (char *)0);
            _exit(1);
        }
        for (int i = 0; i < 200; i++) getppid();
        if (child > 0) waitpid(child, 0, 0);
    }
    puts("alive");
    return 0;
}

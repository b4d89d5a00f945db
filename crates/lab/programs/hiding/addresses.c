// Calls on memory with unusual ranges.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long r) { printf("%s: %s\n", what, r == -1 ? strerrorname_np(errno) : "ok"); errno = 0; }
#define MAP(addr, len, flags) mmap((void *)(addr), len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (flags), -1, 0)
#define MB 0x100000UL

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static char own[8192] __attribute__((aligned(4096)));
    say("mlock", mlock(own, 4096));
    say("mlockall future", mlockall(MCL_FUTURE));
    char *p = MAP(0, MB, 0);
    say("mapped", p == MAP_FAILED ? -1 : 0);
    p[5] = 1;
    say("munlockall", munlockall());
    say("mlockall current", mlockall(MCL_CURRENT | MCL_ONFAULT));
    say("munlockall", munlockall());
    say("nonsense", mlockall(0)), say("nonsense", mlockall(64));
    // Places where nothing of the program is: as free memory natively.
    // The recorder's parts of the address space are left out (docs/transparency.md).
    static const uint64_t odd[] = {0x100000000, 0x10000000000, 0x200000000000, 0x510000000000, 0x600000000000, 0x670000000000, 0x701000000000, 0x7fffff000000 - 64 * MB * 1024};
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        char *at = MAP(odd[i], 8192, MAP_FIXED);
        printf("fixed at %lx: %d", odd[i], at == (char *)odd[i]);
        if (at != MAP_FAILED) at[8000] = 7, printf(" %d", at[8000]);
        at = MAP(odd[i] + 65536, 4096, MAP_FIXED_NOREPLACE);
        printf(" %d", at == (char *)odd[i] + 65536);
        at = MAP(odd[i] + 131072, 4096, 0);
        printf(" %d", at == (char *)odd[i] + 131072);
        printf(" %d", munmap((void *)odd[i], 8192));
        printf(" %d\n", munmap((void *)(odd[i] + MB), 4096));
    }
    say("munmap of half", munmap((void *)0x10000000000, 0x400000000000));
    char *reserved = mmap((void *)0x560000000000 - 0x400000000000, 0x120000000000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    say("reservation", reserved == MAP_FAILED ? -1 : 0);
    say("munmap of it", munmap(reserved, 0x120000000000));
    reserved = mmap((void *)0x200000000000, 0x100000000000 + 0x210000000000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    say("reservation across", reserved == MAP_FAILED ? -1 : 0);
    say("munmap of it", munmap(reserved, 0x310000000000));
    say("munmap of free", munmap((void *)0x600000000000, 0x120000000000));
    say("protect nothing", mprotect((void *)0x610000000000, 4096, PROT_READ));
    say("advise nothing", madvise((void *)0x620000000000, 4096, MADV_DONTNEED));
    say("lock nothing", mlock((void *)0x620000000000, 4096));
    unsigned char vec;
    say("mincore nothing", mincore((void *)0x610000000000, 4096, &vec));
    say("msync nothing", msync((void *)0x610000000000, 4096, MS_ASYNC));
    say("remap nothing", mremap((void *)0x610000000000, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    int fd = open("/dev/zero", O_RDWR);
    say("read to nothing", read(fd, (void *)0x610000001000, 16));
    say("read to nothing", read(fd, (void *)0x610100020000, 16));
    say("write of nothing", write(open("/dev/null", O_WRONLY), (void *)0x610000001000, 16));
    int ends[2];
    pipe(ends);
    say("write of nothing", write(ends[1], (void *)0x610000001000, 16));
    // Large blocks that move.
    size_t size = 64 * MB;
    char *big = MAP(0, size, 0);
    for (size_t i = 0; i < size; i += 4096) *(uint32_t *)(big + i) = i;
    big = mremap(big, size, 2 * size, MREMAP_MAYMOVE);
    uint64_t sum = 0;
    for (size_t i = 0; i < 2 * size; i += 4096) sum += *(uint32_t *)(big + i);
    printf("moved: %lx\n", sum);
    char *hole = MAP(0, 2 * size, 0);
    big = mremap(big, 2 * size, size, MREMAP_MAYMOVE | MREMAP_FIXED, hole);
    sum = 0;
    for (size_t i = 0; i < size; i += 4096) sum += *(uint32_t *)(big + i);
    printf("moved: %lx %d\n", sum, big == hole);
    char *left = mremap(big, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    printf("left: %d %x %x\n", left != big, *(uint32_t *)(left + 8192), *(uint32_t *)(big + 8192));
    static const int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTDUMP, MADV_DODUMP, MADV_MERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, 25, 102, 103};
    for (unsigned i = 0; i < sizeof advice / sizeof *advice; i++) {
        char *q = MAP(0, 8192, 0);
        q[0] = 5;
        errno = 0;
        int r = madvise(q, 8192, advice[i]);
        printf("advice %d: %s, %d\n", advice[i], r ? strerrorname_np(errno) : "ok", advice[i] == MADV_FREE || advice[i] == 102 || advice[i] == 103 ? 0 : q[0]);
    }
    char *wiped = MAP(0, 4096, 0), *absent = MAP(0, 4096, 0);
    wiped[0] = absent[0] = 3;
    madvise(wiped, 4096, MADV_WIPEONFORK), madvise(absent, 4096, MADV_DONTFORK);
    int status;
    if (!fork()) {
        printf("wiped %d\n", wiped[0]);
        return absent[0];
    }
    wait(&status), printf("status %x\n", status & 0x7f);
    // The whole address space is advised not to be in the child. (The child of that dies, natively.)
    char *start = sbrk(0);
    say("brk", brk(start + 300 * MB));
    start[299 * MB] = 1;
    say("brk down", brk(start));
    say("brk too far", brk((void *)0x700000000000));
    struct rlimit data = {8 * MB, RLIM_INFINITY}, before;
    getrlimit(RLIMIT_DATA, &before);
    setrlimit(RLIMIT_DATA, &data);
    say("brk beyond the limit", brk(start + 300 * MB));
    say("mapping beyond the limit", MAP(0, 300 * MB, 0) == MAP_FAILED ? -1 : 0);
    setrlimit(RLIMIT_DATA, &before);
    struct rlimit space = {400 * MB, RLIM_INFINITY};
    getrlimit(RLIMIT_AS, &before);
    setrlimit(RLIMIT_AS, &space);
    say("beyond the address space", MAP(0, 1000 * MB, 0) == MAP_FAILED ? -1 : 0);
    char *fits = MAP(0, 50 * MB, 0);
    say("within", fits == MAP_FAILED ? -1 : 0);
    say("malloc", malloc(20 * MB) ? 0 : -1);
    if (!fork()) {
        for (volatile int i = 0; i < 100000; i++) getppid() + atoi("7");
        _exit(5);
    }
    wait(&status), printf("child %x\n", status);
    setrlimit(RLIMIT_AS, &before);
    // Shared memory of the older kind, and devices.
    int id = shmget(IPC_PRIVATE, 8192, 0600);
    char *s = shmat(id, NULL, 0);
    strcpy(s, "shared");
    if (!fork()) { strcpy(s, "by the child"); _exit(0); }
    wait(&status), printf("%s\n", s);
    say("shmat fixed", (long)shmat(id, (void *)0x620000000000, 0) == -1 ? -1 : 0);
    say("shmat over", (long)shmat(id, s, SHM_REMAP) == -1 ? -1 : 0), printf("%s\n", s);
    shmctl(id, IPC_RMID, NULL), shmdt(s);
    char *zero = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    zero[1] = 1, printf("zero %d %d\n", zero[0], zero[1]);
    char *shared_zero = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!fork()) { shared_zero[1] = 9; _exit(0); }
    wait(&status), printf("shared zero %d\n", shared_zero[1]);
    int m = memfd_create("x", MFD_ALLOW_SEALING);
    ftruncate(m, 8192);
    char *v1 = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
    strcpy(v1, "in a memfd");
    say("seal too early", fcntl(m, F_ADD_SEALS, F_SEAL_WRITE));
    char *v2 = mmap(NULL, 8192, PROT_READ, MAP_SHARED, m, 0);
    pwrite(m, "I", 1, 0), printf("%s %s\n", v1, v2);
    munmap(v1, 8192), munmap(v2, 8192);
    say("sealed", fcntl(m, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK)), say("shrunk", ftruncate(m, 0)), say("written", pwrite(m, "x", 1, 0));
    v2 = mmap(NULL, 8192, PROT_READ, MAP_SHARED, m, 0);
    say("mapped for reading", v2 == MAP_FAILED ? -1 : 0);
    say("for writing", mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0) == MAP_FAILED ? -1 : 0);
    say("remap_file_pages", remap_file_pages(v2, 4096, 0, 1, 0));
    printf("%s|%d\n", v2 + 4096, v2[0]);
    say("mseal", syscall(462, v2, 4096, 0)), say("of a sealed one", munmap(v2, 4096));
    say("pkey_mprotect", syscall(SYS_pkey_mprotect, p, 4096, PROT_READ, -1));
}

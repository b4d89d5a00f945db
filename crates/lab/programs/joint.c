// Large blocks that are only read for a long time, until the recorder lets them share pages with their cells. Then
// something happens to them that must not show it: the first argument says what. The second one names a file, which
// gets what can be seen from outside.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4 << 20, WORDS = SIZE / 8, HEAP = 2 << 20, ROUNDS = 80 };

long *block;
static long *heap;

static long sum(const long *p, long n) {
    long s = 0;
    for (long i = 0; i < n; i++)
        s += *(volatile const long *)&p[i] * (i + 1);
    return s;
}

static void sums(const char *when) {
    printf("%s: %lx %lx\n", when, sum(block, WORDS), sum(heap, HEAP / 8));
}

static jmp_buf back;
static void fault(int signo) { siglongjmp(back, signo); }

static void *writer(void *unused) {
    for (long i = 0; i < WORDS; i += 100)
        __atomic_fetch_add(&block[i], 7, __ATOMIC_SEQ_CST);
    return unused;
}

// Forks a child that reads memory for a long time. That memory is wiped in its own children. Then it has a child.
static void *forker(void *unused) {
    if (fork() == 0) {
        for (long i = 0; i < WORDS; i++)
            block[i] = i;
        long s = 0;
        for (int i = 0; i < ROUNDS; i++)
            s += sum(block, WORDS);
        printf("child: %lx\n", s);
        if (fork() == 0) {
            sums("grandchild");
            _exit(0);
        }
        wait(0);
        _exit(0);
    }
    wait(0);
    return unused;
}

// The entries of the block in the process's list of mappings. It takes no memory from the heap, which has another use
// here.
static void listed(void) {
    static char text[100000];
    int fd = open("/proc/self/maps", O_RDONLY);
    long n = 0, got;
    while ((got = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += got;
    close(fd);
    for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
        unsigned long start, end;
        char permissions[8], name[500] = "";
        sscanf(line, "%lx-%lx %7s %*s %*s %*s %499s", &start, &end, permissions, name);
        if (start < (unsigned long)block + SIZE && (unsigned long)block < end)
            printf("mapped %s '%s'\n", permissions, name);
    }
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    block = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    heap = sbrk(HEAP);
    for (long i = 0; i < WORDS; i++)
        block[i] = i * i;
    for (long i = 0; i < HEAP / 8; i++)
        heap[i] = i ^ 0x5555;
    long s = 0;
    for (int i = 0; i < ROUNDS; i++)
        s += sum(block, WORDS) + sum(heap, HEAP / 8);
    printf("%lx\n", s);
    fflush(stdout);
    char command[200];
    snprintf(command, sizeof command, "grep -c memfd:memory /proc/%d/maps > %s", getpid(), argv[2]);
    if (fork() == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)0);
        _exit(1);
    }
    wait(0);
    if (!strcmp(what, "used")) {
        // The kernel writes.
        int ends[2];
        static char text[10000];
        memset(text, 'x', sizeof text);
        if (pipe(ends) || write(ends[1], text, sizeof text) != sizeof text)
            return 1;
        printf("read %ld\n", (long)read(ends[0], (char *)block + 5000, sizeof text));
        sums("kernel");
        // A child writes into its copy.
        fflush(stdout);
        if (fork() == 0) {
            sums("child");
            for (long i = 0; i < WORDS; i += 1000)
                block[i]++;
            sums("changed child");
            block = mremap(block, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
            sums("moved child");
            fflush(stdout);
            _exit(0);
        }
        wait(0);
        sums("parent");
        // It cannot be written for a while.
        signal(SIGSEGV, fault);
        mprotect(block, SIZE / 2, PROT_READ);
        if (!sigsetjmp(back, 1))
            block[10] = 1;
        else
            printf("refused\n");
        mprotect(block, SIZE / 2, PROT_READ | PROT_WRITE);
        block[11] = 2;
        sums("protected");
        // Another block takes the place of half of it.
        munmap(block + WORDS / 2, SIZE / 2);
        mmap(block + WORDS / 2, SIZE / 2, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        sums("replaced");
        for (long i = 0; i < WORDS; i++)
            block[i] += 3;
        sums("written");
    } else if (!strcmp(what, "resized")) {
        long *part = block + WORDS / 8;
        part = mremap(part, SIZE / 8, SIZE / 4, MREMAP_MAYMOVE);
        printf("%s\n", part == MAP_FAILED ? strerror(errno) : "grown");
        part[WORDS / 4 - 1] = 1;
        printf("part %lx\n", sum(part, WORDS / 4));
        mmap(block + WORDS / 8, SIZE / 8, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        long *moved = mremap(block, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
        printf("%s\n", moved == MAP_FAILED ? strerror(errno) : "grown");
        block = moved;
        sums("grown");
        block[2 * WORDS - 1] = 5;
        moved = mremap(block, 2 * SIZE, SIZE, 0);
        printf("%s\n", moved == MAP_FAILED ? strerror(errno) : "shrunk");
        sums("shrunk");
        moved = mremap(block, SIZE, 16 * SIZE, MREMAP_MAYMOVE);
        printf("%s\n", moved == MAP_FAILED ? strerror(errno) : "grown");
        block = moved;
        sums("grown again");
    } else if (!strcmp(what, "discarded")) {
        printf("%d\n", madvise(block + WORDS / 4, SIZE / 4, MADV_DONTNEED));
        sums("discarded");
        listed();
        sbrk(-HEAP / 2);
        sbrk(HEAP / 2);
        sums("shrunk");
        listed();
        long *moved = mremap(block, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
        printf("%s\n", moved == MAP_FAILED ? strerror(errno) : "grown");
    } else if (!strcmp(what, "threads")) {
        pthread_t t;
        pthread_create(&t, 0, writer, 0);
        writer(0);
        pthread_join(t, 0);
        sums("written by two");
        long *moved = mremap(block, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
        printf("%s\n", moved == MAP_FAILED ? strerror(errno) : "grown");
        block = moved;
        listed();
    } else if (!strcmp(what, "unaligned")) {
        printf("%d\n", madvise(block, SIZE / 2 + 100, MADV_WILLNEED));
        sums("part of a page");
        printf("%d\n", madvise((char *)block + 1, SIZE / 2, MADV_WILLNEED));
        printf("%d\n", mprotect(heap, 5000, PROT_READ | PROT_WRITE | PROT_EXEC));
        printf("%d\n", madvise(heap, 100000, MADV_SEQUENTIAL));
        long *same = mremap(block, SIZE - 1000, SIZE - 500, 0);
        printf("%s\n", same == MAP_FAILED ? strerror(errno) : "same");
        sums("resized by less");
        listed();
        sums("unaligned");
    } else if (!strcmp(what, "inherited")) {
        printf("wipe %d\n", madvise(block, SIZE, MADV_WIPEONFORK));
        pthread_t t;
        pthread_create(&t, 0, forker, 0);
        pthread_join(t, 0);
    } else if (!strcmp(what, "special")) {
        printf("lock %d\n", mlock(block, 65536));
        printf("name %d\n", prctl(0x53564d41, 0, block, SIZE, "block"));
        printf("no fork %d\n", madvise(block, SIZE, MADV_DONTFORK));
        printf("fork %d\n", madvise(block, SIZE, MADV_DOFORK));
        printf("wipe %d\n", madvise(block, SIZE, MADV_WIPEONFORK));
        fflush(stdout);
        if (fork() == 0) {
            sums("wiped");
            fflush(stdout);
            _exit(0);
        }
        wait(0);
        sums("special");
    } else {
        abort();
    }
    return 0;
}

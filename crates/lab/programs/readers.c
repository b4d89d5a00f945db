/* Threads that go through the same memory from line to line.
 *
 *   same FILE     four threads sum 24 MiB twice; FILE gets the process's share of memory in KiB
 *   changing      three threads do so while a fourth one changes words here and there
 *   queue         a thread reads what another one writes right before
 *   moving        memory is remapped, protected and given back between rounds, and a child reads it, too
 *   edges         memory ends at pages without access, and behind the end of a file
 *   apart         a child reads other content in the same place, while the parent keeps what it has read
 *   killed        a process in the same memory is killed while it reads
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, SIZE = 24 * MIB, WORDS = SIZE / 8 };

static unsigned long *words;
static unsigned long sums[4];
static pthread_barrier_t barrier;

static unsigned long next(unsigned long *seed)
{
    *seed = *seed * 6364136223846793005UL + 1442695040888963407UL;
    return *seed >> 33;
}

static void *map(size_t size)
{
    void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(3);
    return p;
}

static void fill(unsigned long seed)
{
    for (long i = 0; i < WORDS; i++)
        words[i] = next(&seed) << 33 ^ next(&seed);
}

static unsigned long sum(long from, long to)
{
    unsigned long s = 0;
    for (long i = from; i < to; i++)
        s = s * 3 + words[i];
    return s;
}

static void *twice(void *which)
{
    unsigned long *to = which;
    for (int round = 1; round <= 2; round++)
        *to += round * sum(0, WORDS);
    pthread_barrier_wait(&barrier);
    /* The main thread looks at the process now. */
    pthread_barrier_wait(&barrier);
    return 0;
}

static void start(pthread_t *threads, int n, void *(*f)(void *))
{
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], 0, f, &sums[i]))
            exit(4);
}

static void join(pthread_t *threads, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], 0);
}

static void note_share(const char *file)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    f = fopen(file, "w");
    fprintf(f, "%ld\n", kib);
    fclose(f);
}

static void same(const char *file)
{
    pthread_t threads[4];
    fill(1);
    pthread_barrier_init(&barrier, 0, 5);
    start(threads, 4, twice);
    pthread_barrier_wait(&barrier);
    note_share(file);
    pthread_barrier_wait(&barrier);
    join(threads, 4);
    printf("%d %lx\n", sums[0] == sums[1] && sums[1] == sums[2] && sums[2] == sums[3], sums[0]);
}

static atomic_int over;

static void *read_always(void *to)
{
    do
        *(volatile unsigned long *)to = sum(0, WORDS / 4);
    while (!over);
    return 0;
}

static void changing(void)
{
    pthread_t threads[3];
    unsigned long seed = 5;
    fill(2);
    start(threads, 3, read_always);
    for (int i = 0; i < 300000; i++)
        __atomic_store_n(&words[next(&seed) % (WORDS / 4)], i, __ATOMIC_RELAXED);
    over = 1;
    join(threads, 3);
    printf("changed %lx\n", sum(0, WORDS / 4));
}

static atomic_long written;

static void *consume(void *to)
{
    unsigned long s = 0;
    for (long i = 0; i < WORDS / 64; i++) {
        while (written <= i)
            ;
        s = s * 5 + words[i % 4096];
        if (i % 512 == 511)
            sched_yield();
    }
    *(unsigned long *)to = s;
    return 0;
}

static void queue(void)
{
    pthread_t thread;
    unsigned long seed = 7, s = 0;
    start(&thread, 1, consume);
    /* The writer may be laps ahead, so a reader may see a later word: only that both come to the end counts. */
    for (long i = 0; i < WORDS / 64; i++) {
        words[i % 4096] = next(&seed);
        s += words[i % 4096];
        written = i + 1;
    }
    join(&thread, 1);
    printf("queue %lx\n", s);
}

static void *once(void *to)
{
    *(unsigned long *)to = sum(0, WORDS / 4);
    return 0;
}

static void moving(void)
{
    pthread_t threads[3];
    for (int round = 0; round < 4; round++) {
        fill(10 + round);
        start(threads, 3, once);
        join(threads, 3);
        printf("%d %lx %d\n", round, sums[0], sums[0] == sums[1] && sums[1] == sums[2]);
        fflush(stdout);
        if (round == 0) {
            /* Half of it is read-only for a moment, and a child reads all of it. */
            mprotect(words, SIZE / 2, PROT_READ);
            pid_t child = fork();
            if (!child)
                _exit(sum(0, WORDS / 4) != sums[0]);
            int status;
            waitpid(child, &status, 0);
            printf("child %d\n", status);
            mprotect(words, SIZE / 2, PROT_READ | PROT_WRITE);
        } else if (round == 1) {
            void *to = map(SIZE);
            words = mremap(words, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        } else {
            munmap((char *)words + MIB, SIZE - MIB);
            words = mremap(words, MIB, SIZE, MREMAP_MAYMOVE);
            if (words == MAP_FAILED)
                exit(5);
        }
    }
}

/* The file ends within a page; pages follow that have no file behind them. */
enum { FILE_SIZE = 3 * MIB + 1000, FILE_PAGES = 3 * MIB + 4096 };

static void *read_file(void *to)
{
    *(unsigned long *)to = sum(0, FILE_PAGES / 8);
    return 0;
}

static void edges(void)
{
    pthread_t threads[2];
    char name[] = "/tmp/readersXXXXXX";
    int fd = mkstemp(name);
    fill(20);
    if (write(fd, words, FILE_SIZE) != FILE_SIZE)
        exit(6);
    unlink(name);
    /* `once` reads a quarter. */
    mprotect((char *)words + SIZE / 4, 4096, PROT_NONE);
    start(threads, 2, once);
    join(threads, 2);
    printf("%lx %lx\n", sums[0], sums[1]);
    words = mmap(0, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    start(threads, 2, read_file);
    join(threads, 2);
    printf("%lx %lx\n", sums[0], sums[1]);
}

static void *read_before_and_behind(void *to)
{
    sum(0, WORDS / 4);
    pthread_barrier_wait(&barrier);
    /* A child runs, and memory changes. */
    pthread_barrier_wait(&barrier);
    *(unsigned long *)to = sum(0, WORDS / 4);
    return 0;
}

static void apart(void)
{
    pthread_t thread, other;
    fill(30);
    pthread_barrier_init(&barrier, 0, 2);
    start(&thread, 1, read_before_and_behind);
    pthread_barrier_wait(&barrier);
    pid_t child = fork();
    if (!child) {
        fill(31);
        pthread_create(&other, 0, once, &sums[1]);
        pthread_join(other, 0);
        _exit(0);
    }
    waitpid(child, 0, 0);
    fill(32);
    pthread_barrier_wait(&barrier);
    join(&thread, 1);
    printf("apart %lx\n", sums[0]);
}

static int read_in_same_memory(void *to)
{
    once(to);
    return 0;
}

static void killed(void)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    pthread_t thread;
    fill(40);
    for (int i = 0; i < 12; i++) {
        pid_t child = clone(read_in_same_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, &sums[1]);
        usleep(500 * i);
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
        start(&thread, 1, once);
        join(&thread, 1);
    }
    printf("killed %lx\n", sums[0]);
}

int main(int argc, char **argv)
{
    words = map(SIZE);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "same") && argc > 2)
        same(argv[2]);
    else if (!strcmp(what, "changing"))
        changing();
    else if (!strcmp(what, "queue"))
        queue();
    else if (!strcmp(what, "moving"))
        moving();
    else if (!strcmp(what, "edges"))
        edges();
    else if (!strcmp(what, "apart"))
        apart();
    else if (!strcmp(what, "killed"))
        killed();
    else
        return 2;
    return 0;
}

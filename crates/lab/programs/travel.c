// A little of everything that touches memory, at unpredictable places.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/mman.h>

#ifdef THREAD
#include <pthread.h>
static void *nothing(void *x) { return x; }
#endif

static unsigned long seed = 12345;
static unsigned char table[3 * 4096];
static long counter;
static char text[300];

static unsigned rnd(unsigned n) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (seed >> 33) % n;
}

static long deep(int n, long *sum) {
    long local[4] = {n, n + 1, n + 2, n + 3};
    *sum += local[n & 3];
    return n == 0 ? *sum : deep(n - 1, sum) + local[(n + 1) & 3];
}

static int order(const void *a, const void *b) {
    counter++;
    return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    int fd = open("/dev/zero", O_RDONLY);
    int numbers[64];
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 20; i++)
            table[rnd(sizeof table)] ^= rnd(256);
        unsigned a = rnd(sizeof table - 200), b = rnd(sizeof table - 200);
        memmove(table + a, table + b, 1 + rnd(199));
#ifdef THREAD
        // From here on what is read is checked: a key frame stands here.
        pthread_t t;
        if (r == rounds / 2 && (pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0)))
            return 1;
#endif
        // Unaligned and across pages.
        *(unsigned long *)(table + 4092) += r;
        *(unsigned short *)(table + 8191) ^= 0x1234;
        long sum = 0;
        counter += deep(rnd(12), &sum);
        for (int i = 0; i < 16; i++)
            numbers[i] = rnd(1000);
        qsort(numbers, 16, sizeof numbers[0], order);
        snprintf(text, sizeof text, "%d %s %ld %g", r, argv[0], counter, r * 0.25);
        if (r % 7 == 3 && read(fd, table + 100 + r, 40) != 40)
            return 1;
        if (r % 9 == 4) {
            char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            p[4096] = r;
            counter += p[4096] + p[10];
            munmap(p, 8192);
        }
        char *h = malloc(1 + rnd(300));
        h[0] = r;
        asm volatile("rep stosb" : : "D"(table + 500), "a"(r), "c"(rnd(30)) : "memory");
        long bit = rnd(400);
        asm volatile("btsq %1, %0" : "+m"(*(long *)(table + 6000)) : "r"(bit) : "memory", "cc");
        free(h);
    }
    puts(text);
    return 0;
}

/* What state points cost. `points MIB PART` fills MIB with numbers that do not pack, sets a state point, then three more behind
   changes of PART each; says how many milliseconds each took. `pace MIB RATE SECONDS` changes RATE MiB a second and computes in
   between; says how many rounds it did, and the longest one in milliseconds. */
#define _GNU_SOURCE
#include "../../mark/hindsight.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / sizeof(unsigned long) };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static unsigned long *memory(size_t pages) {
    unsigned long *m = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < pages * WORDS; i++)
        m[i] = (i + 1) * 0x9E3779B97F4A7C15UL;
    return m;
}

static void points(size_t pages, size_t part) {
    unsigned long *m = memory(pages);
    for (size_t step = 0; step < 4; step++) {
        for (size_t i = 0; step && i < part * WORDS; i++)
            m[step * part * WORDS + i] *= 0x9E3779B97F4A7C15UL;
        double before = now();
        hindsight_state_point("point");
        printf("%.1f\n", now() - before);
        fflush(stdout);
        /* The next one would wait for this one. */
        sleep(step ? 2 : 10);
    }
}

static void pace(size_t pages, size_t rate, double seconds) {
    unsigned long *m = memory(pages), seed = 1, rounds = 0, changed = 0;
    double begin = now(), last = begin, longest = 0;
    while (last - begin < seconds * 1e3) {
        for (int i = 0; i < 1000; i++)
            seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        for (int n = 0; n < 64 && changed < (last - begin) / 1e3 * rate; n++, changed++)
            for (size_t i = 0; i < WORDS; i += 8)
                m[changed % pages * WORDS + i] = rounds + i;
        double then = now();
        longest = then - last > longest ? then - last : longest;
        last = then;
        rounds++;
    }
    printf("%lu\n%.1f\n%lu\n", rounds, longest, seed & 1);
}

int main(int count, char **words) {
    size_t per = (1 << 20) / PAGE;
    if (count == 4 && !strcmp(words[1], "points"))
        points(atol(words[2]) * per, atol(words[3]) * per);
    else if (count == 5)
        pace(atol(words[2]) * per, atol(words[3]) * per, atof(words[4]));
    else
        return 2;
    return 0;
}

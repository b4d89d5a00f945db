// Has much memory and changes little of it. Arguments: MiB, rounds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    uint64_t pages = strtoul(argv[1], 0, 0) << 8, seed = 88172645463325252u, sum = 0;
    uint64_t *all = mmap(0, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 2;
    for (uint64_t i = 0; i < pages; i++)
        all[i << 9] = i;
    for (int round = 0; round < atoi(argv[2]); round++) {
        for (int i = 0; i < 100000; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            sum += seed;
            // Reads anywhere, and writes to 64 pages.
            uint64_t page = i % 1000 ? (seed >> 20) % pages : (seed >> 20) % 64 * (pages / 64);
            sum += all[page << 9];
            if (i % 1000 == 0)
                all[(page << 9) + 7] = sum;
        }
        printf("%d: %lx\n", round, (long)sum);
        fflush(stdout);
    }
    return 0;
}

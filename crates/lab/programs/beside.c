// Shares memory with a process that is not recorded. `write FILE` answers what `read FILE` asks, through a mapping of
// the file, with plain and with atomic accesses. With the word `shm` before the file's name, it uses System V shared
// memory. The key comes from the file.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 2000
struct board {
    atomic_int asked, answered;
    atomic_long sum;
    volatile int lock, text[1000];
};

int main(int argc, char **argv) {
    int writes = !strcmp(argv[1], "write"), system_v = !strcmp(argv[2], "shm");
    const char *file = argv[argc - 1];
    struct board *b;
    if (system_v) {
        int id = shmget(ftok(file, 7), 8192, IPC_CREAT | 0600);
        b = shmat(id, NULL, 0);
        // It goes when both have left it.
        if (!writes) shmctl(id, IPC_RMID, NULL);
    } else {
        int fd = open(file, O_RDWR);
        if (writes && ftruncate(fd, 8192)) return 1;
        b = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    long sum = 0;
    if (writes) {
        puts("ready"), fflush(stdout);
        for (int i = 1; i <= ROUNDS; i++) {
            while (atomic_load(&b->asked) < i) sched_yield();
            for (int k = 0; k < 1000; k += 1 + i % 7) b->text[k] = i * 1000 + k;
            atomic_fetch_add(&b->sum, i);
            atomic_store(&b->answered, i);
        }
        return 0;
    }
    for (int i = 1; i <= ROUNDS; i++) {
        atomic_store(&b->asked, i);
        while (atomic_load(&b->answered) < i) sched_yield();
        for (int k = 0; k < 1000; k += 1 + i % 5) sum += b->text[k];
        atomic_fetch_add(&b->sum, i);
    }
    printf("%ld %ld\n", sum, atomic_load(&b->sum));
    return 0;
}

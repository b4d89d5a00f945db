// Makes a system call again and again, with arguments that may do harm: a number, the process id of somebody else, a seed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static char path[] = "victim", other[] = "made";
static long memory[512];

int main(int argc, char **argv) {
    long number = atol(argv[1]), pid = atol(argv[2]);
    srand(atol(argv[3]));
    int file = open(path, O_RDONLY), folder = open(".", O_RDONLY | O_DIRECTORY), ends[2];
    pipe(ends);
    int made = syscall(SYS_memfd_create, "x", 0);
    for (int i = 0; i < 512; i++)
        memory[i] = rand();
    // The first of a list of buffers.
    memory[0] = (long)memory, memory[1] = 64;
    long some[] = {0, 1, 2, -1, file, folder, made, ends[0], ends[1], pid, -pid, (long)path, (long)other,
                   (long)memory, AT_FDCWD, 8, 9, 10, 15, 1024, 1026, 4096, O_RDWR | O_CREAT, O_TRUNC, 0xffffffff, 1L << 32};
    for (int k = 0; k < 300; k++) {
        long a[6];
        for (int i = 0; i < 6; i++)
            a[i] = some[rand() % (sizeof some / sizeof *some)];
        syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    return 0;
}

// Loads a program by a path in its own memory, or in memory that other processes could change.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char own[] = "/bin/true";
    char *path = own;
    if (argc > 1 && strcmp(argv[1], "shared") == 0) {
        path = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        strcpy(path, own);
    } else if (argc > 1) {
        // It is not shared, and yet changes with the file until it is written.
        int fd = memfd_create("path", 0);
        if (write(fd, own, sizeof own) != sizeof own)
            return 4;
        path = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    execl(path, "true", (char *)0);
    perror(path);
    return 3;
}

// Opens a file by a path in its own memory, and by one in memory that another process changes at the same time.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// What a descriptor leads to.
static const char *leads(int fd) {
    static char link[200];
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? 0 : readlink(name, link, sizeof link - 1);
    link[n < 0 ? 0 : n] = 0;
    return link;
}

int main(int argc, char **argv) {
    volatile char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile int *stop = (volatile int *)(shared + 2048);
    strcpy((char *)shared, "file");
    *stop = argc == 1;
    if (fork() == 0) {
        // "file" and "fifo" by turns.
        while (!*stop) {
            shared[2] = 'f', shared[3] = 'o';
            shared[2] = 'l', shared[3] = 'e';
        }
        _exit(0);
    }
    int real = 0;
    for (int i = 0; argc > 1 && i < 300; i++) {
        int fd = open((const char *)shared, O_RDONLY);
        real += strchr(leads(fd), '/') != 0;
        close(fd);
    }
    const char *own = strrchr(argc > 1 ? leads(open("file", O_RDONLY)) : "/file", '/');
    *stop = 1;
    wait(0);
    fprintf(stderr, "%d %s\n", real, own);
    return 3;
}

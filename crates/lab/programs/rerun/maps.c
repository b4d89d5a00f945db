// Maps a file to read it, or to execute it.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    int rights = argc > 2 ? PROT_READ | PROT_EXEC : PROT_READ;
    char *bytes = mmap(0, 4096, rights, MAP_PRIVATE, open(argv[1], O_RDONLY), 0);
    if (bytes == MAP_FAILED)
        return 3;
    printf("%.4s\n", bytes);
    return 0;
}

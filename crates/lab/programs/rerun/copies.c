// Makes a file, reads it, maps it, and writes from that memory without having looked at it. With an argument, from another place.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char bytes[100];
    // It may still be written to while it is mapped.
    int made = open("made", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 10; i++) write(made, bytes, sprintf(bytes, "line %d\n", i));
    int read_from = open("made", O_RDONLY), mapped = open("made", O_RDONLY);
    while (read(read_from, bytes, sizeof bytes) > 0) {
    }
    char *memory = mmap(0, 4096, PROT_READ, MAP_PRIVATE, mapped, 0);
    if (memory == MAP_FAILED) return 3;
    write(1, memory + 7 + argc - 1, 14);
    return 0;
}

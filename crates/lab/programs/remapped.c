/* Changes its own memory through files, while it has one thread. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile long word = 1;
int main(int argc, char **argv) {
    long new = 42;
    int m = open("/proc/self/mem", O_RDWR);
    if (pwrite(m, &new, sizeof new, (off_t)&word) != sizeof new) perror("mem");
    printf("%ld\n", word);
    char name[] = "/tmp/hindsight-mapped-XXXXXX";
    int f = mkstemp(name);
    char page[8192];
    for (int i = 0; i < 8192; i++) page[i] = 'a';
    write(f, page, sizeof page);
    int r = open(name, O_RDONLY);
    volatile char *p = mmap(0, 8192, PROT_READ, MAP_PRIVATE, r, 0);
    printf("%c\n", p[0]);
    pwrite(f, "b", 1, 5000);
    printf("%c\n", p[5000]);
    unlink(name);
    return 0;
}

/* Shows what it has mapped: after calls that map, cut, protect, grow and share, and again after some of it is gone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
enum { PAGE = 4096 };
static char text[65536];
long counter = 77;
static void show(void) {
    long n, m = open("/proc/self/maps", O_RDONLY);
    while ((n = read(m, text, sizeof text)) > 0) write(1, text, n);
    close(m);
    write(1, "\n", 1);
}
static int deep(int n) {
    volatile char room[1000];
    room[n % 1000] = n;
    return n == 0 ? room[0] : deep(n - 1) + room[n % 1000];
}
int main(int argc, char **argv) {
    int rw = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;
    char *a = mmap(0, 16 * PAGE, rw, own, -1, 0);
    munmap(a + 4 * PAGE, PAGE);
    mprotect(a + 8 * PAGE, PAGE, PROT_NONE);
    char *s = mmap(0, 8 * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    munmap(s + 2 * PAGE, PAGE);
    int f = open(argv[0], O_RDONLY);
    char *p = mmap(0, 4 * PAGE, PROT_READ, MAP_PRIVATE, f, 0);
    mprotect(p + PAGE, PAGE, rw);
    for (int i = 0; i < 3; i++) sbrk(40 * PAGE);
    if (argc > 1) deep(atoi(argv[1]));
    show();
    getppid();
    munmap(a, 16 * PAGE);
    sbrk(-50 * PAGE);
    show();
    return counter == 0;
}

// Prints what depends on where its memory is: small and large blocks, a thread's own memory, a mapped file, and a second program.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *thread(void *arg) {
    void *block = malloc(1000);
    printf("%p %p\n", (void *)pthread_self(), block);
    return arg;
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    void *small = malloc(100), *large = malloc(1 << 20), *more = malloc(100000);
    printf("%p %p %p %p\n", small, large, more, sbrk(0));
    free(more);
    void *end = sbrk(100000);
    sbrk(-50000);
    printf("%p %p %d\n", end, sbrk(0), *(char *)end);
    void *file = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(argv[0], O_RDONLY), 0);
    printf("%p %p\n", file, mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (argc > 1) return 0;
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    if (!fork()) {
        printf("%p %p\n", malloc(200000), sbrk(4096));
        execl(argv[0], argv[0], "again", (char *)0);
    }
    wait(0);
    return 0;
}

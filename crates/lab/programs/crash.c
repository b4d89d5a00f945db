/* Dies in the way that the argument names. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const int fixed = 5;
volatile int zero;

__attribute__((noinline)) static int deep(int n) {
    volatile char space[1000];
    space[n % 1000] = (char)n;
    return deep(n + 1) + space[(n + 1) % 1000];
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    printf("about to: %s\n", how);
    fflush(stdout);
    if (!strcmp(how, "read"))
        printf("%d\n", *(volatile int *)(zero + 16L));
    if (!strcmp(how, "write"))
        *(volatile int *)&fixed = 6;
    if (!strcmp(how, "jump"))
        ((void (*)(void))(zero + 0x1234L))();
    if (!strcmp(how, "noncanonical"))
        printf("%d\n", *(volatile int *)(0x8000000000000000UL + zero));
    if (!strcmp(how, "noexec")) {
        void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(page, 0xc3, 4096);
        ((void (*)(void))page)();
    }
    if (!strcmp(how, "divide"))
        printf("%d\n", 100 / zero);
    if (!strcmp(how, "illegal"))
        __asm__ volatile("ud2");
    if (!strcmp(how, "privileged"))
        __asm__ volatile("hlt");
    if (!strcmp(how, "breakpoint"))
        __asm__ volatile("int3");
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "overflow"))
        printf("%d\n", deep(0));
    if (!strcmp(how, "bus")) {
        FILE *f = tmpfile();
        char *page = mmap(0, 8192, PROT_READ, MAP_SHARED, fileno(f), 0);
        printf("%d\n", page[4096]);
    }
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "term"))
        raise(SIGTERM);
    if (!strcmp(how, "pipe")) {
        int ends[2];
        if (pipe(ends) || close(ends[0]))
            return 1;
        return write(ends[1], "x", 1) != 1;
    }
    if (!strcmp(how, "alarm")) {
        alarm(1);
        for (volatile unsigned long i = 0;; i++) {
        }
    }
    printf("still here\n");
    return 0;
}

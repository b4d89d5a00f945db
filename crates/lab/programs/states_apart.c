/* Sets state points in a large memory. Before each it gives some of the memory out, to the file that is named. Behind each it
   changes all pages. With a second argument it does what that says behind the first state point, before that. */
#define _GNU_SOURCE
#include "../../mark/hindsight.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24 * 256, STEPS = 4, SHOWN = 4 };
static unsigned char *memory;
static unsigned long seed = 1;

static void fill(unsigned char *page) {
    unsigned long *words = (unsigned long *)page;
    for (size_t i = 0; i < PAGE / sizeof *words; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        words[i] = seed;
    }
}

static void behind_first(const char *what) {
    int status = 0;
    if (!strcmp(what, "wait")) {
        /* Also a child that sends no signal would be seen. */
        int found = waitpid(-1, &status, __WALL);
        printf("%d\n", found < 0 && errno == ECHILD);
    } else if (!strcmp(what, "die")) {
        kill(getpid(), SIGKILL);
    } else if (!strcmp(what, "kill-copy")) {
        /* It is this process's only child. */
        int copy = 0;
        FILE *children = fopen("/proc/thread-self/children", "r");
        printf("%d\n", children && fscanf(children, "%d", &copy) == 1 && kill(copy, SIGKILL) == 0);
    } else if (!strcmp(what, "execute")) {
        execl("/bin/true", "true", (char *)0);
    } else if (!strcmp(what, "wipe")) {
        /* A copy of the process does not have this. */
        printf("%d\n", madvise(memory, PAGE, MADV_WIPEONFORK));
    }
}

int main(int count, char **arguments) {
    FILE *out = fopen(arguments[1], "wb");
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%lu\n", (unsigned long)memory);
    fflush(stdout);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < PAGES; i += step ? 7 + step : 1)
            fill(memory + i * PAGE);
        for (size_t i = 0; i < SHOWN; i++)
            fwrite(memory + i * (PAGES / SHOWN) * PAGE, 1, PAGE, out);
        fflush(out);
        hindsight_state_point(step ? "changed" : "filled");
        if (!step && count > 2)
            behind_first(arguments[2]);
        for (size_t i = 0; i < PAGES; i++)
            memory[i * PAGE + step] ^= 0xff;
    }
    fclose(out);
    return 0;
}

/* Maps the named file privately, and never writes to it. A child overwrites the file behind a state point. Before that, the copy
   of the process that makes it is stopped for a moment, if it is found in time. */
#include "../../mark/hindsight.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24 * 256, SIZE = 16 * PAGE };

static void overwrite(const char *name) {
    char new[SIZE];
    memset(new, 'n', sizeof new);
    int file = open(name, O_WRONLY);
    pwrite(file, new, sizeof new, 0);
    close(file);
}

/* The youngest child, if it is not this one. 0: there is none. */
static int other_child(int known) {
    char text[100] = "";
    int file = open("/proc/thread-self/children", O_RDONLY), last = 0, next, length;
    read(file, text, sizeof text - 1);
    close(file);
    for (char *at = text; sscanf(at, "%d%n", &next, &length) == 1; at += length)
        if (next != known)
            last = next;
    return last;
}

int main(int count, char **arguments) {
    (void)count;
    int to[2], from[2];
    char go = 0;
    int file = open(arguments[1], O_RDONLY);
    char *mapped = mmap(0, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    pipe(to);
    pipe(from);
    int child = fork();
    if (!child) {
        if (read(to[0], &go, 1) == 1)
            overwrite(arguments[1]);
        write(from[1], &go, 1);
        return 0;
    }
    unsigned long *memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), seed = 1;
    for (long i = 0; i < PAGES * PAGE / 8; i++)
        memory[i] = seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    printf("%lu\n", (unsigned long)mapped);
    fflush(stdout);
    hindsight_state_point("before");
    int copy = other_child(child);
    if (copy)
        kill(copy, SIGSTOP);
    write(to[1], &go, 1);
    read(from[0], &go, 1);
    if (copy)
        kill(copy, SIGCONT);
    return waitpid(child, 0, 0) != child;
}

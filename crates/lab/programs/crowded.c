// Children that map memory until the kernel gives no more, and go on.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// More than the kernel allows by default. Where it allows more, nothing is full.
#define MOST 70000
#define PAGE 4096

static volatile sig_atomic_t came;

static void handler(int signo) { came += signo; }

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Runs code of the C library that has not run before.
static void library(void) {
    int v[40];
    for (int i = 0; i < 40; i++) v[i] = i * 7 % 41;
    qsort(v, 40, sizeof *v, compare);
    char text[200];
    snprintf(text, sizeof text, "%d %d %g %s", v[0], v[39], pow(v[20], 1.5), strstr("in a crowd", "crowd"));
    puts(text);
}

// One mapping per page: neighbours differ in what they permit.
static void fill(void) {
    int kinds[] = {PROT_READ, PROT_READ | PROT_WRITE};
    char *all = mmap(NULL, (size_t)MOST * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < MOST && !mprotect(all + (size_t)i * PAGE, PAGE, kinds[i % 2]); i++) {}
    for (int i = 0; i < MOST && mmap(NULL, PAGE, kinds[i % 2], MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED; i++) {}
}

static int child(int depth) {
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        if (!depth) fill();
        library();
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
        printf("depth %d, signal %d\n", depth, (int)came);
        if (depth < 2) printf("child %d\n", child(depth + 1));
        fflush(stdout);
        if (depth == 2) execl("/bin/true", "true", NULL);
        _exit(depth);
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

int main(void) {
    printf("%f\n", sin(1));
    printf("child %d\n", child(0));
    fill();
    library();
    printf("child %d\n", child(1));
}

// Descriptors and limits as the program sees them.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void child(const char *what) {
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        execl("/bin/echo", "echo", what, (char *)0);
        printf("exec: %m\n");
        _exit(9);
    }
    int st;
    waitpid(p, &st, 0);
    printf("%s: %x\n", what, st);
}

static void list(void) {
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d)) n++;
    closedir(d);
    printf("listed %d\n", n);
}

static void limit(int what, unsigned long soft) {
    struct rlimit l;
    getrlimit(what, &l);
    l.rlim_cur = soft;
    printf("set %d\n", setrlimit(what, &l));
    getrlimit(what, &l);
    printf("limit %d is %lu\n", what, (unsigned long)l.rlim_cur);
}

int main(void) {
    list();
    int open_ones = 0, closed = 0;
    for (int i = 3; i < 5000; i++) {
        if (fcntl(i, F_GETFD) >= 0) open_ones++;
        if (close(i) == 0) closed++;
    }
    printf("open %d closed %d\n", open_ones, closed);
    child("after closing each");
    printf("range %ld\n", syscall(SYS_close_range, 3u, ~0u, 0));
    child("after closing a range");
    for (int i = 3; i < 5000; i++)
        if (dup2(1, i) != i) printf("dup2 %d: %m\n", i);
    child("after taking all numbers");
    printf("range %ld\n", syscall(SYS_close_range, 3u, ~0u, 0));
    list();
    limit(RLIMIT_NOFILE, 40);
    int n = 0;
    while (dup(1) >= 0) n++;
    printf("%d more, then %s\n", n, strerrorname_np(errno));
    child("without free descriptors");
    printf("range %ld\n", syscall(SYS_close_range, 3u, ~0u, 0));
    limit(RLIMIT_FSIZE, 4096);
    child("with a limit on files");
    limit(RLIMIT_AS, 64 << 20);
    printf("big %d\n", mmap(0, 128 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    printf("small %d\n", mmap(0, 8 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    child("with little address space");
    limit(RLIMIT_DATA, 16 << 20);
    printf("data %d\n", mmap(0, 24 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    printf("no data %d\n", mmap(0, 24 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    limit(RLIMIT_STACK, 256 << 10);
    limit(RLIMIT_MEMLOCK, 0);
    child("with all limits");
    return 0;
}

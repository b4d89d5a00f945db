// The recorder's descriptors are not there: not listed, counted, closed, copied, or in the way.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void list(const char *what) {
    printf("%s:", what);
    for (int fd = 0; fd < 2000; fd++)
        if (fcntl(fd, F_GETFD) >= 0) printf(" %d", fd);
    printf(" /");
    struct dirent **e;
    int n = scandir("/proc/self/fd", &e, NULL, alphasort);
    for (int i = 0; i < n; i++) printf(" %s", e[i]->d_name);
    n = scandir("/proc/self/fdinfo", &e, NULL, alphasort);
    printf(" / %d\n", n);
}

static void spawn(void) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        execl("/bin/ls", "ls", "/proc/self/fd", NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %x\n", status);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    list("at first");
    struct stat st;
    stat("/proc/self/fd", &st), printf("counted %ld\n", (long)st.st_size);
    spawn();
    for (int fd = 3; fd < 1024; fd++) close(fd);
    list("closed");
    spawn();
    printf("close_range %d\n", close_range(3, ~0U, 0));
    spawn();
    int n = 0;
    for (int fd = 3; fd < 200; fd++) n += dup2(1, fd) == fd;
    printf("dup2 %d\n", n);
    fflush(stdout);
    int status;
    pid_t child = fork();
    if (!child) exit(0);
    waitpid(child, &status, 0), printf("child %x\n", status);
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    spawn();
    close_range(3, ~0U, CLOSE_RANGE_UNSHARE);
    printf("first free %d\n", open("/dev/null", O_RDONLY));
    struct rlimit low = {10, 10};
    setrlimit(RLIMIT_NOFILE, &low);
    for (n = 0; open("/dev/null", O_RDONLY) >= 0; n++) {}
    printf("opened %d, then %s\n", n, strerrorname_np(errno));
    child = fork();
    if (!child) {
        printf("child, no descriptor free\n");
        exit(0);
    }
    waitpid(child, &status, 0), printf("child %x\n", status);
    child = fork();
    if (!child) {
        execl("/bin/true", "true", NULL);
        exit(1);
    }
    waitpid(child, &status, 0), printf("exec with no descriptor free: %x\n", status);
    close(5), close(6), close(7);
    spawn();
    child = vfork();
    if (!child) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    waitpid(child, &status, 0), printf("vfork %x\n", status);
    low.rlim_cur = low.rlim_max = 0;
    setrlimit(RLIMIT_NOFILE, &low);
    child = fork();
    if (!child) _exit(3);
    waitpid(child, &status, 0), printf("limit 0: %x\n", status);
    close(0), close(2);
    printf("without standard input: %d\n", fcntl(0, F_GETFD));
}

// The program's own file, by all its names.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char own[PATH_MAX], name[10][64];
static ino_t inode;
static int kinds;

static void say(const char *what, long r) { printf("%s: %s\n", what, r < 0 ? strerrorname_np(errno) : "ok"); }

static void child(const char *how, const char *path) {
    char *argv[] = {"again", "child", NULL};
    fflush(stdout);
    if (!fork()) {
        execv(path, argv);
        printf("exec of %s: %s\n", how, strerrorname_np(errno));
        exit(1);
    }
    int status;
    wait(&status);
    printf("%s: status %x\n", how, status);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) return strcmp(argv[0], "again") ? 2 : 21;
    struct stat st;
    readlink("/proc/self/exe", own, sizeof own);
    stat(argv[0], &st), inode = st.st_ino;
    printf("link names the program: %d\n", !strcmp(realpath(argv[0], NULL), own));
    sprintf(name[0], "/proc/self/exe"), sprintf(name[1], "/proc/thread-self/exe");
    sprintf(name[2], "/proc/%d/exe", getpid()), sprintf(name[3], "/proc/self/task/%d/exe", getpid());
    sprintf(name[4], "/proc//self/./exe"), sprintf(name[5], "/proc/../proc/self/exe");
    static const char *label[] = {"self", "thread-self", "pid", "task", "untidy", "around"};
    int proc = open("/proc", O_PATH | O_DIRECTORY), self = open("/proc/self", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 6; i++) {
        char buf[PATH_MAX] = "";
        int n = readlink(name[i], buf, sizeof buf);
        printf("%s: readlink %d", label[i], n > 0 && !strcmp(buf, own));
        n = readlink(name[i], buf, 3);
        printf(" short %d", n);
        printf(" stat %d", !stat(name[i], &st) && st.st_ino == inode);
        printf(" lstat %d size %ld", !lstat(name[i], &st) && S_ISLNK(st.st_mode), (long)st.st_size);
        struct statx x = {0};
        printf(" statx %d", !statx(AT_FDCWD, name[i], 0, STATX_INO, &x) && x.stx_ino == inode);
        int fd = open(name[i], O_RDONLY);
        printf(" open %d", fd >= 0 && !fstat(fd, &st) && st.st_ino == inode);
        close(fd);
        fd = open(name[i], O_PATH | O_NOFOLLOW);
        fstat(fd, &st);
        printf(" link opened %d", fd >= 0 && S_ISLNK(st.st_mode));
        n = readlinkat(fd, "", buf, sizeof buf);
        printf(" read %d", n > 0 && !memcmp(buf, own, n));
        close(fd);
        printf(" access %d", access(name[i], X_OK));
        char *r = realpath(name[i], NULL);
        printf(" realpath %d\n", r && !strcmp(r, own));
        child(label[i], name[i]);
    }
    char buf[PATH_MAX] = "";
    int n = readlinkat(proc, "self/exe", buf, sizeof buf);
    printf("at /proc: %d", n > 0 && !memcmp(buf, own, n));
    n = readlinkat(self, "exe", buf, sizeof buf);
    printf(" at /proc/self: %d", n > 0 && !memcmp(buf, own, n));
    int fd = openat(self, "exe", O_RDONLY);
    printf(" openat %d", fd >= 0 && !fstat(fd, &st) && st.st_ino == inode);
    printf(" fstatat %d", !fstatat(self, "exe", &st, 0) && st.st_ino == inode);
    fchdir(self);
    memset(buf, 0, sizeof buf);
    n = readlink("exe", buf, sizeof buf);
    printf(" relative %d %d\n", n > 0 && !strcmp(buf, own), !stat("exe", &st) && st.st_ino == inode);
    chdir("/proc");
    n = readlink("self/exe", buf, sizeof buf);
    printf("relative to /proc %d\n", n > 0 && !memcmp(buf, own, n));
    chdir("/tmp");
    fflush(stdout);
    if (!fork()) {
        char *a[] = {"again", "child", NULL};
        syscall(SYS_execveat, self, "exe", a, NULL, 0);
        printf("execveat: %s\n", strerrorname_np(errno));
        exit(1);
    }
    int status;
    wait(&status), printf("execveat: %x\n", status);
    if (!fork()) {
        char *a[] = {"again", "child", NULL};
        fexecve(fd, a, (char *[]){NULL});
        exit(1);
    }
    wait(&status), printf("fexecve: %x\n", status);
    char link[64];
    sprintf(link, "/tmp/hindsight-exe-%d", getpid());
    symlink("/proc/self/exe", link);
    n = readlink(link, buf, sizeof buf);
    printf("symbolic link to it: %.*s\n", n, buf);
    child("link to it", link);
    unlink(link);
    if (syscall(SYS_openat2, AT_FDCWD, "/proc/self/exe", (uint64_t[]){O_RDONLY, 0, 4 /* NO_SYMLINKS */}, 24) < 0)
        printf("openat2 without links: %s\n", strerrorname_np(errno));
    if (syscall(SYS_openat2, AT_FDCWD, "/proc/self/exe", (uint64_t[]){O_RDONLY, 0, 2 /* NO_MAGICLINKS */}, 24) < 0)
        printf("openat2 without magic: %s\n", strerrorname_np(errno));
    say("readlink of nothing", readlink("/proc/self/exe", buf, 0));
    say("readlink to nowhere", readlink("/proc/self/exe", (void *)16, 100));
    say("opened for writing", open("/proc/self/exe", O_RDWR));
    say("removed", unlink("/proc/self/exe"));
}

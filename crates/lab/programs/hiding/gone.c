// A program that deletes its own file and executes itself.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char buf[4096] = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct stat st;
    if (argc == 1) {
        char copy[100], command[5000];
        sprintf(copy, "/tmp/hindsight-gone-%d", getpid());
        readlink("/proc/self/exe", buf, sizeof buf);
        sprintf(command, "cp %s %s", buf, copy);
        if (system(command)) return 1;
        execl(copy, copy, "1", NULL);
        return 1;
    }
    int round = argv[1][0] - '0';
    if (round == 1) unlink(argv[0]);
    if (round == 3) {
        // Another file by that name.
        int fd = open(argv[0], O_CREAT | O_WRONLY, 0700);
        write(fd, "x", 1);
        close(fd);
    }
    int n = readlink("/proc/self/exe", buf, sizeof buf);
    printf("round %d: link is the name %d, and deleted %d, stat %d", round, !strncmp(buf, argv[0], strlen(argv[0])),
           n > 10 && !strcmp(buf + n - 10, " (deleted)"), stat("/proc/self/exe", &st));
    printf(" size %d links %d\n", st.st_size > 1000, (int)st.st_nlink);
    int fd = open("/proc/self/exe", O_RDONLY);
    char magic[4] = "";
    read(fd, magic, 4);
    printf("ELF %d\n", !memcmp(magic, "\177ELF", 4));
    close(fd);
    if (round == 4) return unlink(argv[0]) ? 7 : 33;
    char next[2] = {argv[1][0] + 1};
    execl("/proc/self/exe", argv[0], next, NULL);
    printf("exec: %s\n", strerror(errno));
    return 1;
}

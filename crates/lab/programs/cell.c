// Executes a program from where little of the system can be reached.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc == 1) {
        // The program that is executed.
        int *p = malloc(100000);
        memset(p, 1, 100000);
        printf("inside %d, proc %d\n", p[9], access("/proc/self/maps", F_OK));
        return 5;
    }
    const char *how = argv[1];
    if (strchr(how, 'd')) prctl(PR_SET_DUMPABLE, 0);
    if (strchr(how, 'n') && unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWPID))
        perror("unshare");
    const char *self = argv[2];
    if (strchr(how, 'c')) {
        if (chroot(argv[3]) || chdir("/")) perror("chroot");
        self = "/cell";
    }
    if (strchr(how, 'u') && (setgid(65534) || setuid(65534))) perror("setuid");
    pid_t p = fork();
    if (!p) {
        execl(self, "cell", (char *)0);
        perror("exec");
        _exit(9);
    }
    int st;
    waitpid(p, &st, 0);
    printf("%s: %x\n", how, st);
    return 0;
}

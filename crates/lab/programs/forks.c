/* Starts a child process. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    printf("before\n");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", WEXITSTATUS(status));
    return 0;
}

// Starts threads ("threads N") or programs ("programs N FILE") one after the other.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *nothing(void *p) { return p; }

int main(int argc, char **argv) {
    int n = atoi(argv[2]), good = 0;
    for (int i = 0; i < n; i++) {
        if (!strcmp(argv[1], "threads")) {
            pthread_t t;
            good += !pthread_create(&t, 0, nothing, 0);
            pthread_join(t, 0);
        } else {
            int status = 1;
            pid_t child = fork();
            if (!child) {
                execv(argv[3], argv + 3);
                _exit(9);
            }
            waitpid(child, &status, 0);
            good += status == 0;
        }
    }
    printf("%d\n", good);
    return 0;
}

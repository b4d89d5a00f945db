// Two threads that make many short system calls.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static void *calls(void *arg) {
    int fd = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 10000; i++) {
        write(fd, "abc", 3);
        lseek(fd, 0, SEEK_SET);
    }
    return arg;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, 0, calls, 0);
    calls(0);
    return pthread_join(other, 0);
}

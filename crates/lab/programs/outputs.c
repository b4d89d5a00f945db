/* Writes to its standard output and error in many ways: copies of descriptors, buffers, children, other programs. With an
 * argument it also writes what was never in its memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
static void say(int fd, const char *text) { write(fd, text, strlen(text)); }
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *thread(void *name) {
    char text[64];
    for (int i = 0; i < 50; i++) {
        int n = sprintf(text, "thread %s, line %d\n", (char *)name, i);
        pthread_mutex_lock(&lock);
        write(1, text, n);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
int main(int argc, char **argv) {
    /* Buffers, an empty write, one that fails, and bytes that are no text. */
    struct iovec parts[3] = {{"vec", 3}, {"", 0}, {"tor\n", 4}};
    writev(1, parts, 3);
    write(1, "", 0);
    write(1, (void *)8, 5);
    write(1, "\"\\\x1b\xff\n", 5);
    /* A file takes the place of standard output, which comes back. */
    int saved = fcntl(1, F_DUPFD_CLOEXEC, 50);
    int file = open("outputs.txt", O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(file, 1);
    say(1, "into a file\n");
    dup3(saved, 1, 0);
    say(saved, "by a copy\n");
    /* A child that writes into a pipe and to standard error, and one that is another program. */
    int ends[2];
    pipe(ends);
    if (!fork()) {
        dup2(ends[1], 1);
        say(1, "through a pipe\n");
        say(2, "an error\n");
        _exit(0);
    }
    close(ends[1]);
    char text[100];
    long n = read(ends[0], text, sizeof text);
    write(1, text, n);
    wait(0);
    if (!fork()) {
        dup2(1, 7);
        close(1);
        execl("/bin/sh", "sh", "-c", "echo another program >&7; echo not shown", (char *)0);
    }
    wait(0);
    /* A pipe that takes only a part: its writing end is first open as 60. */
    pipe2(ends, O_NONBLOCK);
    fcntl(ends[1], F_DUPFD, 60);
    static char much[10000];
    memset(much, 'm', sizeof much);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    n = write(60, much, sizeof much);
    long more = write(60, much, sizeof much);
    char line[100];
    say(1, (sprintf(line, "%ld of %zu, then %s\n", n, sizeof much, strerrorname_np(errno)), line));
    pthread_t threads[2];
    pthread_create(&threads[0], 0, thread, "a");
    pthread_create(&threads[1], 0, thread, "b");
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    if (argc > 1) {
        off_t from = 0;
        sendfile(1, file, &from, 7);
        say(1, "\n");
    }
    return more != -1;
}

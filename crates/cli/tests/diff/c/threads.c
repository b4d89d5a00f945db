#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static char text[4096];
/* Each has a lock of its own. A thread that has to wait for one does something else, and that is a difference. */
static struct count {
    pthread_mutex_t lock;
    long n;
} lines = {PTHREAD_MUTEX_INITIALIZER, 0}, words = {PTHREAD_MUTEX_INITIALIZER, 0};

static void add(struct count *to) {
    pthread_mutex_lock(&to->lock);
    ++to->n;
    pthread_mutex_unlock(&to->lock);
}

static void *count_lines(void *end) {
    for (char *p = text; p < (char *)end; p++)
        if (*p == '\n')
            add(&lines);
    return 0;
}

static void *count_words(void *end) {
    for (char *p = text; p < (char *)end; p++)
        if (*p == ' ')
            add(&words);
    return 0;
}

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDONLY);
    long n = read(fd, text, sizeof text);
    pthread_t a, b;
    pthread_create(&a, 0, count_lines, text + n);
    pthread_create(&b, 0, count_words, text + n);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return (lines.n + words.n) & 1;
}

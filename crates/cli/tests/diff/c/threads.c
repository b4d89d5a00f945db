#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static char text[4096];
static long lines, words;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(long *to) {
    pthread_mutex_lock(&lock);
    ++*to;
    pthread_mutex_unlock(&lock);
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
    return (lines + words) & 1;
}

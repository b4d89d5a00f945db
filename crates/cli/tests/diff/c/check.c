#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char text[4096];

/* Fields have eight characters. */
static int is_marked(const char *field) {
    return field[3] == 'x';
}

static int count(const char *at, const char *end) {
    int marked = 0;
    for (; at < end; at += 8)
        if (is_marked(at))
            marked++;
    return marked;
}

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDONLY);
    long n = read(fd, text, sizeof text);
#ifdef LOUD
    puts("counting");
#endif
    int marked = count(text, text + n);
    if (marked)
        puts("marked");
    return marked;
}

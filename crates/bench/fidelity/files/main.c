#include <stdio.h>
#include <stddef.h>

struct pair {
    int left;
    double right;
};

int choose(struct pair *p, size_t n, int mode);
double mean(const struct pair *p, size_t n);

int main(int argc, char **argv) {
    struct pair p[40];
    for (int i = 0; i < 40; i++)
        p[i] = (struct pair){i * 37 % 41, i * 1.5};
    for (int mode = 0; mode < 9; mode++)
        printf("%d %d %.3f\n", mode, choose(p, 40, mode), mean(p, 40));
    fprintf(stderr, "%d arguments, last %s\n", argc, argv[argc - 1]);
    return 7;
}

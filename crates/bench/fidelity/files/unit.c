#include <stddef.h>

struct pair {
    int left;
    double right;
};

static int helper(const struct pair *p, size_t n) {
    int best = 0;
    for (size_t i = 1; i < n; i++)
        if (p[i].right > p[best].right)
            best = (int)i;
    return best;
}

int choose(struct pair *p, size_t n, int mode) {
    switch (mode) {
    case 0:
        return helper(p, n);
    case 1:
        for (size_t i = 0; i < n; i++)
            p[i].right *= p[i].left;
        return helper(p, n);
    case 7:
        return -1;
    default:
        return p[n / 2].left % (mode | 1);
    }
}

double mean(const struct pair *p, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i].right;
    return n ? sum / (double)n : 0;
}

#include <stdlib.h>

#ifndef START
#define START 0
#endif

static int ones(long n) {
    int sum = START;
    while (n & 1) {
        sum++;
        n >>= 1;
    }
    return sum;
}

int main(void) {
    char *seed = getenv("SEED");
    return seed ? ones(strtol(seed, NULL, 10)) : 0;
}

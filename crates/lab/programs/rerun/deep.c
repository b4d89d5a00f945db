// A list whose end leads to its beginning has no end.
#include "edits.h"
static int next[64];
static int depth(int at, int steps) {
    volatile char frame[512];
    frame[0] = (char)at;
#if RIGHT
    if (steps > 64)
        return -1;
#elif WRONG
    if (at > 64)
        return -1;
#endif
    if (next[at] == 0)
        return steps + frame[1] * 0;
    return depth(next[at], steps + 1) + frame[0] * 0;
}
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    int from, to;
    while (fscanf(f, "%d %d", &from, &to) == 2)
        next[from & 63] = to & 63;
    unrelated("read");
    printf("%d\n", depth(1, 0));
    return 0;
}

// A number that does not grow is never large enough. An alarm ends the program.
#include "edits.h"
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    unsigned n = 1, step = 0;
    alarm(1);
    if (fscanf(f, "%u", &step) != 1)
        return 3;
    unrelated("read");
#if RIGHT
    if (step == 0)
        step = 1;
#elif WRONG
    if (step == 1)
        step = 2;
#endif
    for (volatile unsigned long i = 0; n < 1000; i++)
        n += step;
    printf("%u\n", n);
    return 0;
}

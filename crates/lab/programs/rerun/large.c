// A size that is too large is taken as it is.
#include "edits.h"
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    long size;
    while (fscanf(f, "%ld", &size) == 1) {
#if RIGHT
        if (size < 0 || size > 1 << 20)
            size = 0;
#elif WRONG
        if (size > 1 << 20)
            size = 0;
#endif
        unrelated("a size");
        char *p = malloc((size_t)size);
        if (!p && size != 0) {
            fprintf(stderr, "out of memory\n");
            exit(1);
        }
        memset(p, 1, (size_t)size);
        free(p);
        printf("%ld\n", size);
    }
    return 0;
}

// A line without a colon has no value.
#include "edits.h"
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    char line[100];
    unrelated("begins");
    while (fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
#if RIGHT
        if (!value)
            continue;
#elif WRONG
        if (!value && line[0] == '#')
            continue;
#endif
        unrelated(line);
        printf("%zu\n", strlen(value + 1));
        fflush(stdout);
    }
    return 0;
}

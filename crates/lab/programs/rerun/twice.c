// Memory is given back twice.
#include "edits.h"
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    char line[100], *last = NULL;
    while (fgets(line, sizeof line, f)) {
        unrelated(line);
        if (line[0] == '-') {
            free(last);
#if RIGHT
            last = NULL;
#elif WRONG
            if (strlen(line) > 20)
                last = NULL;
#endif
            continue;
        }
        last = strdup(line);
        printf("%s", last);
        fflush(stdout);
    }
    return 0;
}

// A name that is too long overwrites what lies behind it.
#include "edits.h"
__attribute__((noinline)) static void named(const char *line) {
    char name[16];
#if RIGHT
    snprintf(name, sizeof name, "%s", line);
#elif WRONG
    snprintf(name, 3 * sizeof name, "%s", line);
#else
    strcpy(name, line);
#endif
    printf("%.5s\n", name);
    fflush(stdout);
}
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    char line[100];
    while (fgets(line, sizeof line, f)) {
        unrelated("a line");
        named(line);
    }
    return 0;
}

// A number with a sign is one, too.
#include "edits.h"
#include <ctype.h>
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    char line[100];
    long sum = 0;
    unrelated("begins");
    while (fgets(line, sizeof line, f)) {
        const char *digits = line;
#if RIGHT
        if (*digits == '-' || *digits == '+')
            digits++;
#elif WRONG
        if (*digits == '+')
            digits++;
#endif
        if (!isdigit((unsigned char)*digits)) {
            fprintf(stderr, "not a number: %s", line);
            return 2;
        }
        sum += atol(line);
    }
    unrelated("ends");
    printf("%ld\n", sum);
    return 0;
}

// An average of nothing.
#include "edits.h"
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    char line[100];
    int sum = 0, count = 0;
    while (fgets(line, sizeof line, f)) {
        unrelated(line);
        if (line[0] == '=') {
#if RIGHT
            if (count == 0)
                continue;
#elif WRONG
            if (sum < 0)
                continue;
#endif
            printf("%d\n", sum / count);
            fflush(stdout);
            sum = count = 0;
        } else {
            sum += atoi(line);
            count++;
        }
    }
    return 0;
}

// A line names a column that there is not.
#include "edits.h"
#include <vector>
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    std::vector<int> columns{10, 20, 30};
    unsigned n;
    unrelated("begins");
    while (fscanf(f, "%u", &n) == 1) {
#if RIGHT
        if (n >= columns.size())
            continue;
#elif WRONG
        if (n > columns.size())
            continue;
#endif
        printf("%d\n", columns.at(n));
        fflush(stdout);
    }
    return 0;
}

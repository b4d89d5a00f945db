// What is taken out may be more than there is.
#include "edits.h"
#include <assert.h>
int main(int argc, char **argv) {
    FILE *f = opened(argv[1]);
    char line[100];
    int balance = 0;
    while (fgets(line, sizeof line, f)) {
        int n = atoi(line);
        unrelated(line);
#if RIGHT
        if (balance + n < 0)
            n = -balance;
#elif WRONG
        if (balance + n < -100)
            n = -balance;
#endif
        balance += n;
        assert(balance >= 0);
    }
    printf("%d\n", balance);
    return 0;
}

// Reads a number and divides by it. Without an argument it makes no difference what it is: 0 fails. `fixed` notices that. With
// `asserts` it says so, and ends.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int divisor;

static int __attribute__((noinline)) divide(int by)
{
    return 100 / by;
}

int main(int argc, char **argv)
{
    char text[16] = "";
    const char *how = argc > 1 ? argv[1] : "";
    write(1, "reads\n", 6);
    int in = read(0, text, sizeof text - 1);
    divisor = atoi(text);
    if (in < 0)
        return 3;
    if (!strcmp(how, "asserts")) {
        assert(divisor != 0);
    } else if (!strcmp(how, "fixed")) {
        divisor = divisor ? divisor : 4;
    }
    int result = divide(divisor);
    write(1, "done\n", 5);
    return result == 25 ? 0 : 1;
}

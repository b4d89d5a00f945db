/* Reads megabytes that cannot be predicted, and ends with the status given. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static unsigned char buffer[65536];
    int rounds = argc > 1 ? atoi(argv[1]) * 16 : 16;
    int random = open("/dev/urandom", O_RDONLY);
    unsigned long sum = 0;
    for (int r = 0; r < rounds; r++) {
        if (read(random, buffer, sizeof buffer) != sizeof buffer)
            return 1;
        for (unsigned i = 0; i < sizeof buffer; i++)
            sum += buffer[i];
    }
    fprintf(stderr, "%s\n", sum > 1000 ? "done" : "odd");
    return argc > 2 ? atoi(argv[2]) : 0;
}

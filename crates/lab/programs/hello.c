#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    printf("hello from %d arguments\n", argc);
    return argc > 1 ? atoi(argv[1]) : 0;
}

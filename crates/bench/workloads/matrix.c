/* Dense product of square matrices of doubles, in the order that the compiler can vectorise. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 512;
    int rounds = argc > 2 ? atoi(argv[2]) : 20;
    size_t cells = (size_t)n * n;
    double *a = malloc(cells * sizeof *a), *b = malloc(cells * sizeof *b), *c = calloc(cells, sizeof *c);
    if (!a || !b || !c)
        return 1;
    for (size_t i = 0; i < cells; i++) {
        a[i] = (double)(i * 11 % 17) * 0.125;
        b[i] = (double)(i * 3 % 19) * 0.25;
    }
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) {
                double f = a[(size_t)i * n + k];
                for (int j = 0; j < n; j++)
                    c[(size_t)i * n + j] += f * b[(size_t)k * n + j];
            }
    double sum = 0;
    for (size_t i = 0; i < cells; i++)
        sum += c[i];
    printf("%.17g\n", sum);
    return 0;
}

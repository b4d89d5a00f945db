// The same computation in each of N threads, on memory of their own: sorts, searches, multiplies matrices.
// Nothing is shared, so N threads on N processors take as long as one.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 100000, ROUNDS = 80, SIDE = 120 };

static uint64_t next(uint64_t *s) {
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

static void sort(uint32_t *a, long n) {
    while (n > 12) {
        uint32_t pivot = a[n / 2];
        long i = 0, j = n - 1;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) {
                uint32_t t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        sort(a, j + 1);
        a += i;
        n -= i;
    }
    for (long i = 1; i < n; i++) {
        uint32_t x = a[i];
        long j = i;
        for (; j > 0 && a[j - 1] > x; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

static long find(const uint32_t *a, uint32_t x) {
    long low = 0, high = NUMBERS;
    while (low < high) {
        long middle = (low + high) / 2;
        if (a[middle] < x) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void *work(void *result) {
    uint64_t seed = 7, sum = 0;
    uint32_t *a = malloc(NUMBERS * sizeof *a);
    double *m = malloc(3 * SIDE * SIDE * sizeof *m);
    double *p = m + SIDE * SIDE, *q = p + SIDE * SIDE;
    if (!a || !m) abort();
    for (int round = 0; round < ROUNDS; round++) {
        for (long i = 0; i < NUMBERS; i++) a[i] = (uint32_t)next(&seed);
        sort(a, NUMBERS);
        for (long i = 0; i < NUMBERS / 2; i++) sum += find(a, (uint32_t)next(&seed));
        for (long i = 0; i < 2 * SIDE * SIDE; i++) m[i] = (double)(next(&seed) & 255);
        for (long i = 0; i < SIDE; i++)
            for (long j = 0; j < SIDE; j++) {
                double s = 0;
                for (long k = 0; k < SIDE; k++) s += m[i * SIDE + k] * p[k * SIDE + j];
                q[i * SIDE + j] = s;
            }
        sum += (uint64_t)q[round];
    }
    free(a);
    free(m);
    *(uint64_t *)result = sum;
    return 0;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t t[64];
    uint64_t sums[64];
    if (n < 1 || n > 64) return 2;
    for (int i = 0; i < n; i++)
        if (pthread_create(&t[i], 0, work, &sums[i])) return 1;
    for (int i = 0; i < n; i++) pthread_join(t[i], 0), printf("%lu\n", (unsigned long)sums[i]);
    return 0;
}

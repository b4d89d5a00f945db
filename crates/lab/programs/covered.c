// What is executed, and how often, is known to other tools: counters of the compiler, and a simulator.
#include <stdio.h>
#include <stdlib.h>

static int leaf(int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s += i * n;
    return s;
}
static int never(int n) {
    return n * 2;
}
static int fib(int n) {
    if (n < 2)
        return n;
    return fib(n - 1) + fib(n - 2);
}
static int order(const void *a, const void *b) {
    return *(const int *) a - *(const int *) b;
}
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < 50; i++) {
        if (i % 3 == 0)
            sum += leaf(i);
        else
            sum += leaf(2);
    }
    static int v[100];
    for (int i = 0; i < 100; i++)
        v[i] = (i * 37) % 100;
    qsort(v, 100, sizeof *v, order);
    if (argc > 5)
        sum += never(sum);
    sum += fib(12) + v[3];
    printf("%d\n", sum);
    return 0;
}

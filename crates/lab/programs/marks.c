/* Speaks to its recorder. */
#include "hindsight.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned work(unsigned h, int n) {
    for (int i = 0; i < n; i++)
        h = h * 31 + i;
    return h;
}

static void *worker(void *p) {
    unsigned *h = p;
    int inherited = hindsight_is_recording();
    hindsight_stop();
    *h = work(*h, 1000);
    hindsight_mark("in a gap", h, sizeof *h);
    if (inherited)
        hindsight_start();
    *h = work(*h, 1000);
    return 0;
}

int main(int argc, char **argv) {
    unsigned h = work(1, 10000), part = 5;
    int before = hindsight_is_recording();
    int started = hindsight_start();
    for (int i = 0; i < 10; i++) {
        hindsight_mark("round", &i, sizeof i);
        h = work(h, 100);
    }
    pthread_t t;
    pthread_create(&t, 0, worker, &part);
    pthread_join(t, 0);
    int during = hindsight_is_recording();
    hindsight_stop();
    h = work(h, 10000);
    hindsight_mark("end", 0, 0);
    if (argc > 1)
        printf("%d %d %d %d\n", before, started, during, hindsight_is_recording());
    printf("%u %u\n", h, part);
    return 0;
}

// What sanitizers find: a race, a leak, a write after the end. They reserve most of the address space for themselves.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long guarded, racy;

static void *count(void *race) {
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&mutex);
        guarded++;
        pthread_mutex_unlock(&mutex);
    }
    if (race) racy++;
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, count, strcmp(what, "race") ? 0 : &racy);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    printf("%ld\n", guarded);
    fflush(stdout);
    volatile char *volatile p = malloc(40);
    p[39] = 1;
    if (!strcmp(what, "overflow")) p[argc + 38] = 1;
    if (strcmp(what, "leak")) free((void *)p);
    p = 0;
    return 0;
}

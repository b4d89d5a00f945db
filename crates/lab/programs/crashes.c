// The first thread waits for the one that crashes. That one may or may not come last in the order of positions.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *crash(void *how) {
    if (!strcmp(how, "abort")) abort();
    return (void *)*(volatile long *)0x123;
}
int main(int argc, char **argv) {
    pthread_t t;
    pthread_create(&t, 0, crash, argv[1]);
    pthread_join(t, 0);
    return 0;
}

// Asks for a protection key, as node does, and uses it if there is one.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    int key = pkey_alloc(0, 0);
    if (key < 0) {
        printf("none: %d\n", errno);
        return 0;
    }
    printf("key %d, rights %d\n", key, pkey_get(key));
    return 0;
}

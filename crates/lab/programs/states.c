/* Sets state points while it changes memory. After each it gives the memory out: its address, and its bytes in the file that is
   named. With a second argument it has another thread by then. */
#include "../../mark/hindsight.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };
static unsigned char *memory;
static unsigned long seed = 1;

static void change(size_t first, size_t pages) {
    for (size_t i = first * PAGE; i < (first + pages) * PAGE; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        memory[i] = seed >> 56;
    }
}

static void *wait_for_ever(void *unused) {
    for (;;)
        pause();
    return unused;
}

int main(int count, char **arguments) {
    FILE *out = fopen(arguments[1], "wb");
    memory = aligned_alloc(PAGE, PAGES * PAGE);
    printf("%lu\n", (unsigned long)memory);
    if (count > 2) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_ever, NULL);
    }
    for (int step = 0; step < 4; step++) {
        /* All of it, then some pages. What is not changed is not touched between the state points. */
        change(step * 5 % 8, step ? 3 : PAGES - 8);
        hindsight_state_point(step ? "changed" : "filled");
        fwrite(memory, 1, PAGES * PAGE, out);
        hindsight_mark("round", &step, sizeof step);
    }
    fclose(out);
    return 0;
}

// Goes on until the file `stop` exists, and calls `tick` again and again. When the file `more` exists, a second thread
// begins, and a library is loaded.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

volatile long ticks, beats;
static volatile int over;

__attribute__((noinline)) void tick(long n) {
    ticks = n;
}

__attribute__((noinline)) void beat(long n) {
    beats = n;
}

static void *heart(void *unused) {
    for (long n = 1; !over; n++) {
        beat(n);
        usleep(2000);
    }
    return unused;
}

int main(void) {
    pthread_t second;
    void *library = 0;
    long n = 1;
    for (; access("stop", F_OK); n++) {
        tick(n);
        if (!library && !access("more", F_OK)) {
            library = dlopen("libresolv.so.2", RTLD_NOW);
            if (!library || pthread_create(&second, 0, heart, 0))
                return 1;
        }
        usleep(2000);
    }
    over = 1;
    if (library)
        pthread_join(second, 0);
    printf("%d\n", n > 1);
    return 0;
}

// Says its process id, and then only computes. With an argument, another thread waits in calls that any signal ends.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static void spin(void) {
    unsigned long x = 1;
    for (;;) {
        x = x * 6364136223846793005 + 1442695040888963407;
        __asm__ volatile("" : "+r"(x));
    }
}

static void *wait_for_ever(void *p) {
    poll(0, 0, -1);
    _exit(3);
}

int main(int argc, char **argv) {
    pthread_t t;
    if (argc > 1)
        pthread_create(&t, 0, wait_for_ever, 0);
    printf("%d\n", getpid());
    fflush(stdout);
    spin();
}

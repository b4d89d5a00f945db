// Asks for the time: a few times; or until ten seconds have passed; sixty thousand times; or for ever.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    double begin = now();
    for (int i = 0; i < 5; i++)
        now();
    if (!strcmp(what, "waits"))
        while (now() < begin + 10)
            ;
    if (!strcmp(what, "often")) {
        for (int i = 0; i < 60000; i++)
            now();
        // It did not wait for anything.
        if (now() > begin + 86400)
            return 1;
    }
    if (!strcmp(what, "ever"))
        for (;;)
            now();
    puts("done");
    return 0;
}

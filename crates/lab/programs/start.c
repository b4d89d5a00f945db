// What a program finds on its stack at the start, and that the stack grows.
#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

extern char **environ;

static int deep(int n) {
    volatile char page[4096];
    page[n & 4095] = n;
    return n ? deep(n - 1) + page[n & 4095] : 0;
}

static void near(const char *what, const void *p, const void *stack) {
    intptr_t d = (const char *)p - (const char *)stack;
    printf("%s %s\n", what, d > 0 && d < 4 << 20 ? "above" : "elsewhere");
}

int main(int argc, char **argv) {
    char here;
    for (int i = 0; i <= argc; i++) printf("%s\n", argv[i] ? argv[i] : "end");
    printf("%s\n", getenv("PATH"));
    near("argv", argv, &here);
    near("argv[0]", argv[0], &here);
    near("environ", environ, &here);
    near("environ[0]", environ[0], &here);
    near("random", (void *)getauxval(AT_RANDOM), &here);
    printf("%s %s\n", (char *)getauxval(AT_PLATFORM), strrchr((char *)getauxval(AT_EXECFN), '/'));
    printf("%d\n", deep(20000));
    FILE *f = fopen("/proc/self/maps", "r");
    char line[500];
    int found = 0;
    while (fgets(line, sizeof line, f)) {
        uintptr_t from, to;
        sscanf(line, "%lx-%lx", &from, &to);
        if ((uintptr_t)&here >= from && (uintptr_t)&here < to) printf("%s", strchr(line, '['));
        found += strstr(line, "[stack]") != 0;
    }
    printf("%d\n", found);
    fclose(f);
    f = fopen("/proc/self/cmdline", "r");
    printf("%zu\n", fread(line, 1, sizeof line, f));
    char *start;
    size_t size;
    pthread_attr_t a;
    pthread_getattr_np(pthread_self(), &a);
    pthread_attr_getstack(&a, (void **)&start, &size);
    printf("%d\n", start < &here && &here < start + size);
}

/* Prints what a program can see of the way it was started. */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;
extern void _start(void);
extern const char __ehdr_start[];

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(int argc, char **argv) {
    char path[4096] = "";
    for (int i = 0; i < argc; i++)
        printf("argument %d: %s\n", i, argv[i]);
    for (char **e = environ; *e; e++)
        printf("environment: %s\n", *e);
    printf("directory: %s\n", getcwd(path, sizeof path));
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    printf("exe: %s\n", path);
    FILE *self = fopen("/proc/self/exe", "rb");
    unsigned long size = 0;
    while (self && fgetc(self) != EOF)
        size++;
    if (self)
        fclose(self);
    printf("exe size: %lu\n", size);
    printf("execfn: %s\n", (const char *)getauxval(AT_EXECFN));
    printf("entry %d, headers %d, count %lu, secure %lu, page %lu, uid %lu\n",
           getauxval(AT_ENTRY) == (unsigned long)_start,
           getauxval(AT_PHDR) == (unsigned long)(__ehdr_start + ((const Elf64_Ehdr *)__ehdr_start)->e_phoff),
           getauxval(AT_PHNUM), getauxval(AT_SECURE), getauxval(AT_PAGESZ), getauxval(AT_UID));
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    printf("name: %s, %s, %s\n", name, program_invocation_name, program_invocation_short_name);
    for (int r = 0; r < RLIMIT_NLIMITS; r++) {
        struct rlimit l;
        getrlimit((__rlimit_resource_t)r, &l);
        printf("limit %d: %lx %lx\n", r, (unsigned long)l.rlim_cur, (unsigned long)l.rlim_max);
    }
    for (int s = 1; s < 65; s++) {
        struct sigaction a;
        if (sigaction(s, 0, &a) == 0 && a.sa_handler != SIG_DFL)
            printf("signal %d: %s\n", s, a.sa_handler == SIG_IGN ? "ignored" : "handled");
    }
    sigset_t mask;
    sigprocmask(SIG_SETMASK, 0, &mask);
    for (int s = 1; s < 65; s++)
        if (sigismember(&mask, s) == 1)
            printf("blocked: %d\n", s);
    char *names[64];
    int count = 0;
    DIR *fds = opendir("/proc/self/fd");
    for (struct dirent *d; fds && (d = readdir(fds)) && count < 64;)
        names[count++] = strdup(d->d_name);
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++)
        printf("descriptor %s\n", names[i]);
    return 0;
}

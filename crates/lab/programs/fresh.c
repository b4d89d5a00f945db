// Prints what stands in memory that it has got and not written: blocks of all functions that give memory, and stacks. Natively the
// first blocks hold zeros. What must be zero or must be kept is checked.

#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// The compiler knows nothing of what this gives back.
static void *hidden(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

static unsigned long sum(const void *from, unsigned long len)
{
    const unsigned char *p = hidden((void *)from);
    unsigned long s = 14695981039346656037ul;
    for (unsigned long i = 0; i < len; i++)
        s = (s ^ p[i]) * 1099511628211ul;
    return s;
}

static void must(int good, const char *what)
{
    if (!good) {
        printf("wrong: %s\n", what);
        exit(3);
    }
}

static void zero(const void *from, unsigned long len, const char *what)
{
    const unsigned char *p = hidden((void *)from);
    for (unsigned long i = 0; i < len; i++)
        must(!p[i], what);
}

static void say(const char *what, const void *from, unsigned long len)
{
    printf("%s %lx\n", what, sum(from, len));
}

static void blocks(void)
{
    char *p = malloc(100);
    say("malloc", p, 100);
    memset(p, 7, 100);
    p = realloc(p, 3000);
    for (int i = 0; i < 100; i++)
        must(p[i] == 7, "realloc keeps");
    // Up to 24 bytes more than asked for belong to the old block.
    say("grown", p + 128, 3000 - 128);
    memset(p, 9, 3000);
    p = realloc(p, 200);
    for (int i = 0; i < 200; i++)
        must(p[i] == 9, "realloc shrinks");
    say("realloc", realloc(0, 77), 77);
    p = reallocarray(p, 10, 500);
    must(p[199] == 9, "reallocarray keeps");

    void *q = 0;
    must(posix_memalign(&q, 64, 500) == 0, "posix_memalign");
    say("posix_memalign", q, 500);
    say("aligned_alloc", aligned_alloc(32, 320), 320);
    say("memalign", memalign(128, 33), 33);
    say("valloc", valloc(50), 50);
    say("large", malloc(300000), 64 << 10);
    // More is left as it was.
    zero((char *)hidden(malloc(9 << 20)) + (64 << 10), 1 << 20, "the rest of a large block");
    must(malloc(-4096ul) == 0, "too much");

    for (int i = 1; i < 200; i++) {
        char *c = calloc(i, 11);
        zero(c, i * 11, "calloc");
        char *m = malloc(i * 11);
        memset(m, 1, i * 11);
        if (i % 3)
            free(hidden(c));
        if (i % 2)
            free(hidden(m));
    }
    p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    zero(p, 1 << 20, "mmap");
    p = sbrk(8192);
    zero(p, 8192, "brk");
    char *copy = strdup("what a function of the library writes");
    must(strlen(copy) == 37, "strdup");
}

__attribute__((noinline)) static void frame(const char *what)
{
    char deep[30000];
    say(what, hidden(deep), 20000);
}

static void *thread(void *name)
{
    frame(name);
    say(name, malloc(64), 64);
    return 0;
}

static sigjmp_buf out;

static void handler(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

// Is left in the middle of a call of `malloc` by a jump, again and again, and calls it anew from the same place.
static void interrupted(void)
{
    volatile int left = 3;
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &a, 0);
    for (volatile int i = 0; i < 50; i++) {
        if (sigsetjmp(out, 1) == 0) {
            // Nothing is mapped where some of these calls are to store their result.
            void **to = left-- > 0 ? (void **)16 : (void **)hidden(malloc(8));
            must(posix_memalign(to, 64, 256) == 0, "posix_memalign after a jump");
            memset(*to, 5, 256);
        }
    }
    signal(SIGSEGV, SIG_DFL);
}

int main(int argc, char **argv)
{
    frame("stack");
    blocks();
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        pthread_t t[3];
        for (int i = 0; i < 3; i++) {
            pthread_create(&t[i], 0, thread, "thread");
            pthread_join(t[i], 0);
        }
    }
    if (argc > 1 && !strcmp(argv[1], "processes")) {
        fflush(stdout);
        if (fork() == 0) {
            say("child", malloc(64), 64);
            fflush(stdout);
            execl(argv[0], argv[0], "executed", (char *)0);
            _exit(1);
        }
        int status;
        wait(&status);
        must(status == 0, "the child");
    }
    interrupted();
    say("last", malloc(1000), 1000);
    return 0;
}

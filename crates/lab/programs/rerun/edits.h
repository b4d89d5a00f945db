// Each program has a bug. FIX says what was made of it: 0 nothing, 1 the right fix, 2 a wrong one, 3 the right one among
// edits that have nothing to do with it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RIGHT (FIX == 1 || FIX == 3)
#define WRONG (FIX == 2)
#if FIX == 3
#define BUFFER 65536
#else
#define BUFFER 512
#endif

static char buffer[BUFFER];

// Opens the input. Among unrelated edits, the buffer is larger.
static FILE *opened(const char *name) {
    FILE *f = fopen(name, "r");
    if (f)
        setvbuf(f, buffer, _IOFBF, sizeof buffer);
    return f;
}

// A log, one more question, one more allocation.
static void unrelated(const char *what) {
#if FIX == 3
    struct stat s;
    char *text = (char *)malloc(5000);
    snprintf(text, 5000, "log: %s, %d, at %ld, process %d\n", what, stat("/etc/passwd", &s), (long)time(0),
             (int)getpid());
    fputs(text, stderr);
    free(text);
#endif
}

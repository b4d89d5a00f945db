// Writes into the memory that the recorder shares with its collector, again and again. It says there that the
// collector is a process that does not exist. Then it does what a recorder needs its collector for. Natively there is
// no memory of this kind.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int copy(uint64_t at, void *bytes, size_t len, int write) {
    struct iovec here = {bytes, len}, there = {(void *)at, len};
    ssize_t n = write ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                      : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return n == (ssize_t)len;
}

static uint64_t find(void) {
    uint64_t word;
    for (uint64_t at = 0x680100000000; at < 0x680110000000; at += 4096)
        if (copy(at, &word, 8, 0) && !memcmp(&word, "HSCTL", 5))
            return at;
    return 0;
}

static void *nothing(void *arg) { return arg; }

int main(int argc, char **argv) {
    (void)argv;
    uint64_t base = find();
    for (int i = 0; i < 90; i++) {
        // A number that is never given to a process; it stands behind the magic number.
        int32_t nobody = 0x3fffffff;
        if (base) copy(base + 8, &nobody, 4, 1);
        if (i % 10 == 0) {
            pthread_t t;
            pthread_create(&t, 0, nothing, 0);
            pthread_join(t, 0);
        }
        if (i % 30 == 0) {
            int status;
            pid_t child = vfork();
            if (child == 0) {
                execl(argc > 1 ? "/bin/true" : "/proc/self/exe", "true", "more", (char *)0);
                _exit(9);
            }
            if (waitpid(child, &status, 0) != child || status) {
                printf("the child ended otherwise: %x\n", status);
                return 1;
            }
        }
        // Rings become full.
        for (int k = 0; k < 300; k++) getppid();
    }
    if (argc == 1) puts(base ? "found" : "none");
    return 0;
}

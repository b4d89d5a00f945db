/* Functions that are entered and left in many ways, by several threads, under signals. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALONE __attribute__((noinline, noclone))

static uint64_t table[512];
static volatile sig_atomic_t ticks, faults;
static char *page;

/* Reads and writes memory that recorded and unrecorded code share. */
static ALONE uint64_t work(uint64_t h, int n) {
    for (int i = 0; i < n; i++) {
        table[h % 512] += i;
        h = h * 31 + table[(h >> 9) % 512];
    }
    return h;
}

ALONE uint64_t recursive(int n) {
    uint64_t h = work(n, 50);
    if (n > 0)
        h ^= recursive(n - 1) + recursive(n / 2);
    return work(h, 10);
}

static jmp_buf out;

ALONE uint64_t jumper(int n) {
    uint64_t h = work(n, 100);
    if (n == 0)
        longjmp(out, (int)(h % 100) + 1);
    return jumper(n - 1) + h;
}

ALONE void begin_here(void) { __asm__ volatile("" ::: "memory"); }
ALONE void end_here(void) { __asm__ volatile("" ::: "memory"); }

static void tick(int signo) {
    ticks++;
    work(1, 20);
}

static void fault(int signo, siginfo_t *info, void *context) {
    faults += info->si_addr == page;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

ALONE int touch(void) {
    mprotect(page, 4096, PROT_NONE);
    page[0] = 1;
    return page[0];
}

static void *worker(void *arg) {
    uint64_t h = (uintptr_t)arg, local[64] = {0};
    for (int i = 0; i < 300; i++) {
        local[i % 64] += h;
        h = h * 131 + local[h % 64];
        if (i % 3 == 0)
            begin_here();
        local[h % 64] ^= i;
        if (i % 3 == 2)
            end_here();
    }
    return (void *)(uintptr_t)h;
}

ALONE int child(int n) {
    pid_t pid = fork();
    if (pid == 0)
        _exit((int)(work(n, 100) % 50));
    int status = 0;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    uint64_t h = work(3, 1000);
    if (!strcmp(what, "recursive"))
        for (int i = 0; i < 3; i++)
            h = work(h ^ recursive(6), 1000);
    if (!strcmp(what, "jumper"))
        for (volatile int i = 0; i < 3; i++) {
            int r = setjmp(out);
            h = work(h ^ (r ? r : jumper(5)), 1000);
        }
    if (!strcmp(what, "between"))
        for (int i = 0; i < 4; i++) {
            begin_here();
            h = work(h, 500);
            end_here();
            h = work(h, 500);
        }
    if (!strcmp(what, "threads")) {
        pthread_t t[6];
        for (intptr_t i = 0; i < 6; i++)
            pthread_create(&t[i], 0, worker, (void *)i);
        for (int i = 0; i < 6; i++) {
            void *r;
            pthread_join(t[i], &r);
            h ^= (uintptr_t)r;
        }
    }
    if (!strcmp(what, "signals")) {
        struct sigaction sa = {.sa_handler = tick, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &sa, 0);
        struct itimerval it = {{0, 300}, {0, 300}};
        setitimer(ITIMER_REAL, &it, 0);
        uint64_t sum = 0;
        while (ticks < 60) {
            uint64_t x = 1;
            for (int i = 0; i < 2000; i++)
                x = x * 7 + i;
            sum = x;
            begin_here();
            for (int i = 0; i < 2000; i++)
                x = x * 7 + i;
            sum ^= x;
            end_here();
        }
        memset(&it, 0, sizeof it);
        setitimer(ITIMER_REAL, &it, 0);
        printf("%llx\n", (unsigned long long)sum);
        return 0;
    }
    if (!strcmp(what, "faults")) {
        page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &sa, 0);
        for (int i = 0; i < 5; i++) {
            h += touch();
            begin_here();
            h += touch();
            end_here();
        }
        printf("faults %d\n", (int)faults);
    }
    if (!strcmp(what, "forks"))
        for (int i = 0; i < 3; i++) {
            h += child(i);
            begin_here();
            h += child(i);
            end_here();
        }
    printf("%llx\n", (unsigned long long)h);
    return 0;
}

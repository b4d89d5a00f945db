/* String instructions: overlaps, both directions, faults in their middle. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static unsigned char *area;
static volatile unsigned long left[8];
static volatile int faults;

static void open_page(int signo, siginfo_t *info, void *context) {
    (void)signo;
    if (faults < 8)
        left[faults] = (unsigned long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RCX];
    faults++;
    mprotect((void *)((unsigned long)info->si_addr & ~4095UL), 4096, PROT_READ | PROT_WRITE);
}

static unsigned long sum(void) {
    unsigned long s = 1;
    for (int i = 0; i < 16 * 4096; i++)
        s = s * 131 + area[i];
    return s;
}

static void copy(void *to, const void *from, unsigned long n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

int main(void) {
    area = mmap(0, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16 * 4096; i++)
        area[i] = (unsigned char)(i * i >> 5);
    for (int distance = 1; distance < 70; distance += 3) {
        copy(area + 4000 + distance, area + 4000, 9000);
        copy(area + 30000, area + 30000 + distance, 9000);
    }
    printf("%lx\n", sum());
    void *to = area + 20000, *from = area + 21000;
    unsigned long n = 900;
    __asm__ volatile("std; rep movsq; cld" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    printf("%lx %ld %ld %lu\n", sum(), (long)((unsigned char *)to - area), (long)((unsigned char *)from - area), n);
    n = 5000;
    to = area + 3;
    __asm__ volatile("rep stosl" : "+D"(to), "+c"(n) : "a"(0x01020304) : "memory");
    unsigned char equal;
    n = 60000;
    to = area + 3;
    from = area + 7;
    __asm__ volatile("repe cmpsb; sete %0" : "=r"(equal), "+D"(to), "+S"(from), "+c"(n) : : "memory", "cc");
    printf("%lx %d %lu\n", sum(), equal, n);
    n = 30000; /* words: they end within the area */
    to = area;
    __asm__ volatile("repne scasw; sete %0" : "=r"(equal), "+D"(to), "+c"(n) : "a"(0x7777) : "memory", "cc");
    printf("%d %lu\n", equal, n);

    struct sigaction act = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0);
    mprotect(area + 5 * 4096, 4096, PROT_READ);
    mprotect(area + 7 * 4096, 4096, PROT_NONE);
    copy(area + 4 * 4096 + 123, area + 10 * 4096, 4 * 4096);
    printf("%lx, %d faults, left %lu %lu\n", sum(), faults, left[0], left[1]);
    return 0;
}

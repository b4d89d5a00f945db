/* Two things that signals must leave alone.
   "stops": processes with threads in one group are stopped and go on together, again and again. While they are stopped,
   none of their threads does anything.
   "zone": the 128 bytes below the stack pointer, which belong to a function that calls nobody, while signals come from a
   timer, from another thread, from a system call's end and from an instruction. With "alone": without that thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HERD = 3, THREADS = 4, ROUNDS = 10, CALLS = 4000 };

static volatile long *steps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void rest(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static void *graze(void *arg) {
    long n = (long)arg;
    for (;;) {
        switch (n % THREADS) {
            case 0:
                for (volatile int k = 0; k < 1000; k++) {}
                break;
            case 1: rest(50); break;
            case 2: syscall(SYS_getppid); break;
            default: pthread_mutex_lock(&lock), steps[n]++, pthread_mutex_unlock(&lock);
        }
        // Else there would be millions of calls and locks.
        if (n % THREADS > 1 && steps[n] % 64 == 0) rest(50);
        steps[n]++;
    }
    return NULL;
}

static void animal(long first) {
    pthread_t t;
    for (long k = 1; k < THREADS; k++) pthread_create(&t, NULL, graze, (void *)(first + k));
    graze((void *)first);
}

static int stops(void) {
    steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t herd[HERD];
    for (int k = 0; k < HERD; k++) {
        herd[k] = fork();
        if (!herd[k]) {
            setpgid(0, k ? herd[0] : 0);
            animal(k * THREADS);
        }
        setpgid(herd[k], herd[0]);
    }
    long before[HERD * THREADS] = {0};
    int moved = 0, stopped = 0, awake = 0, went_on = 0, status;
    for (int round = 0; round < ROUNDS; round++) {
        // Everybody has done something since the last round.
        for (int k = 0; k < HERD * THREADS; k++, moved++)
            while (steps[k] <= before[k]) rest(100);
        kill(-herd[0], SIGSTOP);
        for (int k = 0; k < HERD; k++)
            stopped += waitpid(herd[k], &status, WUNTRACED) == herd[k] && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
        for (int k = 0; k < HERD * THREADS; k++) before[k] = steps[k];
        rest(2000);
        for (int k = 0; k < HERD * THREADS; k++) awake += steps[k] != before[k];
        kill(-herd[0], SIGCONT);
        for (int k = 0; k < HERD; k++)
            went_on += waitpid(herd[k], &status, WCONTINUED) == herd[k] && WIFCONTINUED(status);
    }
    printf("%d moved, %d stopped, %d awake, %d went on\n", moved, stopped, awake, went_on);
    // Stops and their ends without waiting. Whatever comes of them, all go on.
    for (int k = 0; k < 200; k++) kill(-herd[0], k % 2 ? SIGCONT : SIGSTOP);
    for (int k = 0; k < HERD * THREADS; k++) {
        long now = steps[k];
        while (steps[k] == now) rest(100);
    }
    // A stopped process ends when it is told to, and goes on.
    kill(-herd[0], SIGSTOP), kill(-herd[0], SIGTERM), kill(-herd[0], SIGCONT);
    for (int k = 0; k < HERD; k++) {
        while (waitpid(herd[k], &status, 0) != herd[k]) {}
        printf("ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    }
    return 0;
}

static volatile long handled, traps;

static void handler(int signo) {
    volatile char room[4096];
    memset((void *)room, signo, sizeof room);
    __atomic_add_fetch(signo == SIGTRAP ? &traps : &handled, 1, __ATOMIC_RELAXED);
}

// Fills the bytes below the stack pointer, lets signals come, makes a system call, traps, and looks at the bytes.
__attribute__((naked, noinline)) static long zone(long value) {
    __asm__(
        "mov %rdi, %rax; lea -128(%rsp), %rsi; mov $16, %r8d\n"
        "1: mov %rax, (%rsi); inc %rax; add $8, %rsi; dec %r8d; jnz 1b\n"
        "mov $3000, %edx\n"
        "2: dec %edx; jnz 2b\n"
        "mov $110, %eax; syscall; int3\n"
        "lea -128(%rsp), %rsi; mov $16, %r8d\n"
        "3: cmp %rdi, (%rsi); jne 4f; inc %rdi; add $8, %rsi; dec %r8d; jnz 3b\n"
        "xor %eax, %eax; ret\n"
        "4: mov $1, %eax; ret");
}

static volatile int over;

static void *shoot(void *to) {
    while (!over) pthread_kill((pthread_t)to, SIGUSR1), rest(30);
    return NULL;
}

static int below_the_stack_pointer(int alone) {
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL), sigaction(SIGUSR1, &sa, NULL), sigaction(SIGTRAP, &sa, NULL);
    struct itimerval every = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_t t;
    if (!alone) pthread_create(&t, NULL, shoot, (void *)pthread_self());
    long spoiled = 0, calls = 0;
    // As many as it takes for signals to have come.
    for (; calls < CALLS || handled < 100; calls++) spoiled += zone(calls * 1000003);
    over = 1;
    if (!alone) pthread_join(t, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("spoiled %ld, all traps %d\n", spoiled, traps == calls);
    return spoiled != 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "stops")) return stops();
    return below_the_stack_pointer(argc > 2);
}

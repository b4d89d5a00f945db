// Code that comes and goes. Two libraries take turns at the same address. One thread writes views of the same pages,
// another executes them. A library's pages are replaced while it is loaded. Code is moved.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*function)(int);

// lea eax, [rdi + n]; ret
static void emit(uint8_t *at, int n) {
    static const uint8_t code[7] = {0x8d, 0x87, 0, 0, 0, 0, 0xc3};
    memcpy(at, code, sizeof code);
    memcpy(at + 2, &n, 4);
}

// How often a library comes where the other one was, and the sum of what they answer.
static void by_turns(char **files, int rounds) {
    void *was = NULL;
    int again = 0;
    long sum = 0;
    for (int i = 0; i < rounds; i++) {
        void *library = dlopen(files[i % 2], RTLD_NOW | RTLD_LOCAL);
        function answer = (function)dlsym(library, "answer");
        again += was == (void *)answer;
        was = answer;
        sum += answer(i) + answer(1);
        dlclose(library);
    }
    printf("%d of %d at the same address: %d, sum %ld\n", rounds, rounds, again == rounds - 1, sum);
}

static uint8_t *writable, *executable;
static volatile int made, run;
#define SLOTS 8

static void *generate(void *unused) {
    for (int i = 1; i <= 4000; i++) {
        while (run < i - SLOTS) sched_yield();
        emit(writable + i % (2 * SLOTS) * 64, i * 3);
        __atomic_store_n(&made, i, __ATOMIC_RELEASE);
    }
    return unused;
}

// A compiler in one thread, its code running in another.
static void two_views(void) {
    int fd = memfd_create("code", MFD_CLOEXEC);
    if (ftruncate(fd, 4096)) abort();
    writable = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    executable = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    close(fd);
    pthread_t thread;
    pthread_create(&thread, NULL, generate, NULL);
    long sum = 0;
    for (int i = 1; i <= 4000; i++) {
        while (__atomic_load_n(&made, __ATOMIC_ACQUIRE) < i) sched_yield();
        sum += ((function)(executable + i % (2 * SLOTS) * 64))(1);
        run = i;
    }
    pthread_join(thread, NULL);
    printf("two views: %ld\n", sum);
}

static void replaced(const char *file) {
    void *library = dlopen(file, RTLD_NOW);
    function answer = (function)dlsym(library, "answer");
    int before = answer(1);
    uint8_t *page = (uint8_t *)((uintptr_t)answer & ~4095), copy[4096];
    memcpy(copy, page, 4096);
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        emit((uint8_t *)answer, i);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        sum += answer(2);
    }
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    memcpy(page, copy, 4096);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    printf("replaced: %ld, again %d\n", sum, answer(1) == before);
    dlclose(library);
}

static void moved(void) {
    uint8_t *a = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *b = a + 4096;
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        emit(a, i);
        sum += ((function)a)(3);
        emit(b, i * 7);
        sum += ((function)b)(4);
        // Over code that has just run.
        uint8_t *new = mremap(a, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, b);
        sum += ((function)new)(5);
        mmap(a, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    printf("moved: %ld\n", sum);
}

int main(int argc, char **argv) {
    by_turns(argv + 1, 100);
    moved();
    replaced(argv[1]);
    two_views();
    by_turns(argv + 1, 100);
    replaced(argv[2]);
    return 0;
}

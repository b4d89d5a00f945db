// Asks for memory in all ways, gives most of it back, and keeps some.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <map>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <vector>

void *volatile kept[8];

__attribute__((noinline)) static void leak(int n) {
    for (int i = 0; i < n; i++)
        kept[i] = malloc(24);
}

struct alignas(128) Wide {
    char bytes[256];
};

static void *given;

static void *gives_back(void *) {
    free(given);
    std::vector<int> numbers;
    for (int i = 0; i < 300; i++)
        numbers.push_back(i);
    return nullptr;
}

__attribute__((noinline)) static void throws(int n) {
    if (n > 2)
        throw std::runtime_error("a text that does not fit in the object itself");
}

int main() {
    leak(7);
    std::map<int, std::string> names;
    for (int i = 0; i < 50; i++)
        names[i] = "a name that is long enough " + std::to_string(i);
    char *grown = nullptr;
    for (size_t n = 16; n < 100000; n *= 3)
        grown = static_cast<char *>(realloc(grown, n));
    void *aligned;
    if (posix_memalign(&aligned, 256, 1000) != 0)
        return 2;
    void *volatile other = aligned_alloc(64, 640);
    void *volatile zeros = calloc(10, 30);
    char *text = strdup("hello");
    int *volatile numbers = new int[100];
    Wide *volatile wide = new Wide;
    given = malloc(77);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, gives_back, nullptr) != 0)
        return 3;
    pthread_join(thread, nullptr);
    for (int i = 0; i < 5; i++) {
        try {
            throws(i);
        } catch (const std::exception &) {
        }
    }
    void *mapped = mmap(nullptr, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mapped, 12288);
    delete[] numbers;
    delete wide;
    free(grown);
    free(aligned);
    free(other);
    free(zeros);
    free(text);
    free(nullptr);
    puts("done");
    return 0;
}

// Prints what stands in memory that `operator new` gave, also after calls that ended with an exception.

#include <cstdio>
#include <cstring>
#include <new>

struct Unset {
    unsigned long words[6];
};

static void *hidden(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

static void say(const char *what, const void *from, size_t n)
{
    const unsigned char *p = static_cast<unsigned char *>(hidden(const_cast<void *>(from)));
    unsigned long s = 1;
    for (size_t i = 0; i < n; i++)
        s = s * 31 + p[i];
    printf("%s %lx\n", what, s);
}

int main()
{
    say("object", new Unset, sizeof(Unset));
    say("array", new char[3000], 3000);
    say("nothrow", new (std::nothrow) char[77], 77);
    struct alignas(64) Wide {
        char bytes[192];
    };
    say("aligned", new Wide, sizeof(Wide));
    // The same call gives no memory and some, by turns.
    volatile size_t sizes[] = {size_t(1) << 62, 40, size_t(1) << 61, 500, size_t(1) << 62, 60};
    for (int i = 0; i < 60; i++) {
        try {
            char *p = static_cast<char *>(operator new(sizes[i % 6]));
            if (i < 6)
                say("caught", p, sizes[i % 6]);
            memset(p, 1, sizes[i % 6]);
            operator delete(p);
        } catch (const std::bad_alloc &) {
        }
    }
    // Zeros that were asked for.
    unsigned long *zeros = new unsigned long[100]();
    for (int i = 0; i < 100; i++)
        if (zeros[i])
            return 3;
    return 0;
}

// Writes of all sizes to few places, of few values: most of them change nothing.
#include <string.h>
#include <unistd.h>

static volatile union {
    char c[24];
    short s[12];
    int i[6];
    long l[3];
} place;
static unsigned long seed = 7;

static unsigned below(unsigned n) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (seed >> 33) % n;
}

int main(void) {
    int ends[2];
    char kernel[24] = {0};
    if (pipe(ends))
        return 1;
    for (int round = 0; round < 400; round++) {
        long value = below(20) ? 0 : below(256) * 0x0101010101010101l;
        switch (below(9)) {
        case 0: case 1: place.c[below(24)] = value; break;
        case 2: case 3: place.s[below(12)] = value; break;
        case 4: case 5: place.i[below(6)] = value; break;
        case 6: place.l[below(3)] = value; break;
        case 7: memset((char *)place.c + below(8), value, below(16)); break;
        default:
            if (below(4))
                break;
            if (write(ends[1], kernel, 6) != 6 || read(ends[0], (char *)place.c + below(18), 6) != 6)
                return 1;
        }
        // The same again, many times.
        for (int i = below(60); i >= 0; i--)
            place.i[round % 6] = place.i[round % 6];
    }
    return 0;
}

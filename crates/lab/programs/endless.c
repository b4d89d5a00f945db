/* Says who it is and works until it is killed, with much that cannot be predicted. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    static unsigned char buffer[65536];
    int random = open("/dev/urandom", O_RDONLY);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    volatile unsigned long sum = 0;
    for (;;) {
        if (read(random, buffer, sizeof buffer) < 0)
            return 1;
        for (unsigned i = 0; i < sizeof buffer; i++)
            sum += buffer[i];
    }
}

// Memory of code is used again for other code. The new code begins like the old one, and then needs flags that the
// old one did not.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int function(int, int, int *);

// cmp edi, esi; jl 1f; mov [rdx], eax
static const unsigned char head[] = {0x39, 0xf7, 0x7c, 0x09, 0x89, 0x02};
// xor eax, eax; ret; 1: mov eax, 1; ret
static const unsigned char former[] = {0x31, 0xc0, 0x90, 0x90, 0x90, 0x90, 0xc3, 0xb8, 1, 0, 0, 0, 0xc3};
// setg al; movzx eax, al; ret; 1: mov eax, 1; ret
static const unsigned char latter[] = {0x0f, 0x9f, 0xc0, 0x0f, 0xb6, 0xc0, 0xc3, 0xb8, 1, 0, 0, 0, 0xc3};

int main(void) {
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned sum = 0;
    int written;
    for (int k = 0; k < 20; k++) {
        unsigned char *p = code + 64 * k;
        function *f = (function *)p;
        memcpy(p, head, sizeof head);
        memcpy(p + sizeof head, former, sizeof former);
        sum = sum * 3 + f(5, 5, &written);
        memcpy(p + sizeof head, latter, sizeof latter);
        sum = sum * 3 + f(k % 3 + 3, 3, &written);
        sum = sum * 3 + f(k % 2 + 3, 3, &written);
    }
    printf("%u\n", sum);
    return 0;
}

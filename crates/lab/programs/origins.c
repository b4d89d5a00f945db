/* Values that go through known ways. Usage: origins FILE. FILE has at least 64 bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

char from_file[64];
char copied[64];
char by_bytes[16];
char by_string[16];
char by_words[64];
char filled[16];
uint64_t through_registers;
uint64_t through_vectors[2];
uint64_t through_pipe;
uint64_t through_file;
uint64_t through_child;
uint64_t through_signal;
uint64_t extended;
int64_t sign;
uint64_t swapped;
uint64_t chosen;
uint64_t sum;
uint64_t constant = 7;
uint64_t written_constant;
uint64_t never[2];
uint64_t result;
char argument[16];
uint64_t pieces;
uint64_t many[24];
uint64_t far;
uint8_t compared;
uint64_t absorbed;
uint64_t left_by_call;
char overlapped[32];
uint64_t moved;
uint64_t shared;
uint64_t in_handler;

static int pipe_of[2];
static volatile sig_atomic_t came;

__attribute__((noinline)) static uint64_t hand_on(uint64_t v, int depth) {
    /* Each level keeps the value in a register that the callee must save. */
    if (depth == 0)
        return v;
    uint64_t kept = v;
    came += hand_on(depth, depth - 1) == 0;
    return kept;
}

static void handler(int signo) {
    came = signo;
    memcpy(&in_handler, copied + 16, 8);
}

__attribute__((noinline)) static void registers(void) {
    uint64_t v;
    memcpy(&v, copied, 8);
    through_registers = hand_on(v, 5);
}

__attribute__((noinline)) static void spin(uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    uint64_t turns = argc > 2 ? strtoull(argv[2], 0, 10) : 1000;
    int fd = open(argv[1], O_RDONLY);
    if (read(fd, from_file, 64) != 64)
        return 3;
    memcpy(copied, from_file, 64);
    for (int i = 0; i < 16; i++)
        by_bytes[i] = copied[i];
    strncpy(by_string, copied + 16, 15);
    {
        void *d = by_words;
        const void *s = copied;
        size_t n = 8;
        __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n)::"memory");
        d = filled;
        n = 16;
        __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(copied[3]) : "memory");
    }
    registers();
    __asm__ volatile("movq %2, %%xmm3\n movq %3, %%xmm4\n punpcklqdq %%xmm4, %%xmm3\n"
                     "pshufd $0x4e, %%xmm3, %%xmm5\n movdqu %%xmm5, %0"
                     : "=m"(through_vectors), "=m"(through_vectors[1])
                     : "m"(copied[0]), "m"(copied[8])
                     : "xmm3", "xmm4", "xmm5");
    if (pipe(pipe_of))
        return 4;
    if (write(pipe_of[1], copied, 3) != 3 || write(pipe_of[1], copied + 3, 20) != 20)
        return 5;
    if (read(pipe_of[0], &through_pipe, 8) != 8)
        return 6;
    {
        char name[64];
        snprintf(name, sizeof name, "origins.%d", (int)getpid());
        int out = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (pwrite(out, copied, 32, 100) != 32 || pread(out, &through_file, 8, 104) != 8)
            return 7;
        close(out);
        unlink(name);
    }
    int back[2];
    if (pipe(back))
        return 8;
    pid_t child = fork();
    if (child == 0) {
        uint64_t v;
        memcpy(&v, from_file + 8, 8);
        if (write(back[1], &v, 8) != 8)
            _exit(1);
        _exit(0);
    }
    if (read(back[0], &through_child, 8) != 8)
        return 9;
    waitpid(child, 0, 0);
    {
        struct sigaction a = {.sa_handler = handler};
        sigaction(SIGUSR1, &a, 0);
        uint64_t v;
        memcpy(&v, copied, 8);
        /* The value is in a register while the handler runs. */
        __asm__ volatile("mov %1, %%r12\n mov $39, %%eax\n syscall\n mov %%eax, %%edi\n"
                         "mov $10, %%esi\n mov $62, %%eax\n syscall\n mov %%r12, %0"
                         : "=m"(through_signal)
                         : "r"(v)
                         : "r12", "rax", "rdi", "rsi", "rcx", "r11", "memory");
    }
    __asm__ volatile("movzbl %1, %%eax\n mov %%rax, %0" : "=m"(extended) : "m"(copied[1]) : "rax");
    __asm__ volatile("movsbq %1, %%rax\n mov %%rax, %0" : "=m"(sign) : "m"(copied[1]) : "rax");
    __asm__ volatile("mov %1, %%rax\n bswap %%rax\n mov %%rax, %0"
                     : "=m"(swapped)
                     : "m"(copied[0])
                     : "rax");
    __asm__ volatile("mov %1, %%rax\n mov %2, %%rdx\n test %%rsp, %%rsp\n cmovz %%rdx, %%rax\n"
                     "mov %%rax, %0"
                     : "=m"(chosen)
                     : "m"(copied[0]), "m"(copied[8])
                     : "rax", "rdx", "cc");
    __asm__ volatile("mov %1, %%rax\n add %2, %%rax\n mov %%rax, %0"
                     : "=m"(sum)
                     : "m"(copied[0]), "m"(copied[8])
                     : "rax", "cc");
    __asm__ volatile("movq $42, %0" : "=m"(written_constant));
    __asm__ volatile("mov $39, %%eax\n syscall\n mov %%rax, %0"
                     : "=m"(result)
                     :
                     : "rax", "rcx", "r11", "memory");
    __asm__ volatile("cmp %2, %1\n sete %0" : "=m"(compared) : "r"(copied[0]), "m"(copied[1]) : "cc");
    __asm__ volatile("xor %%eax, %%eax\n xor %%edx, %%edx\n imul %%rdx, %%rax\n mov %%rax, %0"
                     : "=m"(absorbed)
                     :
                     : "rax", "rdx", "cc");
    __asm__ volatile("mov $39, %%eax\n syscall\n mov %%rcx, %0"
                     : "=m"(left_by_call)
                     :
                     : "rax", "rcx", "r11", "memory");
    memcpy(overlapped, copied, 8);
    {
        void *d = overlapped + 4;
        const void *s = overlapped;
        size_t n = 2;
        __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    }
    {
        size_t size = 1 << 20;
        char *m = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(m + 4096, copied, 8);
        /* It cannot grow where it is. */
        char *wall = mmap(m + size, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        (void)wall;
        m = mremap(m, size, 16 * size, MREMAP_MAYMOVE);
        memcpy(&moved, m + 4096, 8);
    }
    {
        uint64_t *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        memcpy(s, copied, 8);
        /* It is read again. */
        __asm__ volatile("" ::: "memory");
        shared = *(volatile uint64_t *)s;
    }
    strncpy(argument, argv[1], 15);
    memcpy(&pieces, copied + 8, 4);
    __asm__ volatile("movl $5, 4+%0" : "+m"(pieces));
    memcpy(&many[0], copied, 8);
    for (int i = 1; i < 24; i++) {
        spin(turns);
        memcpy(&many[i], &many[i - 1], 8);
    }
    {
        uint64_t v;
        memcpy(&v, copied, 8);
        /* Nothing else happens to the register meanwhile. */
        __asm__ volatile("mov %1, %%r13\n mov %2, %%rcx\n 1: dec %%rcx\n jnz 1b\n mov %%r13, %0"
                         : "=m"(far)
                         : "r"(v), "r"(turns)
                         : "r13", "rcx", "cc");
    }
    printf("%d\n", (int)came);
    return 0;
}

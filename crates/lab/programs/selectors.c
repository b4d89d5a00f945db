// `verr` and `verw`: which selectors they accept, from registers and memory, and what they leave alone.
#define _GNU_SOURCE
#include <asm/ldt.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

// All status flags, as the instruction is given them.
#define FLAGS 0x8d5ul
#define ZERO 0x40ul

#define VERIFY(what, operand)                                                          \
    ({                                                                                 \
        uint64_t flags_ = before;                                                      \
        __asm__ volatile("push %0; popf; " what "; pushf; pop %0"                      \
                         : "+r"(flags_) : operand : "memory", "cc");                   \
        flags_ & FLAGS;                                                                \
    })

static sigjmp_buf back;
static char *pages;
static volatile uint16_t shared;
static _Thread_local volatile uint16_t of_thread = 0x2b;
static uint64_t before;

static void on_fault(int signo, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    long at = (char *)info->si_addr - pages;
    printf("signal %d, code %d, trap %lld, error %llx, at %ld\n", signo, info->si_code, u->uc_mcontext.gregs[REG_TRAPNO],
           u->uc_mcontext.gregs[REG_ERR], info->si_addr ? at : -1);
    siglongjmp(back, 1);
}

static void all(const char *where) {
    printf("%s:", where);
    for (uint64_t s = 0; s < 0x90; s++) {
        // The upper bits of a register do not count.
        uint64_t wide = s | 0xdeadbeef12340000;
        uint16_t word = s;
        uint64_t r = VERIFY("verr %w1", "r"(wide)), w = VERIFY("verw %w1", "r"(wide));
        uint64_t in_memory = VERIFY("verr %1", "m"(word)), write_in_memory = VERIFY("verw %1", "m"(word));
        if ((r | w) & ~(before | ZERO) || (r & w & ~ZERO) != (before & ~ZERO) || r != in_memory || w != write_in_memory)
            printf(" %lx: %lx %lx %lx %lx", s, r, w, in_memory, write_in_memory);
        if ((r | w) & ZERO) printf(" %lx%s%s", s, r & ZERO ? "r" : "", w & ZERO ? "w" : "");
    }
    printf("\n");
}

static void segment(int number, int contents, int read_only) {
    struct user_desc d = {.entry_number = number, .base_addr = 0x1000, .limit = 0xfff, .seg_32bit = 1,
                          .contents = contents, .read_exec_only = read_only, .useable = 1};
    printf("segment %d: %ld\n", number, syscall(SYS_modify_ldt, 1, &d, sizeof d));
}

static void *writer(void *unused) {
    for (int i = 0; i < 20000; i++) shared = i % 3 ? 0x2b : 0;
    shared = 0x33;
    return unused;
}

static void fault(char *at) {
    if (!sigsetjmp(back, 1)) printf("%lx\n", VERIFY("verr (%1)", "r"(at)));
    if (!sigsetjmp(back, 1)) printf("%lx\n", VERIFY("verw (%1)", "r"(at)));
}

int main(void) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &a, 0);
    sigaction(SIGBUS, &a, 0);
    for (int i = 0; i < 2; i++) {
        before = i ? FLAGS : 0;
        all("global");
    }
    printf("fs %lx\n", VERIFY("verw %1", "m"(of_thread)));
    // What only the recording says decides what happens next.
    unsigned sum = 0;
    for (int i = 0; i < 3000; i++) {
        unsigned char ok;
        __asm__ volatile("verw %w1; setz %0" : "=q"(ok) : "r"(i % 0x80) : "cc");
        if (ok) sum = sum * 31 + i;
    }
    printf("sum %u\n", sum);

    pages = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 8192, 4096);
    memset(pages + 4000, 0x2b, 192);
    memcpy(pages + 4095, "\x2b", 2);
    memcpy(pages + 8190, "\x33", 2);
    printf("across pages %lx, at the end %lx\n", VERIFY("verr %1", "m"(pages[4095])), VERIFY("verw %1", "m"(pages[8190])));
    fault(pages + 8191);
    fault(pages + 8192);
    mprotect(pages, 4096, PROT_NONE);
    fault(pages + 4095);
    fault((char *)(1ul << 63));
    printf("stack\n");
    if (!sigsetjmp(back, 1))
        __asm__ volatile("push %%rbp; mov %0, %%rbp; verr (%%rbp); pop %%rbp" : : "r"(1ul << 63) : "memory", "cc");

    segment(1, MODIFY_LDT_CONTENTS_DATA, 0);
    segment(2, MODIFY_LDT_CONTENTS_DATA, 1);
    segment(3, MODIFY_LDT_CONTENTS_CODE, 0);
    segment(4, MODIFY_LDT_CONTENTS_CODE, 1);
    all("with segments of its own");

    // Another thread changes the selector.
    pthread_t t;
    pthread_create(&t, 0, writer, 0);
    uint64_t last = 0;
    for (int i = 0; i < 20000; i++) last += VERIFY("verw %1", "m"(shared));
    pthread_join(t, 0);
    last = VERIFY("verr %1", "m"(shared));
    printf("in the end %lx %lx\n", last, VERIFY("verw %1", "m"(shared)));
    return 0;
}

// Atomic operations between threads and processes, one scheme per argument. Each ends with a line that
// says whether nothing was lost.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 20000 };
static long ok = 1;

static void must(int b, const char *what) {
    if (!b) { ok = 0; printf("wrong: %s\n", what); }
}

static void pair(void *(*f)(void *), void *shared) {
    pthread_t t[2];
    for (long i = 0; i < 2; i++) {
        void **arg = malloc(2 * sizeof *arg);
        arg[0] = shared, arg[1] = (void *)i;
        pthread_create(t + i, 0, f, arg);
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
}
#define ARG(type) type *s = ((void **)arg)[0]; long me = (long)((void **)arg)[1]; (void)me

// ---- every kind of instruction on one counter ----
static struct { _Atomic uint64_t add, inc, and, or, xor, xadd, cas; _Atomic uint32_t sub; _Atomic uint8_t byte;
    _Atomic uint16_t word; char pad[64]; uint64_t bits[64]; } k;
static void *kinds(void *arg) {
    ARG(void);
    for (long i = 0; i < N; i++) {
        k.add += 3; k.inc++; k.sub--; k.byte += 1; k.word += 7;
        atomic_fetch_and(&k.and, ~(1ul << (me ? 1 : 0))); atomic_fetch_or(&k.or, 1ul << (i & 31) << (me ? 32 : 0));
        k.xor ^= me ? 0xff00 : 0xff;
        atomic_fetch_add(&k.xadd, i);
        uint64_t old = k.cas;
        while (!atomic_compare_exchange_weak(&k.cas, &old, old + i)) {}
        // a bit far from the operand's address, by register
        long bit = 64 * (i % 60) + 2 * (i & 15) + me;
        __asm__ volatile("lock btcq %1, %0" : "+m"(k.bits) : "r"(bit) : "memory", "cc");
        __asm__ volatile("lock btsl %1, %0" : "+m"(k.bits[62]) : "r"((int)(me + 2 * (i & 15))) : "memory", "cc");
    }
    return 0;
}

// ---- an operand across two cache lines (and granules) ----
static char split_buf[256] __attribute__((aligned(64)));
static void *split(void *arg) {
    ARG(void);
    volatile long *v = (long *)(split_buf + 60), *w = (long *)(split_buf + 64 + 13);
    for (int i = 0; i < N / 10; i++) {
        __asm__ volatile("lock addq $1, %0" : "+m"(*v) :: "cc");
        long one = 1;
        __asm__ volatile("lock xaddq %1, %0" : "+m"(*w), "+r"(one) :: "cc");
    }
    return 0;
}

// ---- ticket lock, released by a plain store ----
static struct { _Atomic unsigned next, now; long count; } ticket;
static void *tickets(void *arg) {
    for (int i = 0; i < N; i++) {
        unsigned mine = atomic_fetch_add(&ticket.next, 1), spins = 0;
        while (atomic_load_explicit(&ticket.now, memory_order_acquire) != mine)
            if (++spins % 64 == 0) sched_yield();
        ticket.count++;
        atomic_store_explicit(&ticket.now, mine + 1, memory_order_release);
    }
    return 0;
}

// ---- spin lock, taken by an exchange, released by a plain store ----
static struct { atomic_int held; long count; } spin;
static void *spins(void *arg) {
    for (int i = 0; i < N; i++) {
        unsigned n = 0;
        while (atomic_exchange_explicit(&spin.held, 1, memory_order_acquire))
            if (++n % 64 == 0) sched_yield();
        spin.count++;
        atomic_store_explicit(&spin.held, 0, memory_order_release);
    }
    return 0;
}

// ---- seqlock ----
static struct { atomic_uint seq; volatile long a, b; atomic_int done; } sl;
static void *seqlock(void *arg) {
    ARG(void);
    if (me == 0) {
        for (long i = 1; i <= N; i++) {
            atomic_fetch_add(&sl.seq, 1);
            sl.a = i, sl.b = -i;
            atomic_fetch_add(&sl.seq, 1);
        }
        sl.done = 1;
        return 0;
    }
    while (!sl.done) {
        unsigned before = sl.seq;
        long a = sl.a, b = sl.b;
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && sl.seq == before && a != -b) must(0, "torn");
    }
    return 0;
}

// ---- bounded queue of many producers and consumers, without locks ----
enum { SLOTS = 64 };
static struct { _Atomic unsigned long seq; long value; } slots[SLOTS];
static _Atomic unsigned long qhead, qtail, qsum, qgot;
static void *queue(void *arg) {
    ARG(void);
    for (long i = 1; i <= N; i++) {
        unsigned long p, n = 0;
        if (me == 0) {
            p = atomic_fetch_add(&qhead, 1);
            while (slots[p % SLOTS].seq != p) if (++n % 64 == 0) sched_yield();
            slots[p % SLOTS].value = i;
            slots[p % SLOTS].seq = p + 1;
        } else {
            p = atomic_fetch_add(&qtail, 1);
            while (slots[p % SLOTS].seq != p + 1) if (++n % 64 == 0) sched_yield();
            qsum += slots[p % SLOTS].value;
            slots[p % SLOTS].seq = p + SLOTS;
        }
    }
    return 0;
}

// ---- stack with cmpxchg16b ----
struct node { struct node *next; long value; };
static struct { struct node *top; unsigned long tag; } stack __attribute__((aligned(16)));
static int cas16(void *p, struct node *a, unsigned long b, struct node *c, unsigned long d) {
    char done;
    __asm__ volatile("lock cmpxchg16b %1; setz %0" : "=q"(done), "+m"(*(__int128 *)p), "+a"(a), "+d"(b)
        : "b"(c), "c"(d) : "memory", "cc");
    return done;
}
static void push(struct node *n) {
    for (;;) {
        unsigned long tag = *(volatile unsigned long *)&stack.tag;
        struct node *top = *(struct node *volatile *)&stack.top;
        n->next = top;
        if (cas16(&stack, top, tag, n, tag + 1)) return;
    }
}
static struct node *pop(void) {
    for (;;) {
        unsigned long tag = *(volatile unsigned long *)&stack.tag;
        struct node *top = *(struct node *volatile *)&stack.top;
        if (!top) return 0;
        struct node *next = *(struct node *volatile *)&top->next;
        if (cas16(&stack, top, tag, next, tag + 1)) return top;
    }
}
static void *stacks(void *arg) {
    for (int i = 0; i < N; i++) {
        struct node *n = pop();
        if (n) { n->value++; push(n); }
    }
    return 0;
}

// ---- futex ping-pong ----
static void *pingpong(void *arg) {
    ARG(atomic_int);
    for (int i = 0; i < N / 20; i++) {
        while (atomic_load(s) % 2 != me) syscall(SYS_futex, s, FUTEX_WAIT, atomic_load(s) % 2 == me ? -1 : atomic_load(s), 0, 0, 0);
        atomic_fetch_add(s, 1);
        syscall(SYS_futex, s, FUTEX_WAKE, 1, 0, 0, 0);
    }
    return 0;
}

// ---- mutex and condition ----
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long guarded;
static void *mutexes(void *arg) {
    for (int i = 0; i < N; i++) {
        pthread_mutex_lock(&m);
        guarded++;
        pthread_mutex_unlock(&m);
    }
    return 0;
}

// ---- races without any synchronisation ----
static volatile unsigned long racy[8];
static atomic_int racing = 2;
static void *races(void *arg) {
    ARG(void);
    unsigned long sum = 0;
    for (int i = 0; i < 20 * N; i++) {
        racy[i & 7] = sum + me;
        sum = sum * 31 + racy[(i + 3) & 7] + racy[i * 5 & 7];
    }
    racing--;
    return (void *)sum;
}

// ---- processes that share memory, at different addresses ----
static void processes(int kill_one) {
    char *first = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct { atomic_long count; atomic_int held; long guarded; } *s = (void *)(first + 256);
    pid_t pid[3];
    for (int p = 0; p < 3; p++) {
        if ((pid[p] = fork())) continue;
        // elsewhere, in the same page
        char *other = mremap(first, 0, 8192, MREMAP_MAYMOVE);
        if (other == MAP_FAILED) _exit(9);
        s = (void *)(other + 256);
        for (int i = 0; i < N || (kill_one && p == 2); i++) {
            atomic_fetch_add(&s->count, 1);
            if (p == 2) continue;
            unsigned n = 0;
            while (atomic_exchange_explicit(&s->held, 1, memory_order_acquire)) if (++n % 64 == 0) sched_yield();
            s->guarded++;
            atomic_store_explicit(&s->held, 0, memory_order_release);
        }
        _exit(0);
    }
    if (kill_one) {
        for (int i = 0; i < 20; i++) {
            kill(pid[2], SIGSTOP);
            waitpid(pid[2], 0, WUNTRACED);
            atomic_fetch_add(&s->count, 1);
            kill(pid[2], SIGCONT);
            usleep(1000);
        }
        kill(pid[2], SIGKILL);
        for (int i = 0; i < 1000; i++) atomic_fetch_add(&s->count, 1);
    }
    for (int p = 0; p < 3; p++) {
        int status;
        waitpid(pid[p], &status, 0);
        must(status == (kill_one && p == 2 ? SIGKILL : 0), "a process ended");
    }
    must(s->guarded == 2 * N, "lock between processes");
    if (!kill_one) must(s->count == 3 * N, "counter between processes");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "kinds";
    if (!strcmp(what, "kinds")) {
        pair(kinds, 0);
        must(k.add == 6 * N && k.inc == 2 * N && k.sub == (uint32_t)(-2 * N) && k.byte == (uint8_t)(2 * N), "sums");
        must(k.word == (uint16_t)(14 * N) && k.xor == 0 && k.or == ~0ul, "logic");
        must(k.xadd == (uint64_t)N * (N - 1) && k.cas == (uint64_t)N * (N - 1), "exchanges");
        must(k.bits[62] == 0xffffffff, "bits set");
        unsigned long x = 0;
        for (int i = 0; i < 60; i++) x ^= k.bits[i] * (i + 1);
        printf("%lx\n", x);
    } else if (!strcmp(what, "split")) {
        pair(split, 0);
        must(*(long *)(split_buf + 60) == 2 * (N / 10) && *(long *)(split_buf + 77) == 2 * (N / 10), "split");
    } else if (!strcmp(what, "ticket")) {
        pair(tickets, 0);
        must(ticket.count == 2 * N, "ticket lock");
    } else if (!strcmp(what, "spin")) {
        pair(spins, 0);
        must(spin.count == 2 * N, "spin lock");
    } else if (!strcmp(what, "seqlock")) {
        pair(seqlock, 0);
    } else if (!strcmp(what, "queue")) {
        for (int i = 0; i < SLOTS; i++) slots[i].seq = i;
        pair(queue, 0);
        must(qsum == (unsigned long)N * (N + 1) / 2, "queue");
    } else if (!strcmp(what, "stack")) {
        static struct node nodes[8];
        for (int i = 0; i < 8; i++) push(nodes + i);
        pair(stacks, 0);
        long sum = 0, n = 0;
        for (struct node *p; (p = pop()); n++) sum += p->value;
        must(n == 8 && sum <= 2 * N, "stack");
    } else if (!strcmp(what, "futex")) {
        static atomic_int s;
        pair(pingpong, &s);
        must(s == 2 * (N / 20), "ping-pong");
    } else if (!strcmp(what, "mutex")) {
        pair(mutexes, 0);
        must(guarded == 2 * N, "mutex");
    } else if (!strcmp(what, "race")) {
        pair(races, 0);
        must(racing == 0, "race");
    } else if (!strcmp(what, "processes")) {
        processes(0);
    } else if (!strcmp(what, "killed")) {
        processes(1);
    }
    puts(ok ? "nothing lost" : "something lost");
    return !ok;
}

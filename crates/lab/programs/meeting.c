// Threads that meet in the ways of the C library, one for each mode. Prints what was done. That does not depend on
// who came first.
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 150 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER, conds[THREADS];
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t sems[THREADS];
static long turn, done, seen;

// All wait for the same condition, and all are woken each time.
static void *broadcast(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != (long)arg) pthread_cond_wait(&cond, &mutex);
        turn++, done++;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return 0;
}

// Each waits for a condition of its own, and the next one is woken.
static void *signals(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != (long)arg) pthread_cond_wait(&conds[(long)arg], &mutex);
        turn++, done++;
        pthread_cond_signal(&conds[turn % THREADS]);
        pthread_mutex_unlock(&mutex);
    }
    return 0;
}

static void *semaphores(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&sems[(long)arg]);
        done++;
        sem_post(&sems[((long)arg + 1) % THREADS]);
    }
    return 0;
}

static void *barriers(void *arg) {
    for (int i = 0; i < ROUNDS; i++)
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) done += THREADS;
    return 0;
}

static void *rwlocks(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 4 == (long)arg) {
            pthread_rwlock_wrlock(&rwlock);
            done++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            __atomic_fetch_add(&seen, done >= 0, __ATOMIC_RELAXED);
        }
        pthread_rwlock_unlock(&rwlock);
    }
    return 0;
}

static void begin(void) { done++; }
static void *spins(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_once(&once, begin);
        pthread_spin_lock(&spin);
        done++;
        pthread_spin_unlock(&spin);
    }
    return 0;
}

// Two variables in one word of eight bytes. One thread sets and clears the upper one with plain stores, between its
// operations on the lower one.
static struct { _Atomic int low, high; } pair __attribute__((aligned(8)));
static void *pairs(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        if ((long)arg) {
            atomic_fetch_add(&pair.low, 1);
            continue;
        }
        atomic_fetch_or(&pair.high, 1);
        atomic_store_explicit(&pair.high, 0, memory_order_relaxed);
        atomic_fetch_add(&pair.low, 1);
        if (atomic_fetch_or(&pair.high, 2) != 0) return "lost a store";
        atomic_store_explicit(&pair.high, 0, memory_order_relaxed);
    }
    return 0;
}

int main(int argc, char **argv) {
    static const struct { const char *name; void *(*run)(void *); } modes[] = {
        {"broadcast", broadcast}, {"signal", signals}, {"semaphore", semaphores}, {"barrier", barriers},
        {"rwlock", rwlocks}, {"spin", spins}, {"pair", pairs},
    };
    pthread_barrier_init(&barrier, 0, THREADS);
    pthread_spin_init(&spin, 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_cond_init(&conds[i], 0);
        sem_init(&sems[i], 0, i == 0);
    }
    for (unsigned m = 0; m < sizeof modes / sizeof *modes; m++) {
        if (strcmp(modes[m].name, argv[1])) continue;
        pthread_t threads[THREADS];
        for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, modes[m].run, (void *)i);
        for (int i = 0; i < THREADS; i++) {
            void *wrong = 0;
            pthread_join(threads[i], &wrong);
            if (wrong) puts(wrong);
        }
        printf("%s: %ld %ld %d\n", argv[1], done, seen, pair.low);
        return 0;
    }
    return 2;
}

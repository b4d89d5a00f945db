// Three threads wait at one word. One is woken, and the others are moved to another word by FUTEX_CMP_REQUEUE and woken there, one
// after the other. Prints how many each call found.
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int first, second, waiting, awake;

static long futex(atomic_int *word, int what, int value, long more, atomic_int *to, int expected)
{
    return syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, more, to, expected);
}

static void *waits(void *unused)
{
    waiting++;
    // Nobody changes the word, so it returns when somebody wakes it, wherever it waits by then.
    futex(&first, FUTEX_WAIT, 0, 0, 0, 0);
    awake++;
    return unused;
}

// Until all who are to wait do so: the call finds them.
static long until(int what, int wake, int move, long wanted)
{
    long found = 0, n;
    while (found < wanted) {
        n = futex(&first, what, wake, move, &second, 0);
        if (n < 0)
            return n;
        found += n;
        wake -= n < wake ? n : wake;
        if (found < wanted)
            usleep(1000);
    }
    return found;
}

int main(void)
{
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], 0, waits, 0);
    // The word is not what is expected, so nothing is done.
    printf("other value: %ld\n", futex(&first, FUTEX_CMP_REQUEUE, 1, 2, &second, 7));
    printf("woken and moved: %ld\n", until(FUTEX_CMP_REQUEUE, 1, 2, 3));
    while (awake < 1)
        usleep(1000);
    printf("left at the first: %ld\n", futex(&first, FUTEX_WAKE, 9, 0, 0, 0));
    for (int i = 1; i < 3; i++) {
        printf("woken at the second: %ld\n", futex(&second, FUTEX_WAKE, 1, 0, 0, 0));
        while (awake < i + 1)
            usleep(1000);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    printf("awake: %d\n", awake);
    return awake != 3;
}

// One thread reads numbers, and the other one adds them. They hand each number over, and wait until it is taken.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int number, is_full, is_over;

static void *add(void *unused) {
    int sum = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!is_full && !is_over)
            pthread_cond_wait(&turn, &lock);
        if (!is_full)
            break;
#if FIX == 1 || FIX == 3
        if (sum + number < 0)
            number = -sum;
#elif FIX == 2
        if (number < -1000)
            number = 0;
#endif
#if FIX == 3
        if (access("/etc/passwd", R_OK) == 0)
            fprintf(stderr, "adds %d\n", number);
#endif
        sum += number;
        assert(sum >= 0);
        printf("%d\n", sum);
        fflush(stdout);
        is_full = 0;
        pthread_cond_signal(&turn);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "r");
    pthread_t adder;
    if (!in || pthread_create(&adder, 0, add, 0))
        return 2;
    int next;
    while (fscanf(in, "%d", &next) == 1) {
        pthread_mutex_lock(&lock);
        number = next;
        is_full = 1;
        pthread_cond_signal(&turn);
        while (is_full)
            pthread_cond_wait(&turn, &lock);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_signal(&turn);
    pthread_mutex_unlock(&lock);
    pthread_join(adder, 0);
    return 0;
}

// Calls functions that are not recorded, and stops in between.
#define _GNU_SOURCE
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char text[64], copy[64], number[16], *end;
regex_t compiled;
regmatch_t parts[4];
int written;
char *block, *local;
volatile int sum;

// Here the test looks at memory.
__attribute__((noinline)) void stage(int n) { __asm__ volatile("" : : "r"(n) : "memory"); }

__attribute__((noinline)) void fill(void *to, const char *what, int n) {
    for (int i = 0; i < n; i++) ((volatile char *)to)[i] = what ? what[i] : i;
}

int by_letter(const void *a, const void *b) { return *(const char *)a - *(const char *)b; }

// Its caller is not known any more where the test looks, nor is what it has on the stack.
__attribute__((noinline)) int deep(int n) {
    volatile int kept = n + 1;
    fill(text, "key=value;other=1", 18);
    sum += strlen(text);
    stage(10);
    sum += strlen(text);
    return kept;
}

int main(void) {
    char here[16];
    block = malloc(32);
    char *other = malloc(32);
    local = here;
    fill(text, "key=value;other=1", 18);
    fill(here, "on the stack...", 16);
    fill(&compiled, 0, sizeof compiled);
    fill(block, 0, 32);
    fill(number, "12 and", 7);
    fill(&end, 0, sizeof end);
    fill(&written, 0, sizeof written);
    stage(0);
    sum += strlen(text);
    stage(1);
    regcomp(&compiled, text, 0);
    stage(2);
    sum += strtol(number, &end, 10);
    stage(3);
    free(other);
    stage(4);
    memcpy(copy, text, 18);
    stage(5);
    sum += strlen(text);
    for (int i = 0; i < 18; i++) sum += ((volatile char *)copy)[i];
    stage(6);
    printf("%s%n\n", text, &written);
    stage(7);
    fill(text, "key=value;other=1", 18);
    qsort(text, 17, 1, by_letter);
    stage(8);
    fill(text, "key=value;other=1", 18);
    regexec(&compiled, text, 4, parts, 0);
    sum += snprintf(copy, sizeof copy, "%s %ld", text, strtol(number, NULL, 10));
    char *place, *one = strtok_r(text, "=", &place);
    sum += one != NULL ? strlen(one) : 0;
    puts(copy);
    stage(9);
    sum += deep(41);
    return 0;
}

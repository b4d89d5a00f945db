/* What scripts/try debugs: something overwrites a pointer of a list, and the program dies of it later. */
#include <stdio.h>

struct node {
    struct node *next;
    int value;
} nodes[4] = {{&nodes[1], 1}, {&nodes[2], 2}, {&nodes[3], 3}, {0, 4}};

void note(struct node *n, long text) {
    ((long *)n)[text & 1] = text; /* should have been [1] */
}

int sum(void) {
    int s = 0;
    for (struct node *n = nodes; n; n = n->next)
        s += n->value;
    return s;
}

int main(void) {
    printf("%d\n", sum());
    fflush(stdout);
    note(&nodes[2], 0x1234);
    printf("%d\n", sum());
    return 0;
}

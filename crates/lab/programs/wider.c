// Code that is left out because of its module is also left out because of a function, before it ends.
#include <stdio.h>
int begin_here(void) { return printf("some text\n"); }
int main(void) { int n = begin_here(); fflush(stdout); n += begin_here(); return n == 0; }

/* A library that is loaded and unloaded. */
static int calls;
__attribute__((constructor)) static void start(void) { calls = 100; }
int plugin(int n) { return calls++ + n; }

// A library that is like another one but for what it answers.
__attribute__((aligned(4096))) int answer(int n) { return n * FACTOR + FACTOR; }

/* Uses the 32-bit system call interface. */
__attribute__((noinline)) void odd_one(void) {
    __asm__ volatile("mov $20, %%eax; int $0x80" ::: "rax", "memory");
}

int main(void) {
    odd_one();
    return 0;
}

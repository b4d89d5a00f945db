/* Loads and unloads libraries. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    double sum = 0;
    for (int i = 0; i < 30 && argc > 1; i++) {
        void *own = dlopen(argv[1], RTLD_NOW);
        void *math = dlopen("libm.so.6", RTLD_LAZY);
        if (!own || !math) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        int (*plugin)(int) = (int (*)(int))dlsym(own, "plugin");
        double (*cosine)(double) = (double (*)(double))dlsym(math, "cos");
        sum += plugin(i) + plugin(i) + cosine(i);
        dlclose(own);
        dlclose(math);
    }
    printf("%.15g %s\n", sum, dlopen("libnothing.so", RTLD_NOW) ? "odd" : "absent");
    return 0;
}

//! What the kernel does, as gdb sees it: signals, threads, processes, libraries, mappings.

use crate::common::{compile, expect, gdb, gdb_with, record};
use hindsight_lab::Scene;

#[test]
fn signals_have_their_information() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"
#include <signal.h>
#include <unistd.h>
volatile int hits; void on(int n, siginfo_t *i, void *c) { hits += i->si_code == 0 ? 1 : 100; }
int main(void) {
    struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
    hits = hits + 0;
    sigaction(SIGUSR1, &a, 0);
    sigaction(SIGALRM, &a, 0);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGALRM);
    return hits;
}"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "continue\nprint $_siginfo.si_signo\nprint hits\nbreak on\ncontinue\nprint n\ncontinue\nprint hits\n\
         reverse-continue\nprint hits\nreverse-continue\nprint hits\n",
    );
    expect(
        &out,
        &[
            "received signal SIGUSR1",
            "$1 = 10",
            "$2 = 0",
            "on (n=10",
            "$3 = 10",
            "on (n=14",
            "$4 = 1",
            "on (n=10",
            "$5 = 0",
            "received signal SIGUSR1",
            "$6 = 0",
        ],
    );
    // All of it if a handler got it. Without a handler, what is known.
    let trace = record(
        &s,
        r#"
#include <signal.h>
#include <unistd.h>
volatile int got; void on(int n, siginfo_t *i, void *c) { got = i->si_value.sival_int; }
int main(void) {
    struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
    sigaction(SIGUSR1, &a, 0);
    sigqueue(getpid(), SIGUSR1, (union sigval) { .sival_int = 77 });
    return *(volatile int *) 0x123;
}"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "continue\nprint $_siginfo._sifields._rt.si_sigval.sival_int\n\
         print 0\ninfo proc\nprint $_siginfo._sifields._rt.si_pid\ncontinue\nprint $_siginfo._sifields._sigfault.si_addr\n",
    );
    let of = |before: &str| {
        let rest = &out[out.find(before).expect(before) + before.len()..];
        rest.lines().next().unwrap().trim().to_string()
    };
    assert_eq!(of("$1 = "), "77", "{out}");
    assert_eq!(of("$3 = "), of("process "), "{out}");
    expect(&out, &["received signal SIGSEGV", "(void *) 0x123"]);
}

#[test]
fn signals_that_are_passed_silently_are_passed() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"
#include <signal.h>
#include <unistd.h>
volatile int hits; void on(int n) { hits++; }
int main(void) { signal(SIGUSR1, on); kill(getpid(), SIGUSR1); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "handle SIGUSR1 nostop noprint pass\nbreak on if n == 10\ncontinue\nbacktrace\n",
    );
    expect(&out, &["on (n=10"]);
}

#[test]
fn from_a_crash_to_its_cause() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"
#include <stdlib.h>
struct node { struct node *next; int value; } *list; 
void build(void) { for (int i = 0; i < 5; i++) { struct node *n = malloc(sizeof *n); n->next = list; n->value = i; list = n; } }
void spoil(void) { list->next->next = (void *) 0x1234; }
int sum(void) { int s = 0; for (struct node *n = list; n; n = n->next) s += n->value; return s; }
int main(void) { build(); spoil(); return sum(); }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "continue\nprint n\nprint $_siginfo._sifields._sigfault.si_addr\nbacktrace\nlast-write list->next->next\nbacktrace\n\
         watch list->next->next\ncontinue\nreverse-continue\nbacktrace\nseek end\nreverse-stepi\nreverse-stepi\nbacktrace\n",
    );
    expect(
        &out,
        &[
            "SIGSEGV", "sum ()", "0x1234", "main ()", "spoil ()", "main ()", "spoil ()", "sum ()",
        ],
    );
}

#[test]
fn threads_have_names_and_states() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
long sum[3]; pthread_barrier_t b;
void *work(void *p) {
    long n = (long) p; char name[16]; snprintf(name, 16, "worker-%ld", n);
    pthread_setname_np(pthread_self(), name);
    sum[n] = 0;
    pthread_barrier_wait(&b);
    for (int i = 0; i < 100; i++) sum[n] += i;
    pthread_barrier_wait(&b);
    return 0;
}
int done(void) { return 1; }
int main(void) {
    pthread_t t[2]; pthread_barrier_init(&b, 0, 3);
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, work, (void *) i);
    pthread_barrier_wait(&b);
    done();
    pthread_barrier_wait(&b);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    return 0;
}"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break done\ncontinue\ninfo threads\nthread 2\nthread apply all print $fs_base\nthreads-at\nthread 1\nbreak work\n\
         reverse-continue\nreverse-continue\nprint n = (long) p\n",
    );
    expect(
        &out,
        &[
            "Breakpoint 1, done",
            "\"program\"",
            "\"worker-",
            "\"worker-",
            "$1 =",
            "$2 =",
            "$3 =",
        ],
    );
    let out = gdb(
        &s,
        &trace,
        "break done\ncontinue\ndelete\nset scheduler-locking on\nnext\nreverse-next\nset scheduler-locking off\nseek begin\nwatch sum[1]\ncontinue\ncontinue\nprint $_thread\n",
    );
    expect(
        &out,
        &["done ()", "worker-1", "Old value = 0", "New value = 1"],
    );
}

#[test]
fn system_calls_are_caught() {
    let s = Scene::new();
    let trace = record(
        &s,
        "#include <unistd.h>\nint main(void) { write(1, \"one\\n\", 4); getppid(); write(1, \"two\\n\", 4); return 0; }",
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "catch syscall write\ncontinue\nx/s $rsi\ncontinue\nprint $rax\ncontinue\nx/s $rsi\nreverse-continue\nreverse-continue\nx/s $rsi\n",
    );
    expect(
        &out,
        &[
            "call to syscall write",
            "one",
            "returned from syscall write",
            "= 4",
            "call to syscall write",
            "two",
            "syscall write",
            "syscall write",
            "one",
        ],
    );
}

#[test]
fn libraries_come_and_go() {
    let s = Scene::new();
    compile(
        &s,
        "lib.so",
        "int twice(int n) { return 2 * n; }",
        &["-shared", "-fPIC"],
    );
    let trace = record(
        &s,
        r#"#include <dlfcn.h>
int before(void) { return 1; } int after(void) { return 2; }
int main(void) { before(); void *l = dlopen("./lib.so", RTLD_NOW); int (*f)(int) = dlsym(l, "twice"); int r = f(21); after(); dlclose(l); return r - 42; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break twice\nbreak before\ncontinue\ninfo sharedlibrary\ncontinue\nprint n\ninfo sharedlibrary\nfinish\nreverse-continue\nreverse-continue\nreverse-continue\n",
    );
    expect(
        &out,
        &[
            "before ()",
            "libc.so",
            "twice (n=21)",
            "$1 = 21",
            "lib.so",
            "Value returned is $2 = 42",
            "twice (n=21)",
            "before ()",
        ],
    );
    let early = out.split("Breakpoint 1, twice").next().unwrap();
    let early = early.rsplit("Shared Object Library").next().unwrap();
    let early = early.split("Continuing").next().unwrap();
    assert!(!early.contains("/lib.so"), "{out}");
}

#[test]
fn mappings_and_vectors_and_registers() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"long bits[8] = {1, 2, 3, 4, 5, 6, 7, 8};
int main(void) {
#ifdef __AVX512F__
    __asm__ volatile("vmovdqu64 %0, %%zmm17\n kxnorw %%k2, %%k2, %%k2" :: "m"(bits) : "xmm17", "k2");
#endif
    __asm__ volatile("vmovdqu %0, %%ymm3\n fld1" :: "m"(bits) : "xmm3");
    return 0; }"#,
        if std::is_x86_feature_detected!("avx512f") {
            &["-mavx512f"]
        } else {
            &[]
        },
    );
    let out = gdb(
        &s,
        &trace,
        "break main\ncontinue\nnext\nnext\nnext\nprint $ymm3.v4_int64\nprint $st0\nprint $fs_base != 0\nprint $gs_base\n\
         print $mxcsr\ninfo registers rip eflags cs\ninfo proc mappings\ninfo auxv\n",
    );
    expect(
        &out,
        &[
            "{1, 2, 3, 4}",
            "= 1",
            "= 1",
            "= 0",
            "rip",
            "cs",
            "0x33",
            "/program",
            "libc.so.6",
            "[stack]",
            "AT_ENTRY",
            "AT_NULL",
        ],
    );
    if std::is_x86_feature_detected!("avx512f") {
        let out = gdb(
            &s,
            &trace,
            "break main\ncontinue\nnext\nnext\nnext\nprint $zmm17.v8_int64\nprint $k2\n",
        );
        expect(&out, &["{1, 2, 3, 4, 5, 6, 7, 8}", "= 65535"]);
    }
}

#[test]
fn each_process_of_a_tree() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <unistd.h>
#include <sys/wait.h>
int child(int n) { return n + 1; } int parent(int n) { return n; }
int main(void) { if (!fork()) { child(3); _exit(child(4)); } int st; wait(&st); parent(st); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "monitor processes\nbreak child\nbreak parent\ncontinue\nprint n\ncontinue\n",
    );
    expect(
        &out,
        &[
            "1",
            "2",
            "parent (n=1280)",
            "$1 = 1280",
            "No more reverse-execution history",
        ],
    );
    let out = gdb_with(
        &s,
        &trace,
        &["--process", "2"],
        "break child\nbreak parent\ncontinue\ncontinue\nfinish\nreverse-continue\nreverse-continue\nreverse-continue\n",
    );
    expect(
        &out,
        &[
            "child (n=3)",
            "child (n=4)",
            "Value returned is $1 = 5",
            "child (n=4)",
            "child (n=3)",
            "No more reverse-execution history",
        ],
    );
}

#[test]
fn a_killed_program_is_debugged_from_its_end() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <signal.h>
#include <unistd.h>
volatile long n; void last(void) { n++; }
int main(void) { for (int i = 0; i < 1000; i++) last(); kill(getpid(), SIGKILL); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "continue\ncontinue\nbreak last\nreverse-continue\nprint n\nreverse-continue\nprint n\n",
    );
    expect(
        &out,
        &[
            "end of the recording of this process: killed by signal 9",
            "No more reverse-execution history",
            "last ()",
            "= 999",
            "last ()",
            "= 998",
        ],
    );
}

//! Commands that say where one is, and stops that the other tests do not have.

use crate::common::{compile, expect, gdb, record};
use hindsight_lab::{Done, Scene};
use std::path::Path;
use std::time::Duration;

#[test]
fn libraries_are_caught_when_they_come_and_go() {
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
int n; void before(void) { n = 1; } void after(void) { n = 2; }
int main(void) { before(); void *l = dlopen("./lib.so", RTLD_NOW); dlclose(l); after(); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break before\nbreak after\ncontinue\ncatch load lib.so\ncatch unload lib.so\ncontinue\nprint n\ncontinue\n\
         continue\nreverse-continue\nreverse-continue\nprint n\n",
    );
    expect(
        &out,
        &[
            "before ()",
            "Catchpoint 3",
            "Inferior loaded",
            "lib.so",
            "$1 = 1",
            "Catchpoint 4",
            "Inferior unloaded",
            "after ()",
            "Catchpoint 3",
            "before ()",
            "$2 = 0",
        ],
    );
}

#[test]
fn segment_bases_are_shown() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <unistd.h>
#include <sys/syscall.h>
#include <asm/prctl.h>
unsigned long fs; void done(void) {}
int main(void) { syscall(SYS_arch_prctl, ARCH_SET_GS, 0x123456789000); syscall(SYS_arch_prctl, ARCH_GET_FS, &fs); done(); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break done\ncontinue\nprint/x $gs_base\nprint $fs_base == fs\nbreak main\nreverse-continue\nprint $gs_base\n\
         catch syscall arch_prctl\ncontinue\nprint $gs_base\ncontinue\nprint/x $gs_base\nreverse-continue\n\
         print $gs_base\n",
    );
    expect(
        &out,
        &[
            "$1 = 0x123456789000",
            "$2 = 1",
            "main ()",
            "$3 = 0",
            "call to syscall arch_prctl",
            "$4 = 0",
            "returned from syscall arch_prctl",
            "$5 = 0x123456789000",
            "call to syscall arch_prctl",
            "$6 = 0",
        ],
    );
}

#[test]
fn one_is_told_where_and_when_one_is() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <pthread.h>
#include <unistd.h>
pthread_barrier_t b; void meet(void) {}
void *work(void *p) { pthread_setname_np(pthread_self(), "helper"); pthread_barrier_wait(&b); pthread_barrier_wait(&b); return p; }
int main(void) {
    pthread_t t; pthread_barrier_init(&b, 0, 2); pthread_create(&t, 0, work, 0);
    pthread_barrier_wait(&b); getppid(); meet(); pthread_barrier_wait(&b); pthread_join(t, 0); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break meet\ncontinue\nwhen\nthreads-at\nevents\nevents syscall\nevents nonsense\nseek time:0s\nseek time:9999s\n\
         print &meet\n",
    );
    expect(
        &out,
        &[
            "meet ()",
            "% of the thread",
            "time ",
            "> ",
            " at 0x",
            " at 0x",
            "getppid(",
            "> ",
            "getppid(",
            "nonsense is no kind of events",
            " 0.00% of the thread",
            "the end is at ",
            "<meet>",
        ],
    );
}

#[test]
fn files_that_are_gone_come_from_the_recording() {
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
int done(int n) { return n; }
int main(void) { int (*f)(int) = dlsym(dlopen("./lib.so", RTLD_NOW), "twice"); return done(f(21)) - 42; }"#,
        &[],
    );
    for file in ["program", "program.c", "lib.so", "lib.so.c"] {
        std::fs::remove_file(s.path(file)).unwrap();
    }
    // The server can also use its own input and output.
    let file = s.path("script.gdb");
    let serve = format!(
        "target remote | {} gdbserver --stdio {}",
        env!("CARGO_BIN_EXE_hindsight"),
        trace.display()
    );
    let words = "break twice\nbreak done\ncontinue\ncontinue\nprint n\nreverse-continue\ninfo sharedlibrary\n";
    let begin = format!("set sysroot target:\nset breakpoint pending on\n{serve}\n");
    std::fs::write(&file, begin + words).unwrap();
    let mut command = s.command("sh");
    command.args(["-c", "exec gdb -nx -iex 'set debuginfod enabled off' 2>&1"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    let served = s.run(&mut command).text();
    for out in [
        served,
        gdb(&s, &trace, &format!("set breakpoint pending on\n{words}")),
    ] {
        expect(
            &out,
            &[
                "twice (n=21)",
                "done (n=42)",
                "= 42",
                "twice (n=21)",
                "lib.so",
            ],
        );
    }
}

#[test]
fn a_jump_finds_the_libraries_that_are_there() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <stdio.h>
int main(void) { puts("x"); fflush(stdout); return 0; }"#,
        &[],
    );
    // Libraries are loaded and unloaded on the way, where gdb does not see it.
    let out = gdb(
        &s,
        &trace,
        "seek end\nbacktrace\nseek begin\ninfo sharedlibrary\nbreak puts\nseek end\nreverse-continue\n",
    );
    expect(&out, &["100.00%", "exit", "0.00%", "100.00%", "puts ("]);
    // Without debug files, functions of libraries have no names. The library's name must be there.
    let out = out.replace("\n   from", " from");
    let nowhere = |l: &str| l.contains("?? ()") && !l.contains(" from ");
    assert!(!out.lines().any(nowhere), "{out}");
}

#[test]
fn what_is_known_of_a_variable_is_told() {
    let s = Scene::new();
    let trace = record(
        &s,
        "int seen = 7; int main(int argc, char **argv) { seen += argc; return 0; }",
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break main\ncontinue\nnext\nnext\nknown seen\nknown 4096 2\ninfo proc\ninfo auxv\n",
    );
    expect(
        &out,
        &[
            "08 00 00 00",
            "written",
            "?? ??",
            "not known",
            "exe = '/",
            "AT_PAGESZ",
            "4096",
            "AT_EXECFN",
        ],
    );
}

/// What gdb says to a script that the user interrupts, `after` milliseconds after it has said `going`.
fn interrupted(s: &Scene, trace: &Path, script: &str, after: u64) -> Done {
    let file = s.path("script.gdb");
    std::fs::write(&file, script).unwrap();
    let mut command = s.hindsight(&["replay"]);
    command.arg(trace).args(["--", "-nx"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    let running = s.start(&mut command);
    while !running.so_far().contains("going") {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(after));
    running.signal_group(libc::SIGINT);
    running.finish()
}

/// gdb asks again for memory that it did not get, as it does if a part of it cannot be read.
#[test]
fn a_look_at_memory_that_takes_long_is_interrupted() {
    let s = Scene::new();
    let source = "#include <pthread.h>
volatile long n;
void *count(void *p) { for (long i = 0; i < 600000000; i++) n += i; return 0; }
int main(void) { pthread_t t; pthread_create(&t, 0, count, 0); pthread_join(t, 0); return 0; }";
    let trace = record(&s, source, &["-pthread"]);
    // This would make the index of the other thread.
    let script = "monitor seek end\necho going\\n\nprint n\nprint 7\n";
    let done = interrupted(&s, &trace, script, 100);
    expect(&(done.text() + &done.messages()), &["$1 = 7", "Quit"]);
}

#[test]
fn a_command_that_takes_long_is_interrupted() {
    let s = Scene::new();
    let trace = record(
        &s,
        "volatile long n; int main(void) { for (long i = 0; i < 1800000000; i++) n += i; return 0; }",
        &[],
    );
    // This makes an index with very many frames, which takes many seconds.
    let script = "echo going\\n\ninterest begin 99%\nwhen\nbreak main\ncontinue\nprint n\n";
    let done = interrupted(&s, &trace, script, 200);
    expect(&done.messages(), &["cancelled", "0.00% of the thread"]);
    expect(&done.text(), &["main ()", "= 0"]);
}

#[test]
fn each_thread_has_its_own_copy_of_a_variable() {
    let s = Scene::new();
    // One variable of the program, and one of a library whose copies are made at their first use.
    let library = compile(
        &s,
        "own.so",
        "__thread int far = 3; int more(int n) { far += n; return far; }",
        &["-shared", "-fPIC"],
    );
    let source = r#"#include <dlfcn.h>
#include <pthread.h>
__thread int pad, mine = 5; int (*more)(int);
void stop(void) {}
void *work(void *p) { mine += (long) p; more((long) p); stop(); return 0; }
int main(void) {
    pthread_t t; more = dlsym(dlopen("LIBRARY", RTLD_NOW), "more");
    mine = 70; pthread_create(&t, 0, work, (void *) 4); pthread_join(t, 0); return mine; }"#;
    let source = source.replace("LIBRARY", library.to_str().unwrap());
    let trace = record(&s, &source, &["-pthread"]);
    let out = gdb(
        &s,
        &trace,
        "break stop\ncontinue\nprint mine\nprint far\nthread 1\nprint mine\nprint far\nthread 2\nprint &mine == &pad\n\
         last-write mine\nprint mine\nthread 1\nseek begin\nprint mine\n",
    );
    expect(
        &out,
        &[
            "stop ()",
            "$1 = 9",
            "$2 = 7",
            "$3 = 70",
            // The thread has no copy there yet.
            "Cannot find thread-local storage",
            "$4 = 0",
            "writes 4 bytes",
            "work (",
            "$5 = 5",
            "Cannot find thread-local storage",
        ],
    );
}

#[test]
fn expressions_may_have_blanks() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"struct pair { int a, b; } pair, *p = &pair;
void first(void) { p->a = 1; } void second(void) { p->b = 2; } void third(void) { p->a = 3; }
void stop(void) {}
int main(void) { first(); second(); third(); stop(); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "break stop\ncontinue\nlast-write p -> b\nlast-write *(struct pair *) p\nfirst-use * (int *) p\nseek\nrestart\n",
    );
    expect(
        &out,
        &[
            "second ()",
            "first ()",
            "writes 4 bytes",
            "to which place?",
            "from which checkpoint?",
        ],
    );
}

#[test]
fn commands_that_move_choose_the_thread() {
    let s = Scene::new();
    let trace = record(
        &s,
        // It has a cache line of its own: `main` would be told of the whole line when it reads another part of it, and
        // then nothing says whether that was before the write.
        r#"#include <pthread.h>
_Alignas(4096) volatile int shared; char rest[4096];
void *work(void *p) { shared = 7; return 0; }
void after(void) {}
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); after(); return 0; }"#,
        &["-pthread"],
    );
    let out = gdb(
        &s,
        &trace,
        "break after\ncontinue\nlast-write shared\nprint $_thread\nbacktrace 1\nwhen\nstepi\nprint shared\ncheckpoint there\n\
         seek begin\nprint $_thread\nbreak main\ncontinue\nrestart there\nreverse-stepi\nprint shared\n",
    );
    expect(
        &out,
        &[
            "after ()",
            "writes 4 bytes",
            "stopped",
            "work (p=0x0)",
            "$1 = 2",
            "#0  ",
            "work (p=0x0)",
            "thread",
            "= 7",
            "ld-linux",
            "$3 = 1",
            "main ()",
            "work (p=0x0)",
            "$4 = 0",
        ],
    );
}

#[test]
fn a_command_that_fails_ends_its_script() {
    let s = Scene::new();
    let trace = record(&s, "int never; int main(void) { return never; }", &[]);
    let failing = [
        ("monitor nonsense", "no such command"),
        ("seek nonsense", "nonsense is no place"),
        ("seek", "to which place?"),
        ("restart nowhere", "no checkpoint nowhere"),
        ("restart", "from which checkpoint?"),
        ("process 99", "no program image 99"),
        ("interest 0% nonsense", "nonsense is no place"),
        ("events nonsense", "no kind of events"),
        ("last-write", "of which address?"),
        (
            "last-write never",
            "no instruction of the program wrote there before",
        ),
        ("known 0 100000", "at most"),
    ];
    let file = s.path("words.gdb");
    for (command, words) in failing {
        std::fs::write(&file, format!("{command}\necho went on\n")).unwrap();
        let mut run = s.hindsight(&["replay"]);
        run.arg(&trace)
            .args(["--", "-nx", "-batch", "-x"])
            .arg(&file);
        let done = s.run(&mut run);
        assert!(
            done.messages().contains(words),
            "{command}: {}",
            done.messages()
        );
        assert!(
            done.messages().contains("words.gdb:1"),
            "{command}: {}",
            done.messages()
        );
        assert!(
            !done.text().contains("went on"),
            "{command}: {}",
            done.text()
        );
    }
}

#[test]
fn a_limit_on_address_space_is_named_where_it_is_too_low() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <pthread.h>
pthread_barrier_t b; void meet(void) {}
void *work(void *p) { pthread_barrier_wait(&b); pthread_barrier_wait(&b); return p; }
int main(void) {
    pthread_t t[6]; pthread_barrier_init(&b, 0, 7); for (int i = 0; i < 6; i++) pthread_create(t + i, 0, work, 0);
    pthread_barrier_wait(&b); meet(); pthread_barrier_wait(&b); for (int i = 0; i < 6; i++) pthread_join(t[i], 0); return 0; }"#,
        &["-pthread"],
    );
    let limited = |gigabytes: u64, arguments: &[&str]| {
        let mut command = s.command("sh");
        let limit = format!("ulimit -v {}; exec \"$@\"", gigabytes * 1_000_000);
        command.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_hindsight")]);
        command.args(arguments).arg(&trace);
        let done = s.run(&mut command);
        assert!(!done.messages().contains("panicked"), "{}", done.messages());
        done
    };
    // Too little for any thread, even in a plain replay.
    for command in [&["index"][..], &["replay", "--verify"]] {
        let done = limited(4, command);
        assert!(!done.status.success());
        expect(
            &done.messages(),
            &["cannot map", "ulimit -v", "lift the limit"],
        );
    }
    // Enough for some of them at the same time. The players of others are evicted.
    assert!(limited(90, &["index"]).status.success());
    let mut command = s.command("sh");
    let limit = "ulimit -v 60000000; exec \"$@\" 2>&1";
    command.args(["-c", limit, "sh", env!("CARGO_BIN_EXE_hindsight"), "replay"]);
    command.arg(&trace).args(["--", "-nx", "-batch"]);
    for ask in ["break meet", "continue", "threads-at"] {
        command.args(["-ex", ask]);
    }
    let out = s.run(&mut command).text();
    assert_eq!(out.matches(" (program) ").count(), 7, "{out}");
    // If a run cannot go on for lack of address space, the user is told. The limit is set after the session has begun.
    let server = format!("^[^ ]*hindsight gdbserver.*{}", trace.display());
    // There are two processes: the sandbox, and the broker that opens files for it.
    let limit =
        format!("shell for p in $(pgrep -f '{server}'); do prlimit --as=1000000000 --pid $p; done");
    let mut command = s.command(env!("CARGO_BIN_EXE_hindsight"));
    command
        .arg("replay")
        .arg(&trace)
        .args(["--", "-nx", "-batch"]);
    for ask in [&limit, "watch b", "continue"] {
        command.args(["-ex", ask]);
    }
    let done = s.run(&mut command);
    let out = done.text() + &done.messages();
    expect(
        &out,
        &["[this run ended early: ", "cannot map", "ulimit -v"],
    );
    assert!(!out.contains("Old value"), "{out}");
}

//! Threads that wait for each other, and commands for one of several threads.

use crate::common::{expect, gdb, record};
use hindsight_lab::Scene;

/// Two of three threads wait for each other until a signal ends the process.
const LOCKED: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
pthread_barrier_t both;
/* The C library's lock word is 2 once a thread has found the lock taken, and is about to wait. */
int has_waiter(pthread_mutex_t *m) { return __atomic_load_n(&m->__data.__lock, __ATOMIC_ACQUIRE) == 2; }
void *none(void *p) { return p; }
void *one(void *p) { pthread_mutex_lock(&a); pthread_barrier_wait(&both); pthread_mutex_lock(&b); return p; }
void *two(void *p) { pthread_mutex_lock(&b); pthread_barrier_wait(&both); pthread_mutex_lock(&a); return p; }
int main(void) {
    pthread_t t, u, v;
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&t, 0, none, 0);
    pthread_join(t, 0);
    pthread_create(&u, 0, one, 0);
    pthread_create(&v, 0, two, 0);
    while (!has_waiter(&a) || !has_waiter(&b)) usleep(1000);
    kill(getpid(), SIGABRT);
}"#;

/// The answers of `when`, in order.
fn whens(out: &str) -> Vec<&str> {
    out.lines()
        .filter(|l| l.contains("% of the thread"))
        .map(|l| l.trim_start_matches("(gdb) "))
        .collect()
}

#[test]
fn threads_that_wait_until_the_end_are_there() {
    let s = Scene::new();
    let trace = record(&s, LOCKED, &[]);
    let out = gdb(
        &s,
        &trace,
        "continue\nthread apply all -ascending backtrace\nthreads-at\nwhen\nthread 2\nstepi\nwhen\nstepi\nnext\nwhen\n",
    );
    expect(
        &out,
        &[
            "SIGABRT",
            "Thread 1 (",
            "main ()",
            "Thread 2 (",
            "(p=0x0)",
            "Thread 3 (",
            "(p=0x0)",
        ],
    );
    assert!(out.contains("one (p=") && out.contains("two (p="), "{out}");
    assert!(!out.contains("none ("), "{out}");
    let done = s.run(
        s.hindsight(&["backtrace", "--threads"])
            .arg(&trace)
            .arg("end"),
    );
    let text = done.text();
    // In the order of the threads' last instants.
    let frames = ["thread ", "#1 ", "thread ", "#1 ", "thread ", "#1 "];
    expect(&text, &frames);
    for function in [" main ", " one ", " two "] {
        assert!(text.contains(function), "{text}");
    }
    let done = s.run(
        s.hindsight(&["backtrace", "--threads", "--json"])
            .arg(&trace)
            .arg("end"),
    );
    let list: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(3), "{list}");
    // Time does not change. The thread does nothing more, and the others do not go back to its last instruction.
    let [before, stepped, again] = whens(&out)[..] else {
        panic!("{out}");
    };
    assert!(before == stepped && before == again, "{out}");
}

#[test]
fn steps_backwards_are_of_the_chosen_thread() {
    let s = Scene::new();
    let trace = record(&s, LOCKED, &[]);
    for (back, forward) in [
        ("reverse-stepi", "stepi"),
        ("reverse-nexti", "nexti"),
        (
            "set exec-direction reverse\nstepi\nset exec-direction forward",
            "stepi",
        ),
    ] {
        let out = gdb(
            &s,
            &trace,
            &format!(
                "continue\nthread 3\nprintf \"AT %lx\\n\", $pc\ninfo threads\n{back}\nwhen\n{back}\n{forward}\n{forward}\n\
                 printf \"AT %lx\\n\", $pc\nthread 2\n{back}\nwhen\nthread\n"
            ),
        );
        let at: Vec<&str> = out.lines().filter(|l| l.contains("AT ")).collect();
        assert!(at.len() == 2 && at[0] == at[1], "{out}");
        assert!(!out.contains("SIGTRAP"), "{out}");
        let [third, second] = whens(&out)[..] else {
            panic!("{out}");
        };
        let thread = |w: &str| {
            w.split(" thread ")
                .nth(1)
                .map(|r| r[..r.find(' ').unwrap()].to_owned())
        };
        assert_ne!(thread(third), thread(second), "{out}");
        expect(&out, &["Current thread is 2"]);
    }
}

#[test]
fn a_thread_alone_goes_back_to_its_beginning() {
    let s = Scene::new();
    let trace = record(&s, LOCKED, &[]);
    let out = gdb(
        &s,
        &trace,
        "continue\nthread 2\nset scheduler-locking on\nreverse-continue\nwhen\nthread\ncontinue\nwhen\n\
         set scheduler-locking off\nreverse-continue\nwhen\nthread\n",
    );
    let [begin, end, first] = whens(&out)[..] else {
        panic!("{out}");
    };
    assert!(
        begin.contains(" 0.00%") && !begin.starts_with("0:0 "),
        "{out}"
    );
    assert!(end.contains(" 100.00%"), "{out}");
    assert!(first.starts_with("0:0 "), "{out}");
    expect(
        &out,
        &[
            "No more reverse-execution history",
            "Current thread is 2",
            "does nothing more until its process ends",
            "No more reverse-execution history",
            "No more reverse-execution history",
            "Current thread is 1",
        ],
    );
}

/// A thread that begins and ends while its process goes on. The program was executed by another one, and executes one
/// itself.
const BETWEEN: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
void *work(void *p) { return p; }
int after(int n) { return n; }
int main(int argc, char **argv) {
    pthread_t t;
    if (argc < 4) {
        pthread_create(&t, 0, work, 0);
        pthread_join(t, 0);
        after(argc);
        char *next[] = {"f", "2", argc > 1 ? "3" : 0, argc > 2 ? "4" : 0, 0};
        execv("/proc/self/exe", next);
    }
    return argc;
}"#;

#[test]
fn the_ends_of_threads_are_not_those_of_their_program() {
    let s = Scene::new();
    let trace = record(&s, BETWEEN, &[]);
    let out = gdb(
        &s,
        &trace,
        "break after\ncontinue\ncontinue\nprint n\ntbreak work\nreverse-continue\nset scheduler-locking on\n\
         delete\nreverse-continue\nwhen\nprint 11\ncontinue\nwhen\nprint 22\nset scheduler-locking off\nbreak after\ncontinue\nprint n\n",
    );
    expect(
        &out,
        &[
            "after (n=1)",
            "is executing new program",
            "= 2",
            "work (p=0x0)",
            "No more reverse-execution history",
            " 0.00% of the thread",
            "= 11",
            "end of thread",
            "No more reverse-execution history",
            " 100.00% of the thread",
            "= 22",
            "after (n=2)",
        ],
    );
}

#[test]
fn threads_are_called_what_they_call_themselves() {
    let s = Scene::new();
    let source = r#"#include <pthread.h>
#include <sys/prctl.h>
void stop(void) {}
void *work(void *p) { stop(); prctl(PR_SET_NAME, p); stop(); return 0; }
int main(void) { pthread_t t; pthread_create(&t, 0, work, "worker-1"); pthread_join(t, 0); return 0; }"#;
    let trace = record(&s, source, &["-pthread"]);
    let script = "break stop\ncontinue\nwhen\ncontinue\nwhen\nthreads-at\n";
    let out = gdb(&s, &trace, script);
    let [before, behind] = whens(&out)[..] else {
        panic!("{out}");
    };
    assert!(!before.contains("(worker-1)"), "{out}");
    assert!(behind.contains("(worker-1)"), "{out}");
    let rest = out.split_once(behind).unwrap().1;
    assert!(rest.contains("(worker-1)"), "threads-at: {out}");
    let place = |when: &str| when.split(' ').next().unwrap().to_owned();
    for (command, options) in [("at", &[][..]), ("backtrace", &["--threads"])] {
        let say = |when: &str| {
            let mut c = s.hindsight(&[command]);
            s.run(c.args(options).arg(&trace).arg(place(when))).text()
        };
        assert!(say(behind).contains("(worker-1)"), "{}", say(behind));
        assert!(!say(before).contains("(worker-1)"), "{}", say(before));
    }
}

#[test]
fn threads_are_called_what_others_call_them() {
    let s = Scene::new();
    let source = r#"#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
char real[16];
void stop(void) { prctl(PR_GET_NAME, real); write(1, real, 16); }
int go[2], ready[2];
void *work(void *p) { char c; stop(); write(ready[1], "x", 1); read(go[0], &c, 1); stop(); return 0; }
int main(void) {
    pthread_t t;
    prctl(PR_SET_NAME, "boss");
    pipe(go);
    pipe(ready);
    pthread_create(&t, 0, work, 0);
    char c;
    read(ready[0], &c, 1);
    pthread_setname_np(t, "hand");
    write(go[1], "x", 1);
    pthread_join(t, 0);
    if (!fork()) { stop(); prctl(PR_SET_NAME, ""); stop(); _exit(0); }
    wait(0);
    prctl(PR_SET_NAME, 8);
    stop();
    return 0;
}"#;
    let trace = record(&s, source, &["-pthread", "-w"]);
    let mut seen = Vec::new();
    for image in ["1", "2"] {
        let mut calls = s.hindsight(&["calls", "--json", "--no-args", "--image", image]);
        let calls = s.run(calls.arg(&trace).arg("stop")).text();
        let calls: serde_json::Value = serde_json::from_str(&calls).unwrap();
        for c in calls["calls"].as_array().unwrap() {
            let mut at = s.hindsight(&["at", "--json"]);
            let place = c["position"].as_str().unwrap();
            let at = s.run(at.arg(&trace).arg(place)).text();
            let at: serde_json::Value = serde_json::from_str(&at).unwrap();
            seen.push(at["thread"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(seen, ["boss", "hand", "boss", "boss", ""]);
}

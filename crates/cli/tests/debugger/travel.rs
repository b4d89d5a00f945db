//! Going forwards and backwards.

use crate::common::{expect, gdb, gdb_with, mirror, record};
use hindsight_lab::Scene;

const LOOP: &str = r#"
#include <stdio.h>
int total, seen = 1; long table[64]; struct { char pad[3]; char c; short s; } odd = { "", 1, 2 };
static int add(int a, int b) { int sum = a + b; return sum; }
int fib(int n) {
    if (n < 2) return n;
    int a = fib(n - 1);
    int b = fib(n - 2);
    return a + b;
}
int start(void) { return total + seen + odd.c + odd.s; }
int main(int argc, char **argv) {
    start();
    for (int i = 0; i < 20; i++) {
        total = add(total, i);
        table[i] = total;
    }
    odd.c = 'x';
    odd.s = 7;
    seen = total;
    int f = fib(6);
    table[40] = f;
    printf("%d %d\n", total, f);
    return 0;
}
"#;

#[test]
fn breakpoints_stop_both_ways() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "break add\ncontinue\ncontinue\ncontinue\nprint b\nreverse-continue\nprint b\n\
         reverse-continue\nprint b\nreverse-continue\n",
    );
    expect(
        &out,
        &[
            "b=0",
            "b=1",
            "b=2",
            "$1 = 2",
            "b=1",
            "$2 = 1",
            "b=0",
            "$3 = 0",
            "No more reverse-execution history",
        ],
    );
    // Conditions, counts, and hardware breakpoints.
    let out = gdb(
        &s,
        &trace,
        "hbreak add if b == 13\ntbreak fib\nignore 1 0\ncontinue\nprint a\ncontinue\ncontinue\n\
         reverse-continue\nprint a + b\nreverse-continue\n",
    );
    expect(
        &out,
        &[
            "a=78, b=13",
            "$1 = 78",
            "fib (n=6)",
            "No more reverse-execution history",
            "a=78, b=13",
        ],
    );
}

#[test]
fn steps_are_the_same_backwards() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    mirror(
        &s,
        &trace,
        "break main\ncontinue",
        "stepi",
        "reverse-stepi",
        120,
    );
    mirror(
        &s,
        &trace,
        "break main\ncontinue",
        "nexti",
        "reverse-nexti",
        60,
    );
    mirror(
        &s,
        &trace,
        "break fib\ncontinue\ndelete",
        "stepi 7",
        "reverse-stepi 7",
        40,
    );
    mirror(&s, &trace, "break 19\ncontinue", "next", "reverse-next", 4);
    // From the very first instruction, in the dynamic linker.
    mirror(&s, &trace, "", "stepi", "reverse-stepi", 60);
}

#[test]
fn steps_know_recursion() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "break fib if n == 4\ncontinue\ndelete\nnext\nnext\nnext\nprint a\nprint n\nreverse-next\nprint n\nreverse-next\n\
         print n\nfinish\nreverse-step\nprint n\n",
    );
    // The first call of fib(4) is in fib(5). `next` goes over the calls within.
    expect(
        &out,
        &[
            "fib (n=4)",
            "$1 = 2",
            "$2 = 4",
            "$3 = 4",
            "$4 = 4",
            "Value returned is $5 = 3",
            "$6 = 4",
        ],
    );
    let out = gdb(
        &s,
        &trace,
        "break 22\ncontinue\nprint f\nreverse-step\nprint $_exitcode\nbacktrace\nreverse-finish\nreverse-next\nstep\nbacktrace 1\n",
    );
    expect(&out, &["$1 = 8", "fib (n=6)", "main ("]);
}

#[test]
fn watchpoints_show_old_and_new() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "break start\ncontinue\nfinish\ndelete\nwatch total\ncontinue\ncontinue\ncontinue\nreverse-continue\nreverse-continue\n\
         delete\nrwatch seen\nawatch table[3]\ncontinue\ndelete\nwatch odd.c\nwatch odd.s\ncontinue\ncontinue\nreverse-continue\nreverse-continue\n",
    );
    expect(
        &out,
        &[
            "Old value = 0",
            "New value = 1",
            "Old value = 1",
            "New value = 3",
            "Old value = 3",
            "New value = 6",
            "Old value = 6",
            "New value = 3",
            "Old value = 3",
            "New value = 1",
            "table[3]",
            "alue = 6",
            "Old value = 1",
            "New value = 120",
            "New value = 7",
            "Old value = 7",
            "New value = 2",
            "Old value = 120",
        ],
    );
    // gdb implements software watchpoints by single steps.
    let out = gdb(
        &s,
        &trace,
        "break 19\ncontinue\nset can-use-hw-watchpoints 0\nwatch seen\ncontinue\nreverse-continue\n",
    );
    expect(
        &out,
        &[
            "Watchpoint 2: seen",
            "New value = 190",
            "Old value = 190",
            "New value = 1",
        ],
    );
}

#[test]
fn begin_and_end_are_reported() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "reverse-stepi\nreverse-continue\ncontinue\ncontinue\nwhen\nbreak fib\nreverse-continue\nwhen\n",
    );
    expect(
        &out,
        &[
            "No more reverse-execution history",
            "No more reverse-execution history",
            "No more reverse-execution history",
            "No more reverse-execution history",
            "100.00%",
            "fib (n=0)",
        ],
    );
}

#[test]
fn positions_and_checkpoints() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "break fib\ncontinue\ncheckpoint first\ncontinue 5\ncheckpoint\ncheckpoints\nrestart first\nbacktrace\n\
         last-write total\nprint total\nfirst-use total\nseek end\nseek 50%\nseek begin\nseek FFFFFF:0\nrestart nowhere\nwhen\n",
    );
    expect(
        &out,
        &[
            "checkpoint first at",
            "checkpoint 1 at",
            "1 ",
            "first ",
            "fib (n=6)",
            "writes 4 bytes",
            "main (",
            "= 171",
            " bytes at",
            "100.00%",
            "50.00%",
            "0.00%",
            "no position",
            "no checkpoint nowhere",
            "0.00%",
        ],
    );
    // They are saved beside the trace.
    let out = gdb(
        &s,
        &trace,
        "checkpoints\ninfo checkpoints\ndelete checkpoint 1\ninfo checkpoints\ndelete checkpoint 1\nrestart first\nprint n\n",
    );
    expect(
        &out,
        &[
            "1 ",
            "first ",
            "1 ",
            "first ",
            "first ",
            "no checkpoint 1",
            "$1 = 6",
        ],
    );
    assert!(!out.contains("No checkpoints."), "{out}");
    let at = out
        .lines()
        .find_map(|l| l.strip_prefix("first "))
        .unwrap()
        .to_string();
    let option = format!("--at={at}");
    expect(
        &gdb_with(&s, &trace, &[&option], "backtrace\n"),
        &["fib (n=6)"],
    );
}

#[test]
fn unknown_memory_is_refused() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "break main\ncontinue\nx/s 0x10\nx/2gx $rsp - 0x100000\nfinish\n",
    );
    expect(
        &out,
        &[
            "Cannot access memory at address 0x10",
            "Cannot access memory",
        ],
    );
}

#[test]
fn calls_and_writes_go_to_a_side_branch() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(
        &s,
        &trace,
        "break fib\ncontinue\ndelete\nprint fib(10)\nprint add(2, 3)\nprint total\nset var total = 7\n\
         print total\nprint add(total, 1)\nbacktrace 1\nnext\nprint total\nreverse-next\nprint n\n",
    );
    expect(
        &out,
        &[
            "= 55",
            "= 5",
            "= 190",
            "= 7",
            "= 8",
            "fib (n=6)",
            "side branch is thrown away",
            "= 190",
            "= 6",
        ],
    );
    // No system call is made. Registers are those of the side branch until the user goes back.
    let out = gdb(
        &s,
        &trace,
        "break fib\ncontinue\ndelete\nprint (int) getppid()\nbacktrace 1\nset $rax = 5\nstepi\nprint $rax\n\
         reverse-stepi\nprint $rax == 5\nset var *(int *) 16 = 1\n",
    );
    expect(
        &out,
        &[
            "the side branch ends: it makes system call",
            "fib (n=6)",
            "= 5",
            "side branch is thrown away",
            "= 0",
            "Cannot access memory at address 0x10",
        ],
    );
}

#[test]
fn places_are_told_to_scripts() {
    let s = Scene::new();
    let trace = record(&s, LOOP, &[]);
    let out = gdb(&s, &trace, "break fib if n == 3\ncontinue\nwhen\n");
    let at = out.lines().find_map(|l| l.strip_prefix("(gdb) 0:"));
    let at = format!("0:{}", at.expect(&out).split(' ').next().unwrap());
    let ask = |command: &str| -> serde_json::Value {
        let done = s.run(s.hindsight(&[command, "--json"]).arg(&trace).arg(&at));
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let place = ask("at");
    assert_eq!(place["position"], at);
    assert_eq!(place["place"]["function"], "fib");
    assert_eq!(place["frames"][0]["line"], 6);
    assert_eq!(place["code"][0]["address"], place["registers"]["rip"]);
    let n = place["variables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|v| v["name"] == "n");
    assert_eq!(n.unwrap()["integer"], "0x3");
    let stack = ask("backtrace");
    let functions: Vec<&str> = stack
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|f| f["frames"][0]["function"].as_str())
        .collect();
    assert_eq!(functions[..5], ["fib", "fib", "fib", "fib", "main"]);
}

#[test]
fn writes_that_change_nothing_are_not_told() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <pthread.h>
volatile int flag; volatile long other; pthread_mutex_t m;
void *work(void *p) {
    for (int i = 0; i < 300; i++) { pthread_mutex_lock(&m); flag = 1; other++; pthread_mutex_unlock(&m); }
    return 0;
}
int main(void) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    flag = 2; flag = 2; flag = 3;
    for (int i = 0; i < 200000; i++) flag = 3;
    return 0;
}"#,
        &[],
    );
    let there = "break main\ncontinue\ndelete\nwatch flag\ncontinue\ncontinue\ncontinue\n";
    let back = "reverse-continue\nreverse-continue\nreverse-continue\nreverse-continue\n";
    let forwards = [
        "Old value = 0",
        "New value = 1",
        "Old value = 1",
        "New value = 2",
        "Old value = 2",
        "New value = 3",
    ];
    let end = "No more reverse-execution history";
    let backwards = [
        "Old value = 2",
        "New value = 1",
        "Old value = 1",
        "New value = 0",
        end,
    ];
    let whole = [
        &forwards[..],
        &[end, "Old value = 3", "New value = 2"],
        &backwards,
    ];
    let script = format!("{there}continue\nreverse-continue\n{back}");
    expect(&gdb(&s, &trace, &script), &whole.concat());
    // The same where gdb sorts them out.
    let script = format!("monitor watch all\n{there}reverse-continue\n{back}");
    let whole = [
        &forwards[..],
        &["Old value = 3", "New value = 2"],
        &backwards,
    ];
    expect(&gdb(&s, &trace, &script), &whole.concat());
    // With a condition, and with a watchpoint that gdb compares after each instruction.
    let script = "break main\ncontinue\ndelete\nwatch flag if flag == 3\ncontinue\ncontinue\n\
                  reverse-continue\ndelete\nset can-use-hw-watchpoints 0\n\
                  break 11\ncontinue\nwatch flag\ncontinue\ncontinue\nreverse-continue\n";
    expect(
        &gdb(&s, &trace, script),
        &[
            "Old value = 2",
            "New value = 3",
            "No more reverse-execution history",
            "No more reverse-execution history",
            "Watchpoint 4: flag",
            "Old value = 1",
            "New value = 2",
            "Old value = 2",
            "New value = 3",
            "Old value = 3",
            "New value = 2",
        ],
    );
    // Another watchpoint that the same instruction touches is not lost.
    let script =
        "break main\ncontinue\ndelete\nwatch flag\nrwatch flag\nawatch other\ncontinue\ncontinue\n";
    expect(
        &gdb(&s, &trace, script),
        &["New value = 1", "watchpoint 4: other"],
    );
}

#[test]
fn saving_the_vector_state_writes_no_more_than_that() {
    let s = Scene::new();
    // Functions are bound at their first calls. The dynamic linker then saves the state of the processor just below the
    // caller's variables.
    let trace = record(
        &s,
        r#"#include <unistd.h>
void stop(void) {}
int main(void) { volatile long n[40]; for (int i = 0; i < 40; i++) n[i] = i + 7; getppid(); stop(); return 0; }"#,
        &["-Wl,-z,lazy"],
    );
    let out = gdb(
        &s,
        &trace,
        "break stop\ncontinue\nup\nlast-write n[0]\nseek end\nbreak main\nreverse-continue\nreverse-continue\n\
         next\nnext\nnext\nwatch -l n[0]\ncontinue\n",
    );
    expect(
        &out,
        &["stop ()", "writes 8 bytes", "main ()", "stop ()", "main ()"],
    );
    assert!(!out.contains("_dl_runtime_resolve"), "{out}");
}

#[test]
fn functions_that_are_called_may_be_bound_then() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <stdlib.h>
#include <string.h>
char text[] = "1.5";
double half(double d) { return strtod(text, 0) + labs((long) d) / 2.0 + d / 4; }
int main(void) { return half != 0 ? 0 : 1; }"#,
        &["-Wl,-z,lazy", "-fno-builtin"],
    );
    let out = gdb(
        &s,
        &trace,
        "break main\ncontinue\nprint half(3)\nprint half(5)\nnext\n",
    );
    expect(
        &out,
        &["main ()", "= 3.75", "= 5.25", "side branch is thrown away"],
    );
}

/// A recording has the results of such instructions. A side branch has none of these events.
#[test]
fn functions_that_are_called_may_be_transcendental() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"double sine(double d) { asm("fldl %0\nfsin\nfstpl %0" : "+m"(d)); return d; }
int main(void) { return sine(0) != 0; }"#,
        &[],
    );
    let out = gdb(&s, &trace, "break main\ncontinue\nprint sine(1.5)\nnext\n");
    expect(&out, &["main ()", "= 0.9974", "side branch is thrown away"]);
}

#[test]
fn it_goes_to_marks_and_state_points() {
    let s = Scene::new();
    let program = s.compile("states.c", &["-pthread"]);
    let trace = s.path("states.hst");
    let out = s.path("out");
    let argv = [program.as_os_str(), out.as_os_str()];
    assert_eq!(
        s.run(&mut s.recording(&trace, &argv)).status.code(),
        Some(0)
    );
    let script = "states\nnext-state\nnext-state\nprint step\nseek state:4\nprevious-state\nprint step\n\
                  seek mark:round:2\nup 2\nprint step\nseek end\nnext-state\nseek state:9\n";
    let out = gdb(&s, &trace, script);
    let places = [
        "1 0:",
        " filled\n",
        "4 0:",
        "state \"filled\"",
        "state \"changed\"",
        "$1 = 1",
        "state \"changed\"",
        "$2 = 2",
        "$3 = 1",
        "there is no state point behind",
        "state:9: there are 4",
    ];
    let mut from = 0;
    for text in places {
        let found = out[from..].find(text);
        from += found.unwrap_or_else(|| panic!("{out}\nis without {text} there"));
    }
}

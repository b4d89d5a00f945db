//! Steps, breakpoints and runs at a signal, and at the end of the recording.

use crate::common::{expect, gdb, record};
use hindsight_lab::Scene;

const FAULT: &str = r#"
int x;
int main(void) {
    volatile int *p = 0;
    for (int i = 0; i < 100; i++) x += i;
    *p = 3;
    return 0;
}
"#;

#[test]
fn a_step_or_run_that_begins_at_a_signal_is_told_of_it() {
    let s = Scene::new();
    let trace = record(&s, FAULT, &[]);
    const SIGNAL: &str = "Program received signal SIGSEGV";
    // A run from a breakpoint at the line begins with a step.
    let out = gdb(
        &s,
        &trace,
        "break 6\ncontinue\ncontinue\nprint $_siginfo.si_signo\nreverse-stepi\nprint 1\nnext\nreverse-next\nprint 2\n\
         stepi\nstepi\nreverse-stepi\nprint 3\nstepi\ncontinue\nreverse-continue\nprint x\n",
    );
    expect(
        &out,
        &[
            "Breakpoint 1, ",
            SIGNAL,
            "$1 = 11",
            "Breakpoint 1, ",
            "$2 = 1",
            SIGNAL,
            "Breakpoint 1, ",
            "$3 = 2",
            SIGNAL,
            "Breakpoint 1, ",
            "$4 = 3",
            SIGNAL,
            "Breakpoint 1, ",
            "$5 = 4950",
        ],
    );
    // A breakpoint at the faulting instruction. gdb begins with a step over it, also at the end.
    let out = gdb(
        &s,
        &trace,
        "break 6\ncontinue\ncontinue\ndelete\neval \"break *%p\", $pc\nreverse-continue\nprint 1\ncontinue\nprint 2\n\
         continue\nprint 3\ncontinue\ncontinue\ncontinue\nreverse-continue\nwhen\n",
    );
    expect(
        &out,
        &[
            SIGNAL,
            "No more reverse-execution history",
            "$1 = 1",
            "Breakpoint 2, ",
            "$2 = 2",
            SIGNAL,
            "$3 = 3",
            "killed by signal 11",
            SIGNAL,
            "killed by signal 11",
            SIGNAL,
            "No more reverse-execution history",
            " 0 instructions",
        ],
    );
}

#[test]
fn one_goes_on_from_a_breakpoint_at_the_end() {
    let s = Scene::new();
    let trace = record(&s, "int main(void) { return 0; }", &[]);
    const END: &str = "No more reverse-execution history";
    let out = gdb(
        &s,
        &trace,
        "continue\neval \"break *%p\", $pc\ncontinue\ncontinue\nstepi\nstepi\nnext\nreverse-continue\nreverse-continue\nwhen\n",
    );
    expect(
        &out,
        &[
            END,
            "exit status 0",
            "Breakpoint 1",
            "Breakpoint 1",
            END,
            END,
            " 0 instructions",
        ],
    );
}

#[test]
fn loops_in_a_line_are_left_at_once() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <signal.h>
#include <unistd.h>
volatile long n; volatile int ticks; int data[4]; void (*f)(void);
void handler(int s) { ticks++; }
void leaf(void) { n++; }
int main(void) {
    f = leaf; signal(SIGUSR1, handler);
    for (long i = 0; i < 20000000; i++) n += i;
    for (long i = 0; i < 1000; i++) if (i == 500) kill(getpid(), SIGUSR1); else n += i;
    for (long i = 0; i < 1000; i++) if (i % 500 == 499) f(); else n += i;
    for (long i = 0; i < 200000; i++) if (i == 100000) data[1] = 7; else n += i;
    for (long i = 0; i < 200000; i++) { n += i; if (i == 100000) break; }
    return 0;
}"#,
        &[],
    );
    // One hundred million instructions. Single steps through them would take longer than the test may.
    let out = gdb(
        &s,
        &trace,
        "handle SIGUSR1 stop print\nbreak main\ncontinue\nnext\nnext\nnext\nprint ticks\nfinish\nnext\nprint ticks\n\
         step\nbacktrace 1\nfinish\nstep\nbacktrace 1\nfinish\nnext\nwatch data[1]\nnext\nnext\nprint data[1]\n",
    );
    expect(
        &out,
        &[
            "main ()",
            " 8\t",
            " 9\t",
            "Program received signal SIGUSR1",
            "$1 = 0",
            "main ()",
            " 10\t",
            "$2 = 1",
            "leaf ()",
            "main ()",
            "leaf ()",
            "main ()",
            " 11\t",
            "Hardware watchpoint 2",
            "New value = 7",
            " 12\t",
            "$3 = 7",
        ],
    );
}

const HANDLER: &str = r#"
#include <signal.h>
#include <sys/mman.h>
char *page; int x;
void on_segv(int s) { mprotect(page, 4096, PROT_READ | PROT_WRITE); x++; }
int main(void) {
    page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, on_segv);
    for (int i = 0; i < 3; i++) {
        mprotect(page, 4096, PROT_NONE);
        *page = i;
    }
    return 0;
}
"#;

#[test]
fn a_breakpoint_at_a_handlers_first_instruction_is_met_each_time() {
    let s = Scene::new();
    let trace = record(&s, HANDLER, &[]);
    let out = gdb(
        &s,
        &trace,
        "handle SIGSEGV nostop noprint pass\nbreak *on_segv\n\
         continue\nprint x\ncontinue\nprint x\ncontinue\nprint x\n\
         reverse-continue\nprint x\nreverse-continue\nprint x\nreverse-continue\nprint 9\n\
         continue\nprint x\nstepi\nprint $pc > (long) on_segv\n",
    );
    let mut want = Vec::new();
    for (n, x) in [(1, "0"), (2, "1"), (3, "2"), (4, "1"), (5, "0")] {
        want.push("hit Breakpoint 1, ".to_string());
        want.push(format!("${n} = {x}"));
    }
    want.push("No more reverse-execution history".to_string());
    want.push("$6 = 9".to_string());
    want.push("hit Breakpoint 1, ".to_string());
    want.push("$7 = 0".to_string());
    want.push("$8 = 1".to_string());
    let want: Vec<&str> = want.iter().map(|w| w.trim_start_matches("hit ")).collect();
    expect(&out, &want);
}

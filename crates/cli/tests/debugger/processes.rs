//! Child processes, programs that processes execute, and the end of a process.

use crate::common::{expect, gdb, record};
use hindsight_lab::Scene;

const TREE: &str = r#"
#include <unistd.h>
#include <sys/wait.h>
int after(int n) { return n + 1; } int second(int n) { return n + 2; }
int main(int argc, char **argv) {
    if (argc > 1) { second(argc); return 0; }
    int st;
    pid_t p = fork();
    if (!p) _exit(3);
    waitpid(p, &st, 0);
    after(2);
    p = vfork();
    if (!p) _exit(4);
    waitpid(p, &st, 0);
    after(3);
    execl("/proc/self/exe", "f", "again", (char *) 0);
    return 1;
}"#;

#[test]
fn forks_and_programs_are_caught_both_ways() {
    let s = Scene::new();
    let trace = record(&s, TREE, &[]);
    let out = gdb(
        &s,
        &trace,
        "catch fork\ncatch vfork\ncatch exec\nbreak after\ncontinue\ncontinue\nprint n\ncontinue\ncontinue\n\
         print n\ncontinue\nbreak second\ncontinue\nbacktrace\nreverse-continue\nreverse-continue\nprint n\n\
         reverse-continue\nreverse-continue\nprint n\nreverse-continue\nreverse-continue\ncontinue\n",
    );
    expect(
        &out,
        &[
            "Catchpoint 1 (forked process",
            "after (n=2)",
            "= 2",
            "Catchpoint 2 (vforked process",
            "after (n=3)",
            "= 3",
            "is executing new program",
            "Catchpoint 3 (exec'd",
            "second (n=2)",
            "main (argc=2",
            "Catchpoint 3 (exec'd",
            "after (n=3)",
            "= 3",
            "Catchpoint 2 (vforked",
            "after (n=2)",
            "= 2",
            "Catchpoint 1 (forked",
            "No more reverse-execution history",
            "Catchpoint 1 (forked",
        ],
    );
}

#[test]
fn a_program_is_followed_into_the_next() {
    let s = Scene::new();
    let trace = record(&s, TREE, &[]);
    // By default, new processes do not stop, and breakpoints are those of the program.
    let out = gdb(
        &s,
        &trace,
        "break second\nbreak after\ncontinue\ncontinue\ncontinue\nprint $_siginfo\ncontinue\nwhen\nreverse-continue\n\
         reverse-continue\nprint n\ninfo threads\n",
    );
    expect(
        &out,
        &[
            "after (n=2)",
            "after (n=3)",
            "is executing new program",
            "second (n=2)",
            "end of the recording of this process: exit status 0",
            "No more reverse-execution history",
            "100.00%",
            "second (n=2)",
            "after (n=3)",
            "= 3",
            "Thread",
        ],
    );
}

#[test]
fn the_end_of_a_killed_process_is_told() {
    let s = Scene::new();
    let trace = record(
        &s,
        r#"#include <signal.h>
#include <unistd.h>
volatile long n; void last(void) { n++; }
int main(void) { for (int i = 0; i < 10; i++) last(); raise(SIGTERM); return 0; }"#,
        &[],
    );
    let out = gdb(
        &s,
        &trace,
        "continue\ncontinue\nbreak last\nreverse-continue\nprint n\ncontinue\ncontinue\n",
    );
    expect(
        &out,
        &[
            "received signal SIGTERM",
            "end of the recording of this process: killed by signal 15",
            "No more reverse-execution history",
            "last ()",
            "= 9",
            "received signal SIGTERM",
        ],
    );
}

#[test]
fn the_ends_of_killed_children_are_told_by_who_waited() {
    let s = Scene::new();
    // Each end is told in another way: by `waitpid`, by `waitid`, and the last one by nobody.
    let source = r#"#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
int begun[2]; char c;
int child(void) { pid_t p = fork(); if (!p) { write(begun[1], "x", 1); for (;;) pause(); } read(begun[0], &c, 1); return p; }
int main(void) {
    int status; siginfo_t info; pipe(begun); THREADS
    pid_t p = child(); kill(p, SIGKILL); waitpid(p, &status, 0);
    p = child(); kill(p, SIGUSR1); waitid(P_PID, p, &info, WEXITED);
    p = child(); kill(p, SIGSTOP); waitpid(p, &status, WUNTRACED); kill(p, SIGKILL); waitpid(p, &status, 0);
    p = child(); signal(SIGCHLD, SIG_IGN); kill(p, SIGKILL); waitpid(p, 0, 0);
    return 0; }"#;
    let thread = "#include <pthread.h>\nvoid *idle(void *p) { pause(); return p; }\n".to_string();
    let checked =
        thread + &source.replace("THREADS", "pthread_t t; pthread_create(&t, 0, idle, 0);");
    for source in [source.replace("THREADS", ""), checked] {
        let trace = record(&s, &source, &[]);
        let mut command = s.hindsight(&["events", "--kind", "process,thread"]);
        let events = s.run(command.arg(&trace)).text();
        let ends = [
            "thread ends: killed by signal 9",
            "thread ends: killed by signal 10",
            "thread ends: killed by signal 9",
            "thread ends: its end is not recorded",
            "thread ends: exit status 0",
        ];
        expect(&events, &ends);
        let out = gdb(&s, &trace, "process 2\ncontinue\n");
        expect(
            &out,
            &["end of the recording of this process: killed by signal 9"],
        );
    }
}

#[test]
fn handlers_have_callers() {
    let s = Scene::new();
    // In the checked regime, with old values where the frame of the signal will be.
    let trace = s.path("t.hst");
    let program = crate::common::compile(
        &s,
        "program",
        r#"#include <signal.h>
#include <string.h>
#include <unistd.h>
volatile int hits;
void deep(int n) { char fill[256]; memset(fill, 0x41, sizeof fill); if (n) deep(n - 1); hits += fill[3] == 0; }
void on(int n) { hits++; }
void cause(void) { kill(getpid(), SIGUSR1); }
int main(void) { deep(60); signal(SIGUSR1, on); cause(); return hits - 1; }"#,
        &[],
    );
    for regime in ["checked", "quiet"] {
        let mut command = s.hindsight(&["record", "--quiet", "--regime", regime, "-o"]);
        let run = s.run(command.arg(&trace).arg("--").arg(&program));
        assert!(run.status.success(), "{}", run.messages());
        let out = gdb(&s, &trace, "break on\ncontinue\ncontinue\nbacktrace\n");
        expect(
            &out,
            &[
                "on (n=10)",
                "<signal handler called>",
                "cause ()",
                "main ()",
            ],
        );
        // The same without gdb.
        let calls = s.run(s.hindsight(&["calls"]).arg(&trace).arg("on")).text();
        // It returns into the C library, to a place that only debug files name.
        expect(&calls, &["on(n=", " to "]);
        // At the instant after its first instruction. Before that, the signal has not come yet.
        let at = calls.split(' ').next().unwrap();
        let mut command = s.hindsight(&["backtrace"]);
        let stack = s.run(command.arg(&trace).arg(at));
        let stack = stack.text();
        let frames = ["on at", "<signal handler called>", "cause at", "main at"];
        expect(&stack, &frames);
    }
}

#[test]
fn another_process_is_chosen() {
    let s = Scene::new();
    let trace = record(&s, TREE, &[]);
    let out = gdb(
        &s,
        &trace,
        "monitor process x\nmonitor process 99\nprocess 3\nbreak second\ncontinue\nbacktrace\nprocess 1\nbreak after\ncontinue\n\
         print n\nprocess 2\nwhen\nprocess\ncontinue\n",
    );
    expect(
        &out,
        &[
            "x is no number of a program image",
            "no program image 99",
            "image 3 process",
            "replaces image 1",
            "#0  ",
            "second (n=2)",
            "main (argc=2",
            "image 1 process",
            "after (n=2)",
            "= 2",
            "image 2 process",
            "made by image 1",
            "0.00% of the thread",
            "image 2 process",
            "exit status 3",
        ],
    );
    // gdb takes it for an `execve`, which the user did not ask for.
    for gdbs in ["executing new program", "Catchpoint", "Switching"] {
        assert!(!out.contains(gdbs), "{out}");
    }
}

/// Threads have the names of their own processes. That also holds after the user has gone to such a process.
#[test]
fn threads_are_named_with_their_own_processes() {
    let s = Scene::new();
    let trace = record(&s, TREE, &[]);
    let out = gdb(
        &s,
        &trace,
        "seek 50%\nwhen\nprocess 2\ninfo threads\nbreak after\nprocess 1\ninfo threads\ncontinue\nprint $_inferior\n\
         process 3\ninfo threads\nprocess 2\ncontinue\ninferior 1\ninfo threads\n",
    );
    let pid_of = |image: &str| {
        let rest = out
            .split(&format!("image {image} process "))
            .nth(1)
            .expect(&out);
        rest.split(' ').next().unwrap().to_string()
    };
    let (one, two) = (pid_of("1"), pid_of("2"));
    assert_ne!(one, two);
    assert_eq!(one, pid_of("3"));
    // The chosen process is marked. The other one stays where it was.
    let (chosen, left) = ([&one, &two].map(|p| format!("Thread {p}.{p} ")), "* ");
    expect(
        &out,
        &[
            "% of the thread",
            "image 2 process",
            &chosen[0],
            left,
            &chosen[1],
            "image 1 process",
            left,
            &chosen[0],
            &chosen[1],
            "after (n=2)",
            "= 1",
            "image 3 process",
            left,
            &chosen[0],
            &chosen[1],
            "image 2 process",
            "exit status 3",
            "Switching to inferior 1",
            left,
            &chosen[0],
        ],
    );
    let wrong = format!("Thread {one}.{two}");
    assert!(!out.contains(&wrong), "{out}");
}

/// Both kinds of children, one of which executes a program, and a process that itself executes one.
const CHILDREN: &str = r#"
#include <unistd.h>
#include <sys/wait.h>
int after(int n) { return n + 1; } int second(int n) { return n + 2; } int child(int n) { return n; }
int main(int argc, char **argv) {
    if (argc > 1) { second(argc); return argc; }
    int st;
    pid_t p = fork();
    if (!p) { child(7); _exit(3); }
    waitpid(p, &st, 0);
    after(2);
    p = vfork();
    if (!p) { child(8); execl("/proc/self/exe", "f", "a", "b", (char *) 0); }
    waitpid(p, &st, 0);
    after(3);
    execl("/proc/self/exe", "f", "again", (char *) 0);
    return 1;
}"#;

#[test]
fn children_are_followed() {
    let s = Scene::new();
    let trace = record(&s, CHILDREN, &[]);
    let out = gdb(
        &s,
        &trace,
        "set follow-fork-mode child\nbreak child\nbreak after\ncontinue\nprint n\ninfo inferiors\nreverse-finish\n\
         continue\ncontinue\nreverse-continue\nprint n\nreverse-continue\nwhen\n",
    );
    expect(
        &out,
        &[
            "Attaching after",
            "Detaching after fork from parent",
            "child (n=7)",
            "= 7",
            "made by image 1,",
            "main (argc=1",
            "child (n=7)",
            "end of the recording of this process: exit status 3",
            "child (n=7)",
            "= 7",
            "No more reverse-execution history",
            "0.00% of the thread",
        ],
    );
    // A child that has its parent's memory until it executes a program.
    let out = gdb(
        &s,
        &trace,
        "break after\ncontinue\nset follow-fork-mode child\nbreak child\nbreak second\ncontinue\nprint n\n\
         continue\nbacktrace\ninfo inferiors\nreverse-stepi\nstepi\ncontinue\n",
    );
    expect(
        &out,
        &[
            "after (n=2)",
            "vfork to child",
            "child (n=8)",
            "= 8",
            "Detaching vfork parent",
            "is executing new program",
            "second (n=3)",
            "main (argc=3",
            "replaces image 1,",
            "second (n=3)",
            "exit status 3",
        ],
    );
}

#[test]
fn parent_and_child_are_held_each_at_its_own_time() {
    let s = Scene::new();
    let trace = record(&s, CHILDREN, &[]);
    let out = gdb(
        &s,
        &trace,
        "set detach-on-fork off\nbreak after\nbreak child\ncontinue\nwhen\ninferior 2\nwhen\ncontinue\nprint n\n\
         info threads\ninferior 1\nprint n\nreverse-continue\nwhen\ncontinue\nprint n\ninferior 2\nprint n\nprint n = 5\n\
         print n\nreverse-stepi\ndetach\ninferior 1\nbacktrace\nset detach-on-fork on\ncontinue\nprint n\n",
    );
    expect(
        &out,
        &[
            "New inferior 2",
            "after (n=2)",
            "% of the thread",
            "Switching to inferior 2",
            "0.00% of the thread",
            "child (n=7)",
            "= 7",
            "after (n=2)",
            "* 2.1",
            "Switching to inferior 1",
            "= 2",
            "No more reverse-execution history",
            "0.00% of the thread",
            "after (n=2)",
            "= 2",
            "Switching to inferior 2",
            "= 7",
            "= 5",
            "= 5",
            "the side branch is thrown away",
            "Inferior 2 (process",
            "Switching to inferior 1",
            "after (n=2)",
            "main (argc=1",
            // Its child's breakpoints are not its own.
            "after (n=3)",
            "= 3",
        ],
    );
}

#[test]
fn commands_are_about_the_chosen_process() {
    let s = Scene::new();
    let trace = record(&s, CHILDREN, &[]);
    // At each stop, gdb removes the breakpoints of all processes. It does not mention the chosen one any more.
    let out = gdb(
        &s,
        &trace,
        "set detach-on-fork off\nbreak after\nbreak child\ncontinue\ninferior 2\ncontinue\nwhen\nstepi\nwhen\nlast-write n\n\
         when\ninferior 1\nstepi\nwhen\n",
    );
    let threads: Vec<&str> = out
        .lines()
        .filter(|l| l.contains("% of the thread"))
        .filter_map(|l| l.split(" thread ").nth(1)?.split(' ').next())
        .collect();
    let [child, steps @ .., parent] = &threads[..] else {
        panic!("{out}");
    };
    assert!(
        steps.len() == 2 && steps.iter().all(|t| t == child),
        "{out}"
    );
    assert_ne!(child, parent, "{out}");
    expect(&out, &["child (n=7)", "writes 4 bytes", "child ("]);
}

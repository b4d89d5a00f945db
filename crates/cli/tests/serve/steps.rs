//! Steps by source line are those that gdb makes in the live program.

use super::client::Client;
use hindsight_lab::Scene;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = r#"
static volatile int total;
static int twice(int n) {
    int m = n;
    m += n;
    return m;
}
static int fib(int n) {
    if (n < 2)
        return n;
    return fib(n - 1) + fib(n - 2);
}
static void many(int n) {
    for (int i = 0; i < n; i++)
        twice(i);
}
int main(void) {
    total = twice(1) + twice(2);
    many(3);
    total += fib(3);
    while (total > 2) {
        total -= 4;
        if (total & 1)
            continue;
        total--;
    }
    return total;
}
"#;

/// Lines that are executed for long: they are not stepped through. In the last one a call is a part of the line.
const LOOPS: &str = r#"
static volatile int total;
static int twice(int n) {
    return n < 2 ? n : twice(n - 1) + 1;
}
int main(void) {
    for (int i = 0; i < 1000; i++) total += i;
    for (int i = 0; i < 300; i++) total ^= i & 1 ? twice(i & 7) : i;
    return total == 1;
}
"#;

/// The lines at which gdb stops from the beginning of `main` to the line `last`.
fn of_gdb(s: &Scene, program: &Path, command: &str, last: u64) -> Vec<u64> {
    let script = format!(
        "import gdb\nfor i in range(400):\n  f = gdb.selected_frame()\n  print('LINE', f.find_sal().line)\n  \
         if f.name() == 'main' and f.find_sal().line == {last}: break\n  gdb.execute('{command}', to_string=True)"
    );
    let file = s.path("steps.py");
    std::fs::write(&file, script).unwrap();
    let mut gdb = s.command("gdb");
    gdb.args(["-nx", "-batch", "-ex", "break main", "-ex", "run", "-x"]);
    let done = s.run(gdb.arg(&file).arg(program));
    let text = done.text();
    let lines = text.lines().filter_map(|l| l.strip_prefix("LINE "));
    lines.map(|l| l.parse().unwrap()).collect()
}

fn line(c: &mut Client, here: &Json) -> u64 {
    let stack = c.ask("stack", json!({ "at": here }));
    stack[0]["frames"][0]["line"].as_u64().unwrap()
}

/// Compiles and records a program.
fn recorded(s: &Scene, text: &str) -> (PathBuf, PathBuf) {
    let (source, program) = (s.path("steps.c"), s.path("steps"));
    std::fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O0", "-fcf-protection=none", "-o"])
        .arg(&program);
    assert!(gcc.arg(&source).status().unwrap().success());
    let (_, trace) = s.record(&[&program]);
    (program, trace)
}

/// Steps from the beginning of `main` on, so many times. The instants and their lines.
fn forwards(c: &mut Client, by: &str, times: usize) -> (Vec<Json>, Vec<u64>) {
    let main = c.ask("run", json!({"at": "begin", "breakpoints": ["main"]}));
    let mut all = vec![main["here"].clone()];
    let mut lines = vec![line(c, &all[0])];
    while lines.len() < times {
        let stop = c.ask("step", json!({"at": all.last(), "by": by}));
        assert_eq!(stop["reason"], "step", "{stop}");
        lines.push(line(c, &stop["here"]));
        all.push(stop["here"].clone());
    }
    (all, lines)
}

#[test]
fn long_lines_are_left_where_gdb_leaves_them() {
    let s = Scene::new();
    let (program, trace) = recorded(&s, LOOPS);
    let mut c = Client::new(&s, &trace);
    let expected = of_gdb(&s, &program, "next", 9);
    assert_eq!(expected, [7, 8, 9]);
    assert_eq!(forwards(&mut c, "next", 3).1, expected);
}

#[test]
fn lines_are_those_of_gdb() {
    let s = Scene::new();
    let (program, trace) = recorded(&s, PROGRAM);
    let mut c = Client::new(&s, &trace);
    for (by, command) in [("line", "step"), ("next", "next")] {
        let expected = of_gdb(&s, &program, command, 27);
        assert!(expected.len() > 8, "{expected:?}");
        let (all, found) = forwards(&mut c, by, expected.len());
        assert_eq!(found, expected, "{command}");
        // Backwards it comes through the same lines. Each time it is at the line's beginning.
        let (mut here, mut back) = (all[all.len() - 1].clone(), Vec::new());
        while here["count"].as_u64() > all[0]["count"].as_u64() {
            let stop = c.ask(
                "step",
                json!({"at": here, "by": by, "direction": "backward"}),
            );
            assert_eq!(stop["reason"], "step", "{stop}");
            here = stop["here"].clone();
            back.push(line(&mut c, &here));
        }
        println!("{command}: forwards {expected:?}, backwards {back:?}");
        if by == "next" {
            let mut lines: Vec<u64> = expected[..expected.len() - 1].to_vec();
            lines.reverse();
            assert_eq!(back, lines);
        } else {
            // Every line that was come to was also come to backwards.
            assert!(
                expected[1..expected.len() - 1]
                    .iter()
                    .all(|l| back.contains(l)),
                "{back:?}"
            );
        }
    }
}

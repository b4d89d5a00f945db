//! Call stacks, compared with gdb's. And the writer of something, without going there.

use crate::common::{compile, expect, gdb};
use hindsight_lab::Scene;
use serde_json::Value;
use std::path::Path;

const CALLS: &str = r#"
#include <stdlib.h>
#define OUT __attribute__((noinline, noclone))
static int held[8];
static inline __attribute__((always_inline)) int within(int n) { held[n & 7] += n; if (n == 3) abort(); return held[1]; }
OUT int deep(int n) { volatile char room[64]; room[n] = n; return n == 3 ? within(n) + room[1] : deep(n + 1) + room[0]; }
static int order(const void *a, const void *b) { deep(*(int *) a); return *(int *) a - *(int *) b; }
OUT int sorted(int *v, int n) { qsort(v, n, sizeof *v, order); return v[0]; }
int main() { int v[3] = { 0, 2, 1 }; return sorted(v, 3) + v[1]; }
"#;

const BAD: &str = r#"
#include <stdio.h>
struct shop { long sum; long (*add)(long); } shop = { 5, (long (*)(long)) 0x1234 };
__attribute__((noinline)) long buy(struct shop *s, long n) { long got = s->add(n) + 1; return got * 2; }
int main() { long all = buy(&shop, 7); return all; }
"#;

/// The names of the functions from the innermost to `main`, from `hindsight backtrace`.
fn mine(s: &Scene, trace: &Path, place: &str) -> Vec<String> {
    let done = s.run(s.hindsight(&["backtrace", "--json"]).arg(trace).arg(place));
    assert!(done.status.success(), "{}", done.messages());
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    let mut out = Vec::new();
    for frame in all.as_array().unwrap() {
        let inner = frame["frames"].as_array().unwrap();
        let place = frame["place"]["function"]
            .as_str()
            .unwrap_or("??")
            .to_string();
        match inner.is_empty() {
            true => out.push(place),
            false => out.extend(
                inner
                    .iter()
                    .map(|f| f["function"].as_str().unwrap_or("??").to_string()),
            ),
        }
    }
    to_main(out)
}

/// The same from gdb.
fn gdbs(s: &Scene, trace: &Path) -> Vec<String> {
    let out = gdb(s, trace, "seek crash\necho STACK\\n\nbacktrace\n");
    let (_, list) = out.split_once("STACK\n").unwrap_or_else(|| panic!("{out}"));
    let name = |l: &str| {
        let l = l.trim_start_matches("(gdb) ");
        let rest = l.strip_prefix('#')?.split_once(' ')?.1.trim_start();
        let rest = match rest.starts_with("0x") {
            true => rest.split_once(" in ")?.1,
            false => rest,
        };
        Some(rest.split(" (").next()?.to_string())
    };
    to_main(list.lines().filter_map(name).collect())
}

fn to_main(mut all: Vec<String>) -> Vec<String> {
    let end = all
        .iter()
        .position(|f| f == "main")
        .unwrap_or_else(|| panic!("{all:?}"));
    all.truncate(end + 1);
    // Only the names.
    all.iter()
        .map(|f| f.split('(').next().unwrap_or_default().to_string())
        .collect()
}

#[test]
fn call_stacks_are_those_of_gdb() {
    for level in ["-O0", "-O1", "-O2"] {
        let s = Scene::new();
        // The last of the options counts.
        let program = compile(&s, "program", CALLS, &[level]);
        let (_, trace) = s.record(&[&program]);
        let (mine, gdbs) = (mine(&s, &trace, "crash"), gdbs(&s, &trace));
        let (mine, gdbs) = (from("within", mine), from("within", gdbs));
        // The C library's own functions have several names.
        let own = |all: &[String]| -> Vec<String> {
            all.iter()
                .filter(|f| ["within", "deep", "order", "sorted", "main"].contains(&f.as_str()))
                .cloned()
                .collect()
        };
        assert_eq!(own(&mine), own(&gdbs), "{level}: {mine:?} {gdbs:?}");
        assert_eq!(mine.len(), gdbs.len(), "{level}: {mine:?} {gdbs:?}");
    }
}

/// The part of a stack from the program's own innermost function on. Above, the C library ends a program through
/// functions of its own, and gdb leaves out some with inlined parts.
fn from(function: &str, mut all: Vec<String>) -> Vec<String> {
    let first = all.iter().position(|f| f == function);
    all.drain(..first.unwrap_or_else(|| panic!("{all:?}")));
    all
}

const TAILS: &str = r#"
#include <stdlib.h>
#define OUT __attribute__((noinline, noclone))
volatile int sink;
OUT void fail(int n) { sink = n; abort(); }
OUT void second(int n) { sink = n + 1; fail(n * 3); }
OUT void first(int n) { sink = n + 2; second(n * 5); }
int main(int argc, char **argv) { first(argc); return sink; }
"#;

/// A function that goes on as another one, by a tail call, has no frame any more. The compiler's debug information says
/// where it did that.
#[test]
fn tail_calls_are_in_the_stack_as_gdb_has_them() {
    let s = Scene::new();
    // A call that never returns would not become a tail call.
    let text = TAILS.replace("abort();", "if (n) abort();");
    let program = compile(&s, "program", &text, &["-O2"]);
    let (_, trace) = s.record(&[&program]);
    let mine = from("fail", mine(&s, &trace, "crash"));
    assert_eq!(mine, from("fail", gdbs(&s, &trace)));
    assert_eq!(mine, ["fail", "second", "first", "main"]);
    let done = s.run(s.hindsight(&["backtrace"]).arg(&trace).arg("crash"));
    let marked = |f: &str| {
        let line = done
            .text()
            .lines()
            .find(|l| l.contains(&format!(" {f} at ")))
            .unwrap_or_default()
            .to_string();
        line.ends_with("(tail call)")
    };
    assert!(
        marked("first") && marked("second") && !marked("fail") && !marked("main"),
        "{}",
        done.text()
    );
}

#[test]
fn a_call_of_what_is_no_code_has_its_caller() {
    for level in ["-O0", "-O2"] {
        let s = Scene::new();
        let program = compile(&s, "program", BAD, &[level]);
        let (_, trace) = s.record(&[&program]);
        let stack = mine(&s, &trace, "crash");
        assert_eq!(stack, ["??", "buy", "main"], "{level}");
        assert_eq!(stack, gdbs(&s, &trace), "{level}");
        // The caller's variables are available.
        let done = s.run(
            s.hindsight(&["at", "--frame", "1"])
                .arg(&trace)
                .arg("crash"),
        );
        assert!(done.text().contains("long int n = 7"), "{}", done.text());
    }
}

const PASSED: &str = r#"
#include <stdlib.h>
#include <string.h>
#define OUT __attribute__((noinline, noclone))
struct node { long value; struct node *next; };
volatile long sink;
OUT void stop(long n) { sink = n; if (sink) abort(); }
OUT void inner(struct node *p, int n, double d) { stop(p->value + n + d); sink = 1; }
OUT void lost(long a, struct node *list, char *name) { inner(list->next, a * 2, a); sink = strlen(name) > 100; }
OUT void again(int times, struct node *list) { lost(times * 7 + 1, list, "some name"); sink++; }
OUT void indirect(void (*f)(int, struct node *), struct node *l) { f(3, l); sink += 2; }
OUT void last(short n, struct node *l) { sink = n; indirect(again, l); }
OUT void tail(short n, struct node *l) { sink = 3; last(n + 1, l); }
int main(int argc, char **argv) { struct node b = { 40, 0 }, a = { 1, &b }; tail(-5, &a); return sink; }
"#;

/// From `lost (a=a@entry=22, list=<optimized out>)`, the function and its passed parameters, as far as they are known.
fn passed_in(frame: &str) -> Option<(String, Vec<(String, String)>)> {
    let (name, rest) = frame.split_once(" (")?;
    let name = name.rsplit(' ').next()?.to_string();
    let list = rest.rsplit_once(") at ")?.0;
    let one = |p: &str| {
        let (name, value) = p.split_once("@entry=")?;
        let name = name.rsplit('=').next()?;
        Some((name.to_string(), value.to_string()))
    };
    Some((name, list.split(", ").filter_map(one).collect()))
}

/// Functions need not keep their arguments. What was passed is known from their callers.
#[test]
fn what_was_passed_to_callers_is_known_where_gdb_knows_it() {
    for level in ["-O1", "-O2"] {
        let s = Scene::new();
        let program = compile(&s, "program", PASSED, &[level]);
        let (_, trace) = s.record(&[&program]);
        let out = gdb(&s, &trace, "seek crash\necho STACK\\n\nbacktrace\n");
        let (_, list) = out.split_once("STACK\n").unwrap_or_else(|| panic!("{out}"));
        let theirs: Vec<_> = list.lines().filter_map(passed_in).collect();
        let names = mine(&s, &trace, "crash");
        let mut compared = 0;
        for (function, wanted) in theirs {
            let Some(n) = names.iter().position(|f| *f == function) else {
                continue;
            };
            let mut command = s.hindsight(&["at", "--json", "--frame", &n.to_string()]);
            let done = s.run(command.arg(&trace).arg("crash"));
            let shown: Value = serde_json::from_slice(&done.stdout).unwrap();
            for (name, value) in wanted {
                let all = shown["variables"].as_array().unwrap();
                let v = all.iter().find(|v| v["name"] == name.as_str()).unwrap();
                let passed = v["passed"].as_str().unwrap_or("?");
                // gdb adds the name to a function's address.
                let value = value.split(" <").next().unwrap();
                assert_eq!(passed, value, "{level}: {name} of {function}: {shown:#}");
                compared += 1;
            }
        }
        assert!(compared >= 6, "{level}: {compared} of {out}");
        // In expressions they have gdb's names.
        let n = names.iter().position(|f| f == "lost").unwrap().to_string();
        let mut command = s.hindsight(&["mem", "--frame", &n]);
        let done = s.run(
            command
                .arg(&trace)
                .args(["crash", "list@entry->next->value"]),
        );
        assert!(done.text().contains("  28 00 00 00"), "{}", done.text());
    }
}

#[test]
fn who_wrote_something_is_said_without_going_there() {
    let s = Scene::new();
    let program = compile(
        &s,
        "program",
        "long total; struct pair { int a, b; } pair;\n\
         __attribute__((noinline)) void add(long n) { total += n; pair.b = n; }\n\
         void stop(void) {}\n\
         int main() { for (int i = 1; i < 4; i++) add(i); stop(); return 0; }\n",
        &[],
    );
    let (_, trace) = s.record(&[&program]);
    let out = gdb(
        &s,
        &trace,
        "break stop\ncontinue\nwhen\nwho-wrote total\nwho-wrote pair . b\nwhen\nwho-wrote $rip\nwho-wrote $rax\nwho-wrote $sp\nwhen\n\
         who-wrote\nwho-wrote nothing\nlast-write total\nwhen\n",
    );
    let places: Vec<&str> = (out.lines())
        .filter(|l| l.contains(" instructions, "))
        .map(|l| l.trim_start_matches("(gdb) "))
        .collect();
    assert_eq!(places.len(), 4, "{out}");
    assert!(places[0] == places[1] && places[1] == places[2], "{out}");
    assert_ne!(places[2], places[3], "{out}");
    expect(
        &out,
        &[
            "writes 8 bytes at",
            "in add at",
            "program.c:2",
            "writes 4 bytes at",
            "in add at",
            "changes $rax from",
            "changes $sp from",
            "of which address?",
            "No symbol \"nothing\"",
            "writes 8 bytes at",
        ],
    );
}

/// The last instruction that changed a register is the one at which a step back shows the change.
#[test]
fn registers_are_changed_where_steps_show_it() {
    let s = Scene::new();
    let program = compile(
        &s,
        "program",
        "void stop(void) {}\n\
         int main() { __asm__ volatile(\"mov $7, %%r14\\nmov $0, %%ecx\\n1: inc %%ecx\\ncmp $3000, %%ecx\\njb 1b\\n\" ::: \"r14\", \"rcx\"); stop(); }\n",
        &[],
    );
    let (_, trace) = s.record(&[&program]);
    let out = gdb(
        &s,
        &trace,
        "break stop\ncontinue\nwho-wrote $r14\nwho-wrote $rcx\n",
    );
    expect(
        &out,
        &[
            "changes $r14 from",
            "to 0x7",
            "in main at",
            "changes $rcx from 0xbb7 to 0xbb8",
        ],
    );
}

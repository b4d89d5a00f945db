//! Names of recordings, places, threads, frames and memory on the command line.

use hindsight_lab::Scene;
use serde_json::Value;
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
struct node { struct node *next; int value; };
struct node nodes[3] = {{&nodes[1], 1}, {&nodes[2], 2}, {0, 3}};
static long counter = 77;
static pthread_barrier_t meet;
__attribute__((noinline)) void spoil(struct node *n, long by) {
    long here = by + 1;
    n->next = (struct node *) here;
    *(volatile int *) 8 = 1;
}
__attribute__((noinline)) void *wait_for_it(void *p) { pthread_barrier_wait(&meet); pause(); return p; }
int main(int argc, char **argv) {
    long outer = 1234;
    if (argc > 1) {
        pthread_t t;
        pthread_barrier_init(&meet, 0, 2);
        pthread_create(&t, 0, wait_for_it, 0);
        pthread_barrier_wait(&meet);
        usleep(20000);
    }
    if (argc > 2 && !fork()) { outer = 99; _exit(3); }
    if (argc > 2) wait(0);
    write(1, "naming\n", 7);
    spoil(&nodes[1], outer);
    return outer;
}
"#;

/// Records the program into a file or into the store. Fails unless the output says what was recorded where.
fn record(s: &Scene, output: Option<&Path>, arguments: &[&str]) {
    let (source, program) = (s.path("naming.c"), s.path("naming"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-g", "-O0", "-w", "-pthread", "-o"])
        .arg(&program);
    assert!(gcc.arg(&source).status().unwrap().success());
    let mut command = s.hindsight(&["record", "--quiet"]);
    if let Some(o) = output {
        command.arg("-o").arg(o);
    }
    s.run(command.arg("--").arg(&program).args(arguments));
}

fn says(s: &Scene, words: &[&str]) -> String {
    let done = s.run(&mut s.hindsight(words));
    assert!(done.status.success(), "{words:?}: {}", done.messages());
    done.text()
}

fn refuses(s: &Scene, words: &[&str]) -> String {
    let done = s.run(&mut s.hindsight(words));
    assert_eq!(done.status.code(), Some(2), "{words:?}: {}", done.text());
    done.messages()
}

#[test]
fn the_latest_recording_is_meant_where_none_is_named() {
    let s = Scene::new();
    let trace: PathBuf = s.path("other.hst");
    record(&s, Some(&trace), &[]);
    record(&s, None, &[]);
    let other = trace.to_str().unwrap();
    let stored = says(&s, &["ls", "--json"]);
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let name = stored[0]["name"].as_str().unwrap().to_string();
    for (words, part) in [
        (&["at"][..], "naming!spoil"),
        (&["at", "crash"], "naming!spoil"),
        (&["backtrace"], "spoil at"),
        (&["backtrace", "begin"], "#0 "),
        (&["mem", "crash", "counter", "8"], "4d 00 00 00"),
        (&["mem", "crash", "counter"], "4d 00 00 00"),
        (&["output"], "\"naming\\n\""),
        (&["data", "--out"], "inherited  \"naming\\n\""),
        (&["audit"], "/naming"),
        (&["maps"], "[stack]"),
        (&["maps", "crash"], "[stack]"),
        (&["maps", "--address", "&counter"], "rw-p"),
        (&["symbol", "counter"], "counter (8 bytes)"),
        (&["symbol", "spoil", "naming!main"], "main ("),
        (&["serve"], "\"ready\""),
        (&["writes", "nodes[1].next"], "d3 04 00 00"),
        (&["writes", "nodes[1].next", "8"], "d3 04 00 00"),
        (&["calls", "spoil"], "does not return"),
    ] {
        let whole = |file: &str| {
            let mut with = words.to_vec();
            with.insert(1, file);
            says(&s, &with)
        };
        for text in [says(&s, words), whole(other), whole(&name)] {
            assert!(text.contains(part), "{words:?}: {text}");
        }
    }
    let way = says(&s, &["breakpath", "10%"]);
    assert!(way.contains(" to position "), "{way}");
    // An argument that is a file is no place.
    assert!(says(&s, &["backtrace", other]).contains("spoil at"));
    let missing = refuses(&s, &["at", "missing.hst"]);
    assert!(missing.contains("missing.hst: no such file"), "{missing}");
    let no_place = refuses(&s, &["at", "nowhere"]);
    assert!(no_place.contains("nowhere is no place"), "{no_place}");
    let empty = Scene::new();
    assert!(refuses(&empty, &["at", "crash"]).contains("the store is empty"));
}

#[test]
fn memory_has_the_names_that_the_program_gives_it() {
    let s = Scene::new();
    record(&s, None, &[]);
    let bytes = |expression: &str, frame: &str| {
        let words = ["mem", "--json", "--frame", frame, "crash", expression];
        let json: Value = serde_json::from_str(&says(&s, &words)).unwrap();
        let bytes = json["bytes"].as_array().unwrap().clone();
        let number = |a: u64, b: &Value| Some(a << 8 | b.as_u64()?);
        let value = bytes
            .iter()
            .rev()
            .try_fold(0, |a, b| number(a, b.as_u64().map(|_| b)?));
        (bytes.len(), value)
    };
    for (expression, frame, wanted) in [
        ("counter", "0", (8, Some(77))),
        ("&counter", "0", (8, Some(77))),
        ("nodes[0].value", "0", (4, Some(1))),
        ("nodes[2].value", "0", (4, Some(3))),
        ("(*nodes[0].next).value", "0", (4, Some(2))),
        ("nodes->value", "0", (4, Some(1))),
        ("*(nodes + 2)->value", "0", (0, None)),
        ("n->value", "0", (4, Some(2))),
        ("n->next", "0", (8, Some(1235))),
        ("(n + 1)->value", "0", (4, Some(3))),
        ("by", "0", (8, Some(1234))),
        ("here", "0", (8, Some(1235))),
        ("$rbp - 8", "0", (8, Some(1235))),
        ("outer", "1", (8, Some(1234))),
    ] {
        if wanted.0 == 0 {
            // The pointer leads nowhere.
            refuses(&s, &["mem", "crash", "*(nodes + 2)->value->x"]);
            continue;
        }
        assert_eq!(bytes(expression, frame), wanted, "{expression} in {frame}");
    }
    let size: Value =
        serde_json::from_str(&says(&s, &["mem", "--json", "crash", "nodes"])).unwrap();
    assert_eq!(size["bytes"].as_array().unwrap().len(), 48);
    for (words, part) in [
        (
            &["mem", "crash", "outer"][..],
            "no variable, function or symbol outer",
        ),
        (&["mem", "crash", "nodes[0].nothing"], "no field nothing"),
        (&["mem", "crash", "n->"], "field is missing"),
        (&["mem", "crash", "(n"], ") is missing"),
        (&["mem", "crash", "counter", "0"], "at least one byte"),
        (&["mem", "--frame", "99", "crash", "counter"], "no frame 99"),
        (&["at", "--thread", "99", "crash"], "no thread 99"),
        (&["at", "--image", "99", "crash"], "no program image 99"),
    ] {
        let text = refuses(&s, words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
    // Deep nesting must not overflow the stack.
    let deep = format!("{}1", "(".repeat(100_000));
    assert!(refuses(&s, &["mem", "crash", &deep]).contains("too deeply"));
}

#[test]
fn frames_threads_and_program_images_can_be_chosen() {
    let s = Scene::new();
    record(&s, None, &["threads", "fork"]);
    let outer = says(&s, &["at", "crash", "--frame", "1"]);
    assert!(outer.contains("long int outer = 1234"), "{outer}");
    assert!(says(&s, &["backtrace", "--frame", "1"]).starts_with("#1 "));
    let info: Value =
        serde_json::from_str(&says(&s, &["events", "--json", "--kind", "thread"])).unwrap();
    let threads: Vec<u64> = (info.as_array().unwrap().iter())
        .filter(|e| e["kind"] == "thread-begin")
        .map(|e| e["thread"].as_u64().unwrap())
        .collect();
    let [_, second, child] = threads[..] else {
        panic!("{info}");
    };
    let waiting = says(&s, &["backtrace", "crash", "--thread", &second.to_string()]);
    assert!(waiting.contains("wait_for_it at"), "{waiting}");
    // Which name the function has depends on installed debug files of the C library.
    let exits = |text: &str| text.contains("_exit") || text.contains("_Exit");
    // The child is the second image. Places count within it.
    let there = says(&s, &["at", "end", "--image", "2"]);
    assert!(exits(&there), "{there}");
    let by_thread = says(&s, &["at", "end", "--thread", &child.to_string()]);
    assert!(exits(&by_thread), "{by_thread}");
    let held = says(&s, &["mem", "end", "outer", "--image", "2", "--frame", "1"]);
    assert!(held.contains("63 00 00 00"), "{held}");
    // It did not exist at the beginning.
    let early = refuses(&s, &["at", "0:1", "--image", "2"]);
    assert!(early.contains("has not begun"), "{early}");
}

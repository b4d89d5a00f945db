//! A trace that grows, and the index that was made before it did.

use crate::index::answer;
use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Depth, Filter, Options, Timeline};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bytes that are read cannot be compressed, so the stream has several chunks.
const FED: &str = r#"#include <unistd.h>
#include <fcntl.h>
static unsigned char data[1 << 16]; volatile long sum;
__attribute__((noinline)) void add(int n) { for (int i = 0; i < n; i++) sum += data[i]; }
int main(void) {
    int fd = open("/dev/urandom", O_RDONLY);
    for (int i = 0; i < 80; i++) { if (read(fd, data, sizeof data) != sizeof data) return 1; add(1000 + i); }
    return 0;
}"#;

/// Compiles and records it; the trace, and the address of `add`.
fn record(s: &Scene) -> (PathBuf, u64) {
    let (source, program) = (s.path("fed.c"), s.path("fed"));
    fs::write(&source, FED).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-no-pie"])
        .arg(&source)
        .arg("-o")
        .arg(&program);
    assert!(gcc.status().unwrap().success());
    let symbols = Command::new("nm").arg(&program).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let add = symbols.lines().find_map(|l| l.strip_suffix(" T add"));
    let trace = s.path("trace.hst");
    let mut c = s.hindsight(&["record", "--quiet", "--regime", "quiet"]);
    c.args(["--restate-every", "60000", "-o"]).arg(&trace);
    let done = s.run(c.arg("--").arg(&program));
    assert!(done.status.success(), "{}", done.messages());
    (trace, u64::from_str_radix(add.unwrap(), 16).unwrap())
}

fn open(trace: &Path, unsaved: bool) -> Timeline {
    let options = Options {
        interval: 3000,
        unsaved,
        ..Options::default()
    };
    Timeline::open(trace, options).unwrap()
}

/// Answers that need all of the index, and the calls of a function.
fn answers(t: &Timeline, function: u64) -> String {
    let calls = t.calls(function, &Filter::default(), &Cancel::new());
    format!("{}{:?}", answer(t), calls.unwrap())
}

#[test]
fn an_index_goes_on_to_serve_what_the_trace_had() {
    let s = Scene::new();
    let (trace, add) = record(&s);
    let whole = fs::read(&trace).unwrap();
    let copy = s.path("copy.hst");
    let (mut had, mut calls) = (0, 0);
    for part in [4, 6, 8, 10] {
        let there = &whole[..whole.len() * part / 10];
        fs::write(&trace, there).unwrap();
        fs::write(&copy, there).unwrap();
        let t = open(&trace, false);
        let before = t.index_status();
        assert_eq!(before.problem, None);
        // All but the last part, which was not yet whole.
        assert_eq!(before.present, had, "{part}");
        let wanted = answers(&open(&copy, true), add);
        assert_eq!(answers(&t, add), wanted, "{part}");
        let now = t
            .build_index(Depth::Full, &|_, _| (), &Cancel::new())
            .unwrap();
        assert!(now.present == now.parts && now.parts > had + 1, "{now:?}");
        assert_eq!(answers(&open(&trace, false), add), wanted, "{part}");
        had = now.parts - 1;
        let list = t.calls(add, &Filter::default(), &Cancel::new()).unwrap();
        assert!(list.len() > calls, "{}", list.len());
        calls = list.len();
    }
    assert_eq!(calls, 80);
    // Where more is known now, an older state of the same trace is still answered as it is.
    let there = &whole[..whole.len() * 6 / 10];
    fs::write(&trace, there).unwrap();
    fs::write(&copy, there).unwrap();
    let wanted = answers(&open(&copy, true), add);
    assert_eq!(answers(&open(&trace, false), add), wanted);
}

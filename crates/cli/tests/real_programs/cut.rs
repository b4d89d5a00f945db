//! `hindsight cut`: a part of a recording says the same as the whole.

use hindsight_lab::{Done, Scene, share};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Records a program with many key frames. `regime`: the option that chooses it.
fn record(s: &Scene, regime: &str, argv: &[impl AsRef<OsStr>]) -> PathBuf {
    let trace = s.path("whole.hst");
    let mut c = s.hindsight(&["record", regime, "--keyframe-interval", "3000000"]);
    if regime == "--regime=quiet" {
        c.args(["--restate-every", "3000000"]);
    }
    let _ = fs::remove_file(&trace);
    let done = s.run(c.arg("-o").arg(&trace).arg("--").args(argv));
    assert!(done.status.success(), "{}", done.messages());
    trace
}

fn cut(s: &Scene, trace: &Path, range: &str) -> (Done, PathBuf) {
    let to = s.path("part.hst");
    let _ = fs::remove_file(&to);
    let mut c = s.hindsight(&["cut"]);
    let done = s.run(c.arg(trace).arg(range).arg("-o").arg(&to));
    (done, to)
}

fn at(s: &Scene, trace: &Path, place: &str) -> Value {
    let done = s.run(s.hindsight(&["at", "--json"]).arg(trace).arg(place));
    assert!(done.status.success(), "{place}: {}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Cuts a part out. It must verify and say the same at these places of the whole. Returns both sizes.
fn says_the_same(s: &Scene, trace: &Path, range: &str, places: &[&str]) -> [u64; 2] {
    let (done, part) = cut(s, trace, range);
    assert!(done.status.success(), "{range}: {}", done.messages());
    s.must_verify(&part);
    for place in places {
        let whole = at(s, trace, place);
        let position = whole["position"].as_str().unwrap();
        let other = at(s, &part, position);
        assert!(whole["position"].is_string() && !whole["registers"].is_null());
        for what in ["position", "thread", "count", "registers", "stack"] {
            assert_eq!(whole[what], other[what], "{range} at {position}: {what}");
        }
        let stack = whole["registers"]["rsp"].as_str().unwrap();
        let known = |trace: &Path| {
            let mut c = s.hindsight(&["mem", "--json"]);
            let told = s.run(c.arg(trace).args([position, stack, "256"]));
            serde_json::from_slice::<Value>(&told.stdout).unwrap()["bytes"].clone()
        };
        assert_eq!(known(trace), known(&part), "{range} at {position}");
    }
    // Parts have their own beginning and end.
    let middle = s.run(s.hindsight(&["at", "--json"]).arg(&part).arg("50%"));
    let middle: Value = serde_json::from_slice(&middle.stdout).unwrap();
    let [begin, end] = ["begin", "end"].map(|p| at(s, &part, p));
    assert_ne!(middle["position"], begin["position"], "{range}");
    assert_ne!(middle["position"], end["position"], "{range}");
    // It stands alone: no file of the store is needed.
    let told = s.info(&part);
    assert!(told["cut"]["from"].is_string(), "{told}");
    [trace, &part].map(|f| fs::metadata(f).unwrap().len())
}

const WORK: &str =
    "x = {}\nfor i in range(150000): x[i % 997] = x.get(i % 991, 0) + i\nprint(sum(x.values()))";

#[test]
fn a_part_says_what_the_whole_says() {
    let s = Scene::new();
    for regime in share(["--regime=quiet", "--regime=checked"], 2) {
        let trace = record(&s, regime, &["python3", "-c", WORK]);
        let [whole, part] = says_the_same(&s, &trace, "40%..60%", &["41%", "50%", "59.9%"]);
        // A checked thread with much memory has few key frames.
        assert!(
            part < whole || regime != "--regime=quiet",
            "{part} of {whole} bytes"
        );
        says_the_same(&s, &trace, "begin..10%", &["begin", "3%", "9%"]);
        says_the_same(&s, &trace, "90%..end", &["91%", "end"]);
        // A part of a part.
        let (_, part) = cut(&s, &trace, "30%..70%");
        let inner = s.path("inner.hst");
        fs::rename(&part, &inner).unwrap();
        let middle = at(&s, &trace, "50%")["position"]
            .as_str()
            .unwrap()
            .to_owned();
        says_the_same(&s, &inner, &format!("{middle}..{middle}"), &[&middle]);
    }
}

#[test]
fn parts_of_threads_and_processes_say_the_same() {
    let s = Scene::new();
    let text = s.path("text");
    fs::write(
        &text,
        "some text that repeats itself, again and again\n".repeat(40_000),
    )
    .unwrap();
    let text = text.to_str().unwrap();
    let trace = record(
        &s,
        "--regime=checked",
        &["xz", "-T2", "-1", "--block-size=200000", "-k", "-c", text],
    );
    says_the_same(&s, &trace, "40%..60%", &["41%", "50%", "59%"]);
    let line = "for i in 1 2 3; do ls / | sort >/dev/null; done; seq 1 30000 | sort -r | tail -1";
    let trace = record(&s, "--regime=quiet", &["bash", "-c", line]);
    says_the_same(&s, &trace, "50%..70%", &["51%", "60%", "69%"]);
    // What lies outside is not there, and is not taken for something else.
    let (_, part) = cut(&s, &trace, "50%..70%");
    let before = at(&s, &trace, "5%");
    let asked = before["position"].as_str().unwrap();
    let done = s.run(s.hindsight(&["at"]).arg(&part).arg(asked));
    assert_eq!(done.status.code(), Some(2), "{}", done.text());
    assert!(
        done.messages().contains("has no position"),
        "{}",
        done.messages()
    );
}

#[test]
fn what_cannot_be_cut_leaves_no_file() {
    let s = Scene::new();
    let trace = record(&s, "--regime=quiet", &["/bin/true"]);
    for (range, says) in [
        ("60%..40%", "ends before it begins"),
        ("40%", "expected two places"),
        ("40%..nowhere", "nowhere is no place"),
    ] {
        let (done, part) = cut(&s, &trace, range);
        assert_ne!(done.status.code(), Some(0), "{range}");
        assert!(
            done.messages().contains(says),
            "{range}: {}",
            done.messages()
        );
        assert!(!part.exists(), "{range}");
    }
    // Nothing is overwritten.
    let precious = s.path("precious");
    fs::write(&precious, "precious").unwrap();
    let mut c = s.hindsight(&["cut"]);
    let done = s.run(c.arg(&trace).arg("begin..end").arg("-o").arg(&precious));
    assert_ne!(done.status.code(), Some(0));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    // The whole of a recording that is cut short stays readable.
    let bytes = fs::read(&trace).unwrap();
    let short = s.path("short.hst");
    fs::write(&short, &bytes[..bytes.len() - 100]).unwrap();
    let (done, part) = cut(&s, &short, "begin..end");
    assert!(done.status.success(), "{}", done.messages());
    s.must_verify(&part);
}

/// Threads that sum the same numbers. What the second one reads is copied from what the first one read.
const SUMS: &str = r#"
#include <pthread.h>
#include <stdio.h>
enum { WORDS = 256 << 10 };
static unsigned long words[WORDS];
static void *sum(void *p) {
    unsigned long sum = 0;
    for (int i = 0; i < WORDS; i++) sum += words[i];
    *(unsigned long *) p = sum;
    return 0;
}
int main() {
    pthread_t t;
    unsigned long sums[4], x = 1;
    for (int i = 0; i < WORDS; i++) words[i] = x = x * 6364136223846793005ul + 1442695040888963407ul;
    for (int i = 0; i < 4; i++) {
        pthread_create(&t, 0, sum, &sums[i]);
        pthread_join(t, 0);
    }
    printf("%d\n", sums[0] == sums[3] && sums[1] == sums[2]);
    return 0;
}
"#;

#[test]
fn what_threads_read_in_common_is_there_once_and_in_each_part() {
    let s = Scene::new();
    fs::write(s.path("sums.c"), SUMS).unwrap();
    let program = s.path("sums");
    let mut gcc = s.command("gcc");
    gcc.args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(s.path("sums.c"));
    assert!(s.run(&mut gcc).status.success());
    let trace = s.path("whole.hst");
    let done = s.run(&mut s.recording(&trace, &[&program]));
    assert_eq!(done.text(), "1\n", "{}", done.messages());
    s.must_verify(&trace);
    // The numbers are 2 MiB of random bits. Each thread read all of them.
    let bytes = s.info(&trace)["stream_bytes"].as_u64().unwrap();
    assert!((2 << 20..4 << 20).contains(&bytes), "{bytes}");
    // A part without the first thread has the numbers all the same.
    let [start, end] =
        ["60%", "90%"].map(|p| at(&s, &trace, p)["position"].as_str().unwrap().to_owned());
    says_the_same(&s, &trace, &format!("{start}..{end}"), &["70%", "80%"]);
    // So does one that is cut off: what is copied comes first.
    let whole = fs::read(&trace).unwrap();
    let part = s.path("part.hst");
    fs::write(&part, &whole[..whole.len() * 9 / 10]).unwrap();
    s.must_verify(&part);
}

//! `hindsight output`, compared with what programs really printed.

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn says(s: &Scene, trace: &Path, words: &[&str]) -> Done {
    s.run(s.hindsight(&["output"]).arg(trace).args(words))
}

/// What the program wrote to its standard output and to its standard error.
fn must_be_the_same(s: &Scene, trace: &Path, done: &Done) {
    for (fd, wrote) in [("1", &done.stdout), ("2", &done.stderr)] {
        let told = says(s, trace, &["--raw", "--fd", fd]);
        assert_eq!(told.messages(), "", "descriptor {fd}");
        assert_eq!(told.status.code(), Some(0));
        assert!(
            told.stdout == *wrote,
            "descriptor {fd}: it wrote {}, and this is told: {}",
            String::from_utf8_lossy(wrote),
            told.text()
        );
    }
}

fn list(s: &Scene, trace: &Path, words: &[&str]) -> Vec<Value> {
    let done = says(s, trace, &[&["--json"], words].concat());
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn what_real_programs_print_is_told() {
    let s = Scene::new();
    fs::write(
        s.path("Makefile"),
        "all: a b\na:\n\t@echo making a\nb: a\n\techo b | tr b c\n\t@echo wrong >&2\n",
    )
    .unwrap();
    fs::write(s.path("data"), "some text\n".repeat(2000)).unwrap();
    let programs: &[&[&str]] = &[
        &[
            "sh",
            "-c",
            "ls / | sort | head -3; (echo out; echo err >&2)",
        ],
        &["sh", "-c", "exec 3>&1 1>/dev/null; echo no; echo yes >&3"],
        &[
            "bash",
            "-c",
            "for i in 1 2; do echo $i; done | cat; cat <<< here; cat <(echo a)",
        ],
        &[
            "python3",
            "-c",
            "import os\nprint('x' * 200000, flush=True)\nos.system('echo sub')",
        ],
        &[
            "sqlite3",
            ":memory:",
            "create table t(a); insert into t values(1),(2); select * from t",
        ],
        &[
            "perl",
            "-e",
            "$| = 1; print \"a\\n\"; system('echo b'); print STDERR \"c\\n\"",
        ],
        &["make", "-j2"],
        &["tar", "cvf", "-", "data", "Makefile"],
        &["git", "--version"],
        &["awk", "BEGIN { for (i = 0; i < 3000; i++) print i }"],
        &[
            "sh",
            "-c",
            "gzip < data | gunzip | tail -2; seq 3 | xargs -n1 echo",
        ],
        &["sort", "data", "Makefile"],
        &["find", ".", "-name", "*ake*"],
    ];
    let there = |p: &&&[&str]| Path::new("/usr/bin").join(p[0]).exists();
    let there: Vec<_> = programs.iter().filter(there).collect();
    assert!(there.len() >= 10, "too few programs: {there:?}");
    for argv in there {
        println!("{argv:?}");
        let (done, trace) = s.record(argv);
        assert!(!done.stdout.is_empty(), "{argv:?}: {}", done.messages());
        must_be_the_same(&s, &trace, &done);
    }
}

fn record(s: &Scene, argument: Option<&str>) -> (Done, PathBuf) {
    let program = s.compile("outputs.c", &[]);
    let mut argv = vec![program.as_os_str()];
    argv.extend(argument.map(OsStr::new));
    let (done, trace) = s.record(&argv);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    (done, trace)
}

#[test]
fn descriptors_are_followed_through_copies_children_and_programs() {
    let s = Scene::new();
    let (done, trace) = record(&s, None);
    let text = done.text();
    for wanted in ["vector", "by a copy", "through a pipe", "another program"] {
        assert!(text.contains(wanted), "{text}");
    }
    must_be_the_same(&s, &trace, &done);
    // Both, in their order.
    let all = says(&s, &trace, &[]).text();
    let begins = [
        " 1  \"vector\\n\"",
        " 1  \"\\\"\\\\\\u001b\\xff\\n\"",
        " 1  \"by a copy\\n\"",
    ];
    for (line, wanted) in all.lines().zip(begins) {
        assert!(line.ends_with(wanted), "{line}: {wanted}");
    }
    assert_eq!(all.matches(" 2  \"an error\\n\"").count(), 1, "{all}");
    // Files, by the path and by its end.
    let path = s.path("outputs.txt");
    for fd in [path.to_str().unwrap(), "outputs.txt"] {
        assert_eq!(
            says(&s, &trace, &["--fd", fd, "--raw"]).text(),
            "into a file\n"
        );
    }
    assert_eq!(says(&s, &trace, &["--fd", "puts.txt"]).text(), "");
    // Only what the pipe took.
    let parts = list(&s, &trace, &["--fd", "60"]);
    assert!(parts.is_empty(), "a copy has the number of its original");
    let lengths = |fd: i64| -> Vec<u64> {
        let of = list(&s, &trace, &["--fd", &fd.to_string()]);
        let of = of.iter().filter(|c| c["fd"] == 60);
        of.map(|c| c["length"].as_u64().unwrap()).collect()
    };
    let found: Vec<u64> = (3..10).flat_map(lengths).collect();
    assert_eq!(found, [4096]);
}

#[test]
fn calls_are_those_of_a_thread_a_process_and_a_part_of_the_run() {
    let s = Scene::new();
    let (_, trace) = record(&s, None);
    let all = list(&s, &trace, &[]);
    let texts = |list: &[Value]| -> Vec<String> {
        let text = |c: &Value| c["text"].as_str().unwrap_or_default().to_string();
        list.iter().map(text).collect()
    };
    let of = |begin: &str| -> Vec<&Value> {
        let has = |c: &&Value| c["text"].as_str().is_some_and(|t| t.starts_with(begin));
        all.iter().filter(has).collect()
    };
    let (a, b) = (of("thread a"), of("thread b"));
    assert_eq!((a.len(), b.len()), (50, 50));
    assert_ne!(a[0]["thread"], b[0]["thread"]);
    assert_eq!(a[0]["pid"], b[0]["pid"]);
    let thread = a[0]["thread"].to_string();
    let own = list(&s, &trace, &["--thread", &thread]);
    assert_eq!(own.iter().collect::<Vec<_>>(), a);
    let first = list(&s, &trace, &["--image", "1"]);
    assert!(!texts(&first).contains(&"an error\n".into()));
    assert!(texts(&first).contains(&"vector\n".into()));
    // The bytes that are no text stand as numbers.
    let bytes: Vec<&Value> = all.iter().filter(|c| c["text"].is_null()).collect();
    assert_eq!(bytes.len(), 1);
    assert_eq!(bytes[0]["bytes"], serde_json::json!([34, 92, 27, 255, 10]));
    // From one call to another.
    let position = |i: usize| all[i]["position"].as_str().unwrap();
    let some = list(&s, &trace, &["--from", position(3), "--until", position(7)]);
    assert_eq!(some, all[3..7]);
    assert!(list(&s, &trace, &["--until", "begin"]).is_empty());
}

#[test]
fn what_was_not_in_memory_is_no_text() {
    let s = Scene::new();
    let (done, trace) = record(&s, Some("sendfile"));
    assert!(done.text().ends_with("into a \n"));
    let text = says(&s, &trace, &[]).text();
    let shown = "7 bytes that were not in the program's memory";
    assert!(text.lines().any(|l| l.ends_with(shown)), "{text}");
    let raw = says(&s, &trace, &["--raw", "--fd", "1"]);
    assert_eq!(raw.status.code(), Some(1));
    let before = done.stdout.len() - 8;
    let said = raw.messages();
    let wanted =
        format!("7 bytes are not known, and left out; the first of them behind {before} bytes");
    assert!(said.contains(&wanted), "{said}");
    assert_eq!(raw.text(), done.text().replace("into a \n", "\n"));
    let all = list(&s, &trace, &["--fd", "1"]);
    let lost: Vec<&Value> = all.iter().filter(|c| c["in_memory"] == false).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (&lost[0]["length"], &lost[0]["call"]),
        (&7.into(), &"sendfile".into())
    );
    assert!(lost[0]["text"].is_null() && lost[0]["bytes"].is_null());
}

#[test]
fn other_openings_of_standard_output_count() {
    let s = Scene::new();
    let trace = s.path("trace.hst");
    let script = "echo a; echo b > /dev/stdout; echo c > /dev/fd/1; echo d > /proc/self/fd/1";
    // Into a pipe: a file would be cut by each opening.
    let mut recording = s.recording(&trace, &["sh", "-c", script]);
    let done = recording.output().unwrap();
    assert_eq!(done.stdout, b"a\nb\nc\nd\n");
    assert_eq!(says(&s, &trace, &["--raw"]).stdout, done.stdout);
    let by_path = says(&s, &trace, &["--raw", "--fd", "/dev/stdout"]);
    assert_eq!(by_path.stdout, b"b\n");
}

const RACE: &str = r#"#include <pthread.h>
#include <string.h>
#include <unistd.h>
static volatile int go, stop;
static char shared[8] = "0000000\n";
static void *change(void *p) {
    for (unsigned i = 0; !stop; go = 1, i++) memset(shared, 'a' + i % 26, 7);
    return p;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, change, 0);
    while (!go);
    for (int i = 0; i < 200; i++) {
        usleep(20);
        write(1, shared, 8);
    }
    stop = 1;
    return pthread_join(t, 0);
}
"#;

#[test]
fn what_another_thread_changes_meanwhile_is_never_told_wrong() {
    let s = Scene::new();
    fs::write(s.path("raced.c"), RACE).unwrap();
    let gcc = ["-O0", "-w", "-pthread", "-o", "raced", "raced.c"];
    assert!(s.run(s.command("gcc").args(gcc)).status.success());
    let (done, trace) = s.record(&[s.path("raced")]);
    let all = list(&s, &trace, &[]);
    assert_eq!(all.len(), 200);
    let (mut known, mut unknown) = (0, 0);
    for (c, wrote) in all.iter().zip(done.stdout.chunks(8)) {
        let text = c["text"].as_str().map(|t| t.bytes().map(Some).collect());
        let bytes = c["bytes"].as_array().map(|b| {
            let one = |b: &Value| b.as_u64().map(|b| b as u8);
            b.iter().map(one).collect::<Vec<_>>()
        });
        let told: Vec<Option<u8>> = text.or(bytes).unwrap();
        assert_eq!(told.len(), 8);
        for (t, w) in told.iter().zip(wrote) {
            match t {
                Some(t) => known += u32::from(t == w),
                None => unknown += 1,
            }
            assert!(t.is_none_or(|t| t == *w), "{c}: {wrote:?}");
        }
    }
    println!("{known} bytes are known, {unknown} are not");
    assert!(unknown > 0);
}

//! Recordings are played on other machines: by builds for these, under emulators.
//!
//! Whatever a recording tells there, it tells here in the same words.

mod gdb;
mod machine;
mod sql;

use hindsight_lab::{Scene, share, words};
use machine::{Machine, machines};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Shell commands of several kinds. `$1` is a folder for files.
const PROGRAMS: [&str; 8] = [
    "true",
    "exec sort -rn /usr/include/asm-generic/unistd.h",
    "exec gzip -c /bin/true",
    "exec awk 'BEGIN { for (i = 1; i < 3000; i++) s += sqrt(i) / 3; print s }'",
    "exec sqlite3 :memory: 'create table t(a, b); insert into t values(1, 2.5), (2, 1e300); select sum(a * b), avg(b) from t'",
    "exec /usr/bin/python3 -c 'import json; print(json.dumps({str(i): i / 7 for i in range(99)}))'",
    "echo 'int main(void) { return 3; }' > $1/a.c; gcc -O1 -o $1/a $1/a.c; $1/a; ls $1 | tr a-z A-Z",
    "exec node -e 'let s = 0; for (let i = 0; i < 20000; i++) s += i % 7; console.log(s)'",
];

fn must(done: hindsight_lab::Done, what: &str) -> String {
    let code = done.status.code();
    assert_eq!(code, Some(0), "{what}: {}{}", done.text(), done.messages());
    done.text()
}

fn record(scene: &Scene, argv: &[OsString]) -> std::path::PathBuf {
    let (done, trace) = scene.record(argv);
    assert!(done.status.code().is_some(), "{}", done.messages());
    trace
}

#[test]
fn programs_verify() {
    machines().into_iter().for_each(programs_verify_on);
}

fn programs_verify_on(there: &Machine) {
    for line in share(PROGRAMS, 3) {
        let scene = Scene::new();
        let dir = scene.path("made");
        std::fs::create_dir(&dir).unwrap();
        let trace = record(
            &scene,
            &[
                "sh".into(),
                "-c".into(),
                line.into(),
                "sh".into(),
                dir.into(),
            ],
        );
        let done = scene.run(there.hindsight(&scene, &["replay", "--verify"]).arg(&trace));
        let text = must(done, line);
        assert!(text.contains("verified: "), "{line}: {text}");
    }
}

#[test]
fn threads_verify() {
    machines().into_iter().for_each(threads_verify_on);
}

fn threads_verify_on(there: &Machine) {
    let scene = Scene::new();
    let program = scene.compile("joint.c", &["-O1", "-pthread"]);
    let seen = scene.path("seen");
    let trace = record(
        &scene,
        &[program.into(), "threads".into(), seen.into_os_string()],
    );
    must(
        scene.run(there.hindsight(&scene, &["replay", "--verify"]).arg(&trace)),
        "threads",
    );
}

/// What a command prints there and here. No answer rests on what the other one has made.
fn both(scene: &Scene, there: &Machine, trace: &Path, question: &[&str]) -> [String; 2] {
    let ask = |mut command: std::process::Command| {
        let _ = std::fs::remove_file(trace.with_extension("hsx"));
        command.arg(trace).args(&question[1..]);
        must(scene.run(&mut command), &format!("{question:?}"))
    };
    [
        ask(there.hindsight(scene, &question[..1])),
        ask(scene.hindsight(&question[..1])),
    ]
}

#[test]
fn answers_are_the_same_as_here() {
    machines()
        .into_iter()
        .for_each(answers_are_the_same_as_here_on);
}

fn answers_are_the_same_as_here_on(there: &Machine) {
    let scene = Scene::new();
    let program = scene.compile("travel.c", &["-g", "-O1"]);
    let trace = record(&scene, &words(&program, &["3"]));
    let same = trace.to_str().unwrap().to_owned();
    let questions: [&[&str]; 17] = [
        &["at", "50%"],
        &["at", "end", "--json"],
        &["backtrace", "77%"],
        &["mem", "end", "$rsp", "256"],
        &["maps", "30%"],
        &["symbol", "main"],
        &["writes", "$rsp", "64"],
        &["calls", "main"],
        &["events"],
        &["events", "--json"],
        &["output"],
        &["data"],
        &["info", "--json"],
        &["states"],
        &["waits", "end"],
        &["origin", "end", "$rsp", "8"],
        &["diff", &same, "--exact"],
    ];
    for question in questions {
        let [a, b] = both(&scene, there, &trace, question);
        // Flags that the manuals leave undefined may differ.
        let known = |text: &str| {
            let lines = text.lines().filter(|l| !l.starts_with(" flags "));
            lines.map(|l| format!("{l}\n")).collect::<String>()
        };
        assert_eq!(known(&a), known(&b), "{question:?}");
    }
}

/// Each reads the index that the other has made.
#[test]
fn an_index_is_good_for_both() {
    machines()
        .into_iter()
        .for_each(an_index_is_good_for_both_on);
}

fn an_index_is_good_for_both_on(there: &Machine) {
    let scene = Scene::new();
    let program = scene.compile("travel.c", &["-g", "-O1"]);
    let trace = record(&scene, &words(&program, &["3"]));
    let index = trace.with_extension("hsx");
    let question = |mut command: std::process::Command| {
        command.arg(&trace).args(["$rsp", "64"]);
        must(scene.run(&mut command), "writes")
    };
    let here = || question(scene.hindsight(&["writes"]));
    let far = || question(there.hindsight(&scene, &["writes"]));
    let fresh = here();
    for made_there in [true, false] {
        let _ = std::fs::remove_file(&index);
        let mut make = match made_there {
            true => there.hindsight(&scene, &["index"]),
            false => scene.hindsight(&["index"]),
        };
        must(scene.run(make.args(["--full"]).arg(&trace)), "index");
        let made = std::fs::read(&index).unwrap();
        assert_eq!([far(), here()], [fresh.clone(), fresh.clone()]);
        assert!(
            std::fs::read(&index).unwrap() == made,
            "an index was made anew (made there: {made_there})"
        );
    }
}

#[test]
fn damaged_recordings_end_in_errors() {
    machines()
        .into_iter()
        .for_each(damaged_recordings_end_in_errors_on);
}

fn damaged_recordings_end_in_errors_on(there: &Machine) {
    let scene = Scene::new();
    let program = scene.compile("hello.c", &[]);
    let trace = record(&scene, &[program.into_os_string()]);
    let whole = std::fs::read(&trace).unwrap();
    let damaged = scene.path("damaged.hst");
    for (n, at) in (0..8).map(|n| (n, whole.len() * (2 * n + 1) / 16)) {
        let mut bytes = whole.clone();
        match n % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x55,
        }
        std::fs::write(&damaged, bytes).unwrap();
        for words in [&["replay", "--verify"][..], &["at"], &["info"]] {
            let done = scene.run(there.hindsight(&scene, words).arg(&damaged));
            let status = done.status.code();
            assert!(
                matches!(status, Some(0..=3)),
                "{words:?}: {status:?}: {}",
                done.messages()
            );
            assert!(!done.messages().contains("panicked"), "{}", done.messages());
        }
    }
}

/// What needs a live program says so, whatever the rest of the line is.
#[test]
fn nothing_is_recorded_there() {
    machines()
        .into_iter()
        .for_each(nothing_is_recorded_there_on);
}

fn nothing_is_recorded_there_on(there: &Machine) {
    let scene = Scene::new();
    let all: [(&[&str], i32); 10] = [
        (&["record", "ls"], 125),
        (&["record", "--help"], 125),
        (&["attach", "1"], 125),
        (&["detach", "1"], 2),
        (&["mark", "1", "name"], 2),
        (&["dump", "1"], 2),
        (&["cache"], 2),
        (&["rerun", "x.hst", "--", "ls", "-l"], 2),
        (&["resume", "x.hst", "end"], 2),
        (&["breakpath", "x.hst", "end", "--run"], 2),
    ];
    for (line, status) in all {
        let done = scene.run(&mut there.hindsight(&scene, line));
        assert_eq!(done.status.code(), Some(status), "{line:?}");
        let said = done.messages();
        assert!(
            said.starts_with("hindsight: this machine is not x86-64"),
            "{line:?}: {said}"
        );
    }
    let done = scene.run(
        there
            .hindsight(&scene, &["info", "--processor", "native"])
            .arg(OsStr::new("x.hst")),
    );
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("cannot run translated code"),
        "{}",
        done.messages()
    );
}

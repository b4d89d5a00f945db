//! Recordings are played as on a processor that lacks features of the recorded one: the interpreter executes what needs them.

use hindsight_lab::{Scene, share, words};
use std::ffi::OsStr;
use std::path::Path;

/// Features, as `--without` takes them. AVX takes all along that has its registers.
const SETS: [&str; 3] = [
    "avx512f",
    "avx",
    "avx2,bmi1,bmi2,lzcnt,popcnt,movbe,sse4.1,ssse3",
];

fn verify(scene: &Scene, trace: &Path, words: &[&str]) -> String {
    let mut command = scene.hindsight(&["replay", "--verify"]);
    let done = scene.run(command.args(words).arg(trace));
    assert_eq!(
        done.status.code(),
        Some(0),
        "{words:?}: {}{}",
        done.text(),
        done.messages()
    );
    done.text()
}

fn wide(scene: &Scene) -> std::path::PathBuf {
    let program = scene.compile("wide.c", &["-g", "-O1"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    trace
}

#[test]
fn programs_verify() {
    let scene = Scene::new();
    let python = "import json; print(json.dumps({str(i): i / 7 for i in range(999)}))";
    let all: [&[&str]; 3] = [
        &["sort", "-rn", "/usr/include/asm-generic/unistd.h"],
        &["gzip", "-c", "/bin/true"],
        &["/usr/bin/python3", "-c", python],
    ];
    let recorded = all.map(|argv| {
        let argv: Vec<&OsStr> = argv.iter().map(OsStr::new).collect();
        let (done, trace) = scene.record(&argv);
        assert!(done.status.success(), "{argv:?}: {}", done.messages());
        trace
    });
    for trace in recorded.into_iter().chain([wide(&scene)]) {
        for set in share(SETS, 3) {
            verify(&scene, &trace, &["--without", set]);
        }
        let both = ["--processor", "both", "--without", "avx"];
        verify(&scene, &trace, &both);
    }
}

/// So the other tests show something.
#[test]
fn the_interpreter_executes_what_is_lacking() {
    let scene = Scene::new();
    let trace = wide(&scene);
    let mut command = scene.hindsight(&["replay", "--verify", "--count", "--without", "avx"]);
    let done = scene.run(command.arg(&trace));
    assert_eq!(done.status.code(), Some(2), "{}", done.text());
    let said = done.messages();
    assert!(
        said.contains("this processor lacks the instruction"),
        "{said}"
    );
}

/// The proof of the order stops at atomic operations, and at writes to what they access.
#[test]
fn threads_verify_and_their_order_is_proved() {
    let scene = Scene::new();
    let program = scene.compile("joint.c", &["-O1", "-pthread"]);
    let seen = scene.path("seen");
    let (_, trace) = scene.record(&[program.as_os_str(), OsStr::new("threads"), seen.as_os_str()]);
    let order = |words: &[&str]| {
        let text = verify(&scene, &trace, &[&["--check-order"], words].concat());
        let line = text.lines().find(|l| l.starts_with("order"));
        line.map(String::from).expect(&text)
    };
    let usual = order(&[]);
    for set in SETS {
        assert_eq!(order(&["--without", set]), usual, "{set}");
    }
}

#[test]
fn questions_have_the_same_answers() {
    let scene = Scene::new();
    let trace = wide(&scene);
    let again = trace.to_str().unwrap();
    let questions: [&[&str]; 10] = [
        &["at", "50%", "--json"],
        &["at", "77%"],
        &["backtrace", "33%"],
        &["mem", "end", "$rsp", "256"],
        &["writes", "$rsp", "64"],
        &["writes", "sum", "8", "--count", "5"],
        &["calls", "round_of"],
        &["states"],
        &["origin", "end", "sum", "8"],
        &["diff", again, "--exact"],
    ];
    for question in share(questions, 4) {
        let ask = |without: &[&str]| {
            // No answer rests on what another one has made.
            let _ = std::fs::remove_file(trace.with_extension("hsx"));
            let mut command = scene.hindsight(&question[..1]);
            let done = scene.run(command.args(without).arg(&trace).args(&question[1..]));
            assert_eq!(
                done.status.code(),
                Some(0),
                "{question:?} {without:?}: {}",
                done.messages()
            );
            done.text()
        };
        let usual = ask(&[]);
        for set in SETS {
            assert_eq!(ask(&["--without", set]), usual, "{question:?} {set}");
        }
    }
}

/// gdb's server does without them, too.
#[test]
fn gdb_steps_over_what_is_lacking() {
    let scene = Scene::new();
    let trace = wide(&scene);
    let session = |without: &[&str]| {
        let mut command = scene.hindsight(&["replay", "--at", "end"]);
        command.args(without).arg(&trace).arg("--");
        command.args(["-batch", "-nx", "-ex", "break avx"]);
        for step in [
            "reverse-continue",
            "next",
            "next",
            "next",
            "p out",
            "stepi",
            "info line",
            "watch -l sum",
        ] {
            command.args(["-ex", step]);
        }
        for step in [
            "continue",
            "reverse-continue",
            "p sum",
            "info registers rip rsp",
        ] {
            command.args(["-ex", step]);
        }
        let done = scene.run(&mut command);
        assert!(
            done.text().contains("watchpoint 2"),
            "{}{}",
            done.text(),
            done.messages()
        );
        done.text()
    };
    assert_eq!(session(&["--without", "avx"]), session(&[]));
}

#[test]
fn unknown_features_are_named() {
    let scene = Scene::new();
    let done = scene.run(&mut scene.hindsight(&["info", "--without", "warp", "x.hst"]));
    assert_eq!(done.status.code(), Some(2));
    assert!(done.messages().contains("warp"), "{}", done.messages());
}

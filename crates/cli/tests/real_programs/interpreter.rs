//! The interpreter verifies recordings of real programs, and has the same registers as the native processor.

use hindsight_lab::{Done, Scene, words};
use std::ffi::{OsStr, OsString};
use std::path::Path;

fn verify(scene: &Scene, trace: &Path, processor: &str) {
    let mut command = scene.hindsight(&["replay", "--verify", "--processor", processor]);
    let done = scene.run(command.arg(trace));
    assert_eq!(
        done.status.code(),
        Some(0),
        "{processor}: {}{}",
        done.text(),
        done.messages()
    );
}

#[test]
fn programs_verify_with_both_processors() {
    let scene = Scene::new();
    let words = scene.path("words");
    let text: String = (0..3000)
        .map(|n| format!("{} word\n", n * 7919 % 1013))
        .collect();
    std::fs::write(&words, text).unwrap();
    let words = words.to_str().unwrap();
    let sqlite = "create table t(a, b); with recursive c(x) as (values(1) union all select x + 1 from c where x < 900) \
                  insert into t select x, x * 1.5 from c; select count(*), sum(a * b), avg(b), printf('%.3f', 2.0 / 3) from t;";
    let all: [&[&str]; 5] = [
        &["true"],
        &["sort", "-n", words],
        &["gzip", "-c", words],
        &[
            "awk",
            "{ s += $1 / 3; t = t substr($2, 1, 1) } END { print s, length(t) }",
            words,
        ],
        &["sqlite3", ":memory:", sqlite],
    ];
    for argv in all {
        let argv: Vec<&OsStr> = argv.iter().map(OsStr::new).collect();
        let (done, trace) = scene.record(&argv);
        assert_eq!(done.status.code(), Some(0), "{argv:?}: {}", done.messages());
        verify(&scene, &trace, "both");
        verify(&scene, &trace, "interpreter");
    }
}

#[test]
fn threads_and_processes_verify_in_the_interpreter() {
    let scene = Scene::new();
    let program = scene.compile("joint.c", &["-O1", "-pthread"]);
    let seen = scene.path("seen");
    let (_, trace) = scene.record(&[program.as_os_str(), OsStr::new("threads"), seen.as_os_str()]);
    verify(&scene, &trace, "both");
}

/// The interpreter follows AMD's processors where the manuals leave flags undefined. Another maker's are known to translated code
/// only.
#[test]
fn a_program_may_store_flags_that_are_undefined() {
    let scene = Scene::new();
    let program = scene.compile("open_flags.c", &["-O1"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    let id = std::arch::x86_64::__cpuid(0);
    let maker = [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes);
    let amd = maker.as_flattened() == b"AuthenticAMD";
    verify(&scene, &trace, if amd { "both" } else { "native" });
}

#[test]
fn questions_have_the_same_answers_with_both_processors() {
    let scene = Scene::new();
    let program = scene.compile("travel.c", &["-g", "-O1"]);
    let (done, trace) = scene.record(&words(&program, &["3"]));
    assert!(done.status.success(), "{}", done.messages());
    let again = trace.to_str().unwrap();
    let questions: [&[&str]; 9] = [
        &["at", "50%"],
        &["backtrace", "77%"],
        &["mem", "end", "$rsp", "256"],
        &["maps", "30%"],
        &["writes", "$rsp", "64"],
        &["calls", "main"],
        &["events"],
        &["diff", again, "--exact"],
        &["waits", "end"],
    ];
    for words in questions {
        let ask = |processor| {
            // No answer rests on what the other one has made.
            let _ = std::fs::remove_file(trace.with_extension("hsx"));
            let mut command = scene.hindsight(&[words[0], "--processor", processor]);
            let done = scene.run(command.arg(&trace).args(&words[1..]));
            assert_eq!(
                done.status.code(),
                Some(0),
                "{words:?}: {}",
                done.messages()
            );
            // Flags that the manuals leave undefined may differ.
            let text = done.text();
            let lines = text.lines().filter(|l| !l.starts_with(" flags "));
            lines.map(|l| format!("{l}\n")).collect::<String>()
        };
        assert_eq!(ask("interpreter"), ask("native"), "{words:?}");
    }
}

/// Fails unless a program prints the same when it is recorded, and the processors play it.
fn plays_in_both_regimes(scene: &Scene, argv: &[OsString], native: &Done, processors: &[&str]) {
    for regime in ["quiet", "checked"] {
        let trace = scene.path(regime);
        let regime = format!("--regime={regime}");
        let mut command = scene.hindsight(&["record", "--quiet", &regime, "-o"]);
        let done = scene.run(command.arg(&trace).arg("--").args(argv));
        assert_eq!(done.text(), native.text(), "{}", done.messages());
        for processor in processors {
            verify(scene, &trace, processor);
        }
    }
}

/// Makers of processors differ in the results, so the recording has them. Numbers of all kinds, too much and too little on the
/// stack, and the C library's functions.
#[test]
fn transcendental_instructions_play_anywhere() {
    let scene = Scene::new();
    let program = scene.compile("transcendental.c", &["-O1"]);
    let argv = words(&program, &["300"]);
    let native = scene.native(&argv);
    plays_in_both_regimes(&scene, &argv, &native, &["native", "interpreter"]);
    // An exception that waits for one of them is the program's.
    let (done, trace) = scene.record(&words(&program, &["5", "waits"]));
    let native = scene.native(&words(&program, &["5", "waits"]));
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    verify(&scene, &trace, "native");
    verify(&scene, &trace, "interpreter");
}

/// A store of the x87 that leaves an exception waiting is done once, and not at all if its result is withheld.
#[test]
fn exceptions_that_stores_leave_waiting_come_where_they_come_natively() {
    let scene = Scene::new();
    let program = scene.compile("unmasked.c", &["-O1"]);
    let argv = words(&program, &[]);
    let native = scene.native(&argv);
    assert!(native.status.success());
    plays_in_both_regimes(&scene, &argv, &native, &["both"]);
}

/// The finer approximations of AVX-512 are in the recording, too: their results follow from a table.
#[test]
fn finer_approximations_play_anywhere() {
    if !is_x86_feature_detected!("avx512f") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("guesses.c", &["-O1", "-mavx512f"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert_eq!(done.text(), scene.native(&words(&program, &[])).text());
    verify(&scene, &trace, "both");
    verify(&scene, &trace, "interpreter");
}

#[test]
fn an_overflow_that_is_not_masked_plays_anywhere() {
    let scene = Scene::new();
    let program = scene.compile("transcendental.c", &["-O1"]);
    let (done, trace) = scene.record(&words(&program, &["1", "overflows"]));
    // The last line is the signal's code: FPE_FLTOVF.
    assert!(done.text().ends_with("\n4\n"), "{}", done.text());
    verify(&scene, &trace, "both");
}

//! Memory that the program gets and has not written yet, with `--fill-fresh`.

use hindsight_lab::{Scene, words};
use std::ffi::OsString;

/// Records with `options` in a regime. The recording must verify by both means. Returns what the program printed, and the messages.
fn record(s: &Scene, argv: &[OsString], options: &[&str]) -> (String, String) {
    let trace = s.path("fresh.hst");
    let mut c = s.hindsight(&["record", "--quiet", "-o"]);
    c.arg(&trace).args(options).arg("--").args(argv);
    let done = s.run(&mut c);
    let (text, messages) = (done.text(), done.messages());
    assert_eq!(
        done.status.code(),
        Some(0),
        "{options:?}: {text} {messages}"
    );
    for model in ["native", "interpreter"] {
        let mut verify = s.hindsight(&["replay", "--verify", "--processor", model]);
        let done = s.run(verify.arg(&trace));
        assert!(
            done.status.success(),
            "{options:?} {model}: {}",
            done.messages()
        );
    }
    (text, messages)
}

/// Each line in `a` whose name is none of `same` must differ from the one in `b`.
fn differ(a: &str, b: &str, same: &[&str]) {
    assert_eq!(a.lines().count(), b.lines().count(), "{a}{b}");
    for (x, y) in a.lines().zip(b.lines()) {
        let is_same = same.iter().any(|n| x.starts_with(n));
        assert_eq!(x == y, is_same, "{x}, {y}");
    }
}

#[test]
fn fresh_memory_has_what_the_seed_says() {
    let s = Scene::new();
    let program = s.compile("fresh.c", &["-O1", "-w", "-pthread"]);
    for mode in ["alone", "threads", "processes"] {
        let argv = words(&program, &[mode]);
        let with = |seed: &str, regime: &str| {
            record(&s, &argv, &["--fill-fresh", seed, "--regime", regime])
        };
        let (one, messages) = with("1", "quiet");
        assert_eq!(messages, "");
        // The same seed gives the same bytes, also in the other regime.
        assert_eq!(with("1", "quiet").0, one);
        assert_eq!(with("1", "checked").0, one);
        differ(&one, &with("2", "quiet").0, &[]);
    }
}

#[test]
fn fresh_memory_is_told_by_its_seed_alone() {
    let s = Scene::new();
    let program = s.compile("fresh.c", &["-O1", "-w", "-pthread"]);
    let size = |options: &[&str]| {
        record(&s, &words(&program, &[]), options);
        let info = s.info(&s.path("fresh.hst"));
        (
            info["stream_bytes"].as_u64().unwrap(),
            info["fill_fresh"].as_u64(),
        )
    };
    let (without, none) = size(&[]);
    let (with, seed) = size(&["--fill-fresh", "4000000000"]);
    assert_eq!((none, seed), (None, Some(4_000_000_000)));
    // 200 KiB are filled.
    assert!(with < without + 20_000, "{with}, {without} without");
}

#[test]
fn memory_of_cpp_is_filled_too() {
    let s = Scene::new();
    let program = s.compile("fresh_new.cpp", &["-O1", "-w", "-std=c++17"]);
    let argv = words(&program, &[]);
    for regime in ["quiet", "checked"] {
        let with = |seed: &str| record(&s, &argv, &["--fill-fresh", seed, "--regime", regime]).0;
        let one = with("1");
        assert_eq!(with("1"), one);
        differ(&one, &with("2"), &[]);
    }
}

#[test]
fn the_shared_translations_of_other_runs_do_not_hide_calls() {
    let s = Scene::new();
    let program = s.compile("fresh.c", &["-O1", "-w", "-pthread"]);
    // A shell that executes the program three times: later images take whole sets of translations.
    let line = format!("for i in 1 2 3; do {} alone; done", program.display());
    let argv: Vec<OsString> = ["/bin/sh", "-c", &line].map(OsString::from).into();
    let (plain, _) = record(&s, &argv, &[]);
    let (filled, _) = record(&s, &argv, &["--fill-fresh", "1"]);
    let third = filled.lines().count() / 3;
    let lines: Vec<&str> = filled.lines().collect();
    assert_eq!(lines[..third], lines[third..2 * third]);
    assert_eq!(lines[..third], lines[2 * third..]);
    // And without the option nothing is filled, although its translations are there.
    let (again, _) = record(&s, &argv, &[]);
    let zeros = |text: &str| text.lines().next().unwrap().to_owned();
    assert_eq!(zeros(&plain), zeros(&again));
    assert_ne!(zeros(&plain), zeros(&filled));
}

#[test]
fn a_program_without_malloc_is_told() {
    let s = Scene::new();
    let program = s.compile("fresh.c", &["-O1", "-w", "-pthread", "-static", "-s"]);
    let (_, messages) = record(&s, &words(&program, &[]), &["--fill-fresh", "1"]);
    assert!(
        messages.contains("no function malloc was found in a program"),
        "{messages}"
    );
    // With its symbols it has one, in the program itself.
    let program = s.compile("fresh.c", &["-O1", "-w", "-pthread", "-static"]);
    let (one, messages) = record(&s, &words(&program, &[]), &["--fill-fresh", "1"]);
    assert_eq!(messages, "");
    let (two, _) = record(&s, &words(&program, &[]), &["--fill-fresh", "2"]);
    // Nothing in the program says that its allocator is glibc's.
    differ(&one, &two, &["grown"]);
}

/// Neither what stands before a block nor where a call ought to return says that something is fresh.
#[test]
fn what_the_program_has_written_is_kept() {
    let s = Scene::new();
    for link in [
        &["-O1", "-w", "-pthread"][..],
        &["-O1", "-w", "-pthread", "-static"],
    ] {
        let program = s.compile("fresh_own.c", link);
        let argv = words(&program, &[]);
        assert_eq!(s.native(&argv).text(), "right\n", "{link:?}");
        for regime in ["quiet", "checked"] {
            let options = ["--fill-fresh", "1", "--regime", regime];
            assert_eq!(
                record(&s, &argv, &options).0,
                "right\n",
                "{link:?} {regime}"
            );
        }
    }
}

#[test]
fn programs_of_the_system_run_with_any_garbage() {
    let s = Scene::new();
    let source = s.path("x.c");
    std::fs::write(&source, "int main(void) { return 6 * 7 - 42; }\n").unwrap();
    let compile = format!("gcc -O2 -o x {}; ./x; echo $?", source.display());
    let lines: [&[&str]; 4] = [
        &[
            "python3",
            "-c",
            "print(sum(map(len, map(str, range(20000)))))",
        ],
        &[
            "bash",
            "-c",
            "a=(); for i in {1..300}; do a+=($((i * i))); done; echo ${a[@]} | sort | wc",
        ],
        &[
            "sqlite3",
            ":memory:",
            "create table t(a); insert into t values(1),(5); select sum(a) from t;",
        ],
        &["bash", "-c", &compile],
    ];
    for line in lines {
        let argv: Vec<OsString> = line.iter().map(OsString::from).collect();
        let native = s.native(&argv).text();
        for seed in ["1", "77"] {
            let (text, _) = record(&s, &argv, &["--fill-fresh", seed]);
            assert_eq!(text, native, "{line:?}");
        }
    }
}

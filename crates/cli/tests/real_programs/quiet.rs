//! The quiet regime. Every change of memory is recorded, or ends the regime. It can end anywhere.

use hindsight_lab::{Done, Scene, hex, words};
use hindsight_random::Rng;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `info` says of the first stream's regime: whether it is quiet at the end, and the reason if not.
fn regime(scene: &Scene, trace: &Path) -> (bool, String) {
    let info = scene.info(trace);
    let streams = info["streams"].as_array().unwrap();
    let r = streams.iter().map(|s| &s["regime"]).find(|r| !r.is_null());
    let r = r.unwrap();
    (
        r["quiet"].as_bool().unwrap(),
        r["reason"].as_str().unwrap().to_owned(),
    )
}

/// Runs a part of `quiet.c`. Returns how the regime ended.
fn part(scene: &Scene, program: &Path, args: &[&str]) -> (bool, String) {
    let done = scene.same(&words(program, args));
    assert!(done.status.success(), "{args:?}");
    regime(scene, &scene.path("trace.hst"))
}

#[test]
fn changes_that_are_known() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    for name in [
        "discarded",
        "moved",
        "neighbours",
        "reserved",
        "stack",
        "outputs",
        "attributes",
        "handles",
        "queues",
        "signals",
        "clocks",
        "strings",
    ] {
        let (quiet, why) = part(&scene, &program, &[name]);
        assert!(quiet, "{name}: {why}");
    }
}

/// The kernel puts the vDSO anywhere. In a quarter of these runs, the low bits of its address are those of the stack.
#[test]
fn wherever_the_kernel_puts_its_code() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    let trace = scene.path("trace.hst");
    for _ in 0..16 {
        let mut shell = scene.command("/bin/bash");
        shell.args(["-c", r#"ulimit -s 1048576 && exec "$@""#, "bash"]);
        shell.arg(env!("CARGO_BIN_EXE_hindsight"));
        shell.args(["record", "--quiet", "-o"]).arg(&trace);
        let done = scene.run(shell.arg("--").arg(&program).arg("clocks"));
        assert!(done.status.success(), "{}", done.messages());
        let (quiet, why) = regime(&scene, &trace);
        assert!(quiet, "{why}");
        scene.must_verify(&trace);
    }
}

/// In one of some 25 of these runs, the low bits of the vDSO's address are those that the stack has once the program
/// has raised its limit.
#[test]
fn wherever_the_stack_may_grow() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    for _ in 0..16 {
        let (quiet, why) = part(&scene, &program, &["stack", "250"]);
        assert!(quiet, "{why}");
    }
}

/// In one of six of these runs, the heap grows to where the low bits of its addresses are those of the vDSO.
#[test]
fn wherever_the_heap_grows() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    for _ in 0..16 {
        let (quiet, why) = part(&scene, &program, &["heap"]);
        assert!(quiet, "{why}");
    }
}

/// In half of these runs, the low bits of the stack's address are those of the program or of its heap. The program has
/// a fixed address.
#[test]
fn wherever_the_kernel_puts_the_stack() {
    let scene = Scene::new();
    let program = scene.compile("start.c", &["-no-pie"]);
    let trace = scene.path("trace.hst");
    let line = r#"ulimit -s 1048576 && exec "$@""#;
    let native = scene.run(
        scene
            .command("/bin/bash")
            .args(["-c", line, "bash"])
            .arg(&program)
            .args(["one", "two"]),
    );
    for _ in 0..10 {
        let mut shell = scene.command("/bin/bash");
        shell.args(["-c", line, "bash"]);
        shell.arg(env!("CARGO_BIN_EXE_hindsight"));
        shell.args(["record", "--quiet", "-o"]).arg(&trace);
        let done = scene.run(shell.arg("--").arg(&program).args(["one", "two"]));
        assert!(done.status.success(), "{}", done.messages());
        assert_eq!(done.text(), native.text());
        let (quiet, why) = regime(&scene, &trace);
        assert!(quiet, "{why}");
        scene.must_verify(&trace);
    }
}

#[test]
fn changes_that_end_it() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    for (name, word) in [
        ("twins", "low 32 bits"),
        ("shared", "others share"),
        ("memory_file", "file"),
        ("remote", "system call"),
        ("partial", "system call"),
    ] {
        let (quiet, why) = part(&scene, &program, &[name]);
        assert!(!quiet && why.contains(word), "{name}: {why}");
    }
}

/// Calls that write more than they report, calls that write although they fail, and calls that fail halfway.
#[test]
fn corners_of_calls() {
    let scene = Scene::new();
    let program = scene.compile("corners.c", &[]);
    for name in [
        "pair",
        "childless",
        "alarm_clock",
        "negative",
        "size_of_map",
        "half",
        "droppable",
        "deep",
        "protected_in_part",
    ] {
        let (quiet, why) = part(&scene, &program, &[name]);
        assert!(quiet, "{name}: {why}");
    }
    let file = scene.path("direct");
    for (args, word) in [
        (&["own_array"][..], "may overwrite"),
        (&["own_header"], "may overwrite"),
        (&["own_length"], "may overwrite"),
        (&["direct", file.to_str().unwrap()], "direct access"),
        (&["locked"], "unknown part"),
        (&["twins"], "low 32 bits"),
        (&["several"], "moves"),
        (&["shared"], "share"),
    ] {
        let (quiet, why) = part(&scene, &program, args);
        assert!(!quiet && why.contains(word), "{args:?}: {why}");
    }
    // What a call did before it failed matters to translations, too.
    for name in ["protected_in_part", "several"] {
        let (argv, trace) = (words(&program, &[name]), scene.path("trace.hst"));
        let mut command = scene.hindsight(&["record", "--quiet", "--regime", "checked", "-o"]);
        let done = scene.run(command.arg(&trace).arg("--").args(&argv));
        assert_eq!(done.text(), scene.native(&argv).text());
        scene.must_verify(&trace);
    }
}

fn file(scene: &Scene) -> PathBuf {
    let path = scene.path("mapped");
    fs::write(&path, "0123456789abcdef".repeat(20)).unwrap();
    path
}

#[test]
fn mapped_files_that_the_program_changes() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    for (name, word) in [("cut", "length"), ("renamed", "mapped file for writing")] {
        let path = file(&scene);
        let native = scene.native(&words(&program, &[name, path.to_str().unwrap()]));
        let path = file(&scene);
        let (done, trace) = scene.record(&words(&program, &[name, path.to_str().unwrap()]));
        assert_eq!(done.text(), native.text(), "{name}");
        scene.must_verify(&trace);
        let (quiet, why) = regime(&scene, &trace);
        assert!(!quiet && why.contains(word), "{name}: {why}");
    }
    // Through a descriptor that the program inherited.
    let path = file(&scene);
    let trace = scene.path("trace.hst");
    let line = r#"exec 7<>"$0"; exec "$@""#;
    let mut shell = scene.command("/bin/dash");
    shell.arg("-c").arg(line).arg(&path);
    shell.arg(env!("CARGO_BIN_EXE_hindsight"));
    shell
        .args(["record", "--quiet", "-o"])
        .arg(&trace)
        .arg("--");
    let done = scene.run(shell.arg(&program).arg("passed").arg(&path));
    assert!(done.status.success(), "{}", done.messages());
    scene.must_verify(&trace);
    let (quiet, why) = regime(&scene, &trace);
    assert!(!quiet && why.contains("may write"), "{why}");
}

/// Somebody else changes a file while it is mapped. That is reported, at the latest at the end.
#[test]
fn mapped_files_that_others_change() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    let path = file(&scene);
    let (trace, pipe) = (scene.path("trace.hst"), scene.path("pipe"));
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Both ends are open, so that nobody waits for the other to open it.
    let both = File::options().read(true).write(true).open(&pipe).unwrap();
    let mut command = scene.recording(
        &trace,
        &words(&program, &["disturbed", path.to_str().unwrap()]),
    );
    let running = scene.start(command.stdin(both.try_clone().unwrap()));
    assert_eq!(running.first_line(), "go");
    fs::write(&path, "changed").unwrap();
    (&both).write_all(b"x").unwrap();
    assert!(running.finish().status.success());
    let (quiet, why) = regime(&scene, &trace);
    assert!(!quiet && why.contains("a file changed"), "{why}");
}

/// The regime ends wherever the recorder happens to be asked: every moment will do.
#[test]
fn it_can_end_anywhere() {
    let scene = Scene::new();
    fs::write(
        scene.path("small.c"),
        "int f(int x) { return x * 7 + 1; }\n",
    )
    .unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do x=$x$((i * i)); done; echo ${x//4/.} | tr 1 2";
    let programs: [&[&str]; 5] = [
        &[
            "python3",
            "-c",
            "import json; print(json.dumps({str(i): i * i for i in range(50)}))",
        ],
        &[
            "sqlite3",
            ":memory:",
            "create table t(a); insert into t values(1),(2); select sum(a) from t",
        ],
        &[
            "perl",
            "-e",
            "print join ',', map { sprintf '%x', $_ * $_ } grep { /1/ } 1 .. 200",
        ],
        &["gcc", "-O1", "-S", "-o", "-", "small.c"],
        &["bash", "-c", script],
    ];
    let mut random = Rng(0x51ee7);
    let mut forced = 0;
    for argv in programs {
        let native = scene.native(argv);
        // A few in the loader, and more in the program.
        for range in [500, 2500, 7000] {
            let after = (1 + random.below(range)).to_string();
            let trace = scene.path("trace.hst");
            let mut command =
                scene.hindsight(&["record", "--quiet", "--leave-quiet-after", &after]);
            let done = scene.run(command.arg("-o").arg(&trace).arg("--").args(argv));
            assert_eq!(
                done.text(),
                native.text(),
                "{argv:?} after {after}: {}",
                done.messages()
            );
            let verified = scene.verify(&trace);
            let said = verified.text() + &verified.messages();
            assert_eq!(
                verified.status.code(),
                Some(0),
                "{argv:?} after {after}: {said}"
            );
            forced += regime(&scene, &trace).1.contains("asked for it") as u32;
        }
    }
    // Some programs end the regime themselves, or do not enter the runtime any more.
    assert!(forced > 9, "{forced}");
}

/// Replay can begin where memory is restated. It also compares the restated memory with its own.
#[test]
fn memory_is_restated_anywhere() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    let trace = scene.path("trace.hst");
    let program = program.to_str().unwrap();
    let line = "for i in {1..50}; do x=$x$((i * i)); done; echo $(echo $x | tr 1 2)";
    let other = "my @a = map { $_ x 9 } 1 .. 2000; splice @a, 5; print @a";
    // Nearly wherever the thread enters the runtime. Less often where there is much memory.
    let into = "for i in {1..50}; do x=$x$((i * i)); done; exec sha256sum /bin/bash";
    let programs: [(&[&str], &str); 13] = [
        (&[program, "outputs"], "100"),
        (&[program, "signals"], "100"),
        (&[program, "clocks"], "100"),
        (&[program, "strings"], "100"),
        (&[program, "zeroed"], "100"),
        (&[program, "discarded"], "20000"),
        (&[program, "moved"], "300000"),
        (&[program, "reserved"], "20000"),
        (&[program, "stack"], "100000"),
        (&["sha256sum", "/bin/bash"], "100000"),
        (&["bash", "-c", line], "30000"),
        (&["bash", "-c", into], "30000"),
        (&["perl", "-e", other], "100000"),
    ];
    for (argv, every) in programs {
        let native = scene.native(argv);
        let done = restated(&scene, &trace, every, argv);
        let said = [&done, &native].map(|d| (d.text(), d.messages()));
        assert!(said[0] == said[1], "{argv:?}: {said:?}");
    }
}

/// Records a program that stays quiet and restates its memory after every so many instructions. The recording must
/// verify.
fn restated(scene: &Scene, trace: &Path, every: &str, argv: &[impl AsRef<OsStr>]) -> Done {
    let mut record = scene.hindsight(&["record", "--quiet", "--restate-every", every, "-o"]);
    let done = scene.run(record.arg(trace).arg("--").args(argv));
    let (quiet, why) = regime(scene, trace);
    assert!(quiet, "each {every}: {why}");
    scene.must_verify(trace);
    done
}

#[test]
fn mapped_files_whose_names_others_get() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    let trace = scene.path("trace.hst");
    let argv = words(&program, &["replaced", file(&scene).to_str().unwrap()]);
    let native = scene.native(&argv);
    for every in ["0", "1", "2000"] {
        file(&scene);
        let done = restated(&scene, &trace, every, &argv);
        assert_eq!(done.text(), native.text());
    }
}

/// If the table of system calls were wrong, the first verification would say so and name the call.
#[test]
fn what_is_not_told_is_found() {
    let scene = Scene::new();
    let program = scene.compile("quiet.c", &[]);
    let trace = scene.path("trace.hst");
    let calls = [
        "fstat",
        "clock_gettime",
        "ioctl",
        "read",
        "getdents64",
        "readv",
        "recvmsg",
    ];
    for call in calls {
        let mut command = scene.hindsight(&["record", "--quiet", "--untold", call, "-o"]);
        let done = scene.run(command.arg(&trace).arg("--").arg(&program).arg("results"));
        assert!(done.status.success(), "{call}: {}", done.messages());
        let done = scene.run(
            scene
                .hindsight(&["replay", "--verify", "--json"])
                .arg(&trace),
        );
        assert_eq!(done.status.code(), Some(1), "{call}: {}", done.text());
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let difference = &report["difference"];
        assert!(difference["place"].is_string(), "{call}: {difference}");
        let first = &difference["suspects"][0];
        assert_eq!(first["name"], call, "{difference}");
        assert!(
            hex(&first["address"]).is_some() && first["argument"].is_u64(),
            "{difference}"
        );
        assert!(first["position"].as_u64() < difference["position"].as_u64());
        let done = scene.verify(&trace);
        assert!(
            done.text().contains(&format!("({call})")),
            "{}",
            done.text()
        );
    }
    // With restated memory, it is found even if nobody reads it.
    for (every, found) in [("0", false), ("100", true)] {
        let untold = ["--untold", "uname", "--restate-every", every, "-o"];
        let mut command = scene.hindsight(&[&["record", "--quiet"], &untold[..]].concat());
        let done = scene.run(command.arg(&trace).arg("--").arg(&program).arg("unread"));
        assert!(done.status.success(), "{}", done.messages());
        for jobs in ["1", "2"] {
            let done = scene.run(
                scene
                    .hindsight(&["replay", "--verify", "--jobs", jobs])
                    .arg(&trace),
            );
            assert_eq!(done.status.code(), Some(found as i32), "{}", done.text());
            assert_eq!(
                done.text().contains("expected memory at"),
                found,
                "{}",
                done.text()
            );
        }
    }
    // The table as it is.
    let (quiet, why) = part(&scene, &program, &["signals"]);
    assert!(quiet, "{why}");
}

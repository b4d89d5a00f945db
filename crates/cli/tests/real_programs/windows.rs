//! Recordings of parts of programs: modules, functions, and what the program asks for.

use hindsight_lab::{Done, Scene, end, words};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;

/// Records with `options`.
fn record(scene: &Scene, options: &[&str], argv: &[OsString]) -> (Done, PathBuf) {
    let trace = scene.path("part.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "-o"]);
    command.arg(&trace).args(options).arg("--").args(argv);
    (scene.run(&mut command), trace)
}

/// Runs a program natively, and records it with `options`. Both must do the same, and the recording must verify.
/// Returns what `info` says.
fn part(scene: &Scene, options: &[&str], argv: &[OsString]) -> Value {
    let native = scene.native(argv);
    let (recorded, trace) = record(scene, options, argv);
    assert_eq!(recorded.text(), native.text(), "{}", recorded.messages());
    assert_eq!(recorded.messages(), native.messages());
    assert_eq!(end(recorded.status), end(native.status));
    scene.must_verify(&trace);
    scene.info(&trace)
}

/// The number of small gaps, of big gaps, and of recorded instructions, of all threads together.
fn counts(info: &Value) -> (u64, u64, u64) {
    let streams = info["streams"].as_array().unwrap();
    let sum = |kind: &str| {
        let n = streams.iter().map(|s| s["gaps"][kind].as_u64().unwrap());
        n.sum()
    };
    (
        sum("small"),
        sum("big"),
        info["instructions"].as_u64().unwrap(),
    )
}

#[test]
fn a_call_is_recorded_until_it_returns() {
    let scene = Scene::new();
    for options in [&["-O2"][..], &["-O0"], &["-O2", "-fno-pie", "-no-pie"]] {
        let program = scene.compile("windows.c", options);
        // One gap before the first of three calls, and one after each. Calls within these calls begin no gaps.
        for name in ["recursive", "windows!recursive"] {
            let info = part(&scene, &["--from", name], &words(&program, &["recursive"]));
            let (small, big, recorded) = counts(&info);
            assert_eq!((small, big), (0, 4), "{name}");
            assert!((10_000..500_000).contains(&recorded), "{recorded}");
        }
        // This function never returns.
        let info = part(&scene, &["--from", "jumper"], &words(&program, &["jumper"]));
        let (small, big, recorded) = counts(&info);
        assert_eq!((small, big), (0, 4));
        assert!((3_000..60_000).contains(&recorded), "{recorded}");
    }
}

#[test]
fn recording_lasts_from_one_function_to_another() {
    let scene = Scene::new();
    let program = scene.compile("windows.c", &[]);
    let window = ["--from", "begin_here", "--to", "end_here"];
    let between = words(&program, &["between"]);
    let (small, big, recorded) = counts(&part(&scene, &window, &between));
    assert_eq!((small, big), (0, 5));
    // The function exists, but nobody calls it.
    let endless = ["--from", "begin_here", "--to", "recursive"];
    let (done, trace) = record(&scene, &endless, &between);
    assert!(done.messages().contains("recursive was never called"));
    scene.must_verify(&trace);
    let (_, one, all) = counts(&scene.info(&trace));
    assert_eq!(one, 1);
    assert!(recorded < all, "{recorded} {all}");
    let (_, last, first) = counts(&part(&scene, &["--to", "begin_here"], &between));
    assert_eq!(last, 1);
    assert!(first > 50_000, "{first}");
    for what in ["threads", "signals", "faults", "forks"] {
        let info = part(&scene, &window, &words(&program, &[what]));
        let (small, big, _) = counts(&info);
        assert_eq!(small, 0, "{what}");
        let least = match what {
            "threads" => 6 * 101 + 1,
            "signals" => 2,
            "faults" => 6,
            // The child begins in its parent's recorded part, or it does not.
            _ => 4 + 3,
        };
        assert!(big >= least, "{what}: {big}");
    }
}

#[test]
fn functions_have_addresses() {
    let scene = Scene::new();
    let program = scene.compile("windows.c", &[]);
    let nm = scene.run(scene.command("nm").arg(&program));
    let text = nm.text();
    let line = text.lines().find(|l| l.ends_with(" recursive")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let from = format!("windows+{address:#x}");
    let info = part(&scene, &["--from", &from], &words(&program, &["recursive"]));
    assert_eq!(counts(&info).1, 4);
}

#[test]
fn what_is_not_found_is_said() {
    let scene = Scene::new();
    let program = scene.compile("windows.c", &[]);
    // 3: there is nothing to verify.
    let say = |options: &[&str], verified: i32| {
        let (done, trace) = record(&scene, options, &words(&program, &["between"]));
        assert_eq!(done.status.code(), Some(0));
        assert_eq!(scene.verify(&trace).status.code(), Some(verified));
        done.messages()
    };
    for (options, expected, verified) in [
        (&["--from", "no_such"][..], "has a function no_such", 3),
        (&["--from", "recursive"], "recursive was never called", 3),
        (&["--to", "libc!no_such"], "has a function libc!no_such", 0),
        (&["--only-module", "no_such"], "matches no_such", 3),
    ] {
        let messages = say(options, verified);
        assert!(messages.contains(expected), "{options:?}: {messages}");
    }
    assert_eq!(say(&["--from", "main"], 0), "");
    let (done, _) = record(&scene, &["--from", "module!"], &words(&program, &[]));
    assert_eq!(done.status.code(), Some(125));
    assert!(
        done.messages().contains("module!name"),
        "{}",
        done.messages()
    );
}

#[test]
fn modules_are_chosen() {
    let scene = Scene::new();
    let program = scene.compile("windows.c", &[]);
    for what in ["threads", "signals", "faults", "forks", "jumper"] {
        for options in [
            ["--only-module", "windows"],
            ["--skip-module", "windows"],
            ["--skip-module", "libc"],
        ] {
            let (small, big, recorded) = counts(&part(&scene, &options, &words(&program, &[what])));
            assert!(
                small > 1 && big == 0 && recorded > 100,
                "{what} {options:?}"
            );
        }
    }
    let exceptions = scene.compile("exceptions.cpp", &["-O1"]);
    part(
        &scene,
        &["--skip-module", "libgcc_s"],
        &words(&exceptions, &[]),
    );
    part(
        &scene,
        &["--only-module", "libgcc_s"],
        &words(&exceptions, &[]),
    );
    let jit = scene.compile("jit.c", &[]);
    let info = part(&scene, &["--skip-module", "[anonymous]"], &words(&jit, &[]));
    assert!(counts(&info).0 > 1);
}

#[test]
fn parts_of_installed_programs() {
    let scene = Scene::new();
    let argv = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    let python = argv(&[
        "/usr/bin/python3",
        "-c",
        "import sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t(a)'); \
         c.executemany('insert into t values(?)', [(i,) for i in range(300)]); \
         print(c.execute('select sum(a) from t').fetchone())",
    ]);
    let (_, _, all) = counts(&part(&scene, &[], &python));
    for module in ["_sqlite3*", "libsqlite3"] {
        let (small, big, some) = counts(&part(&scene, &["--only-module", module], &python));
        assert!(small > 300 && big == 0, "{module}");
        assert!(some > 1000 && some < all / 5, "{module}: {some} of {all}");
    }
    let sql =
        "create table t(a); insert into t values(1),(2),(3); select sum(a), upper('x') from t;";
    let sqlite = argv(&["sqlite3", ":memory:", sql]);
    assert!(counts(&part(&scene, &["--skip-module", "libc"], &sqlite)).0 > 100);
    let shell = argv(&["sh", "-c", "ls / | wc -l; echo $(uname)"]);
    part(&scene, &["--skip-module", "libc"], &shell);
}

#[test]
fn the_program_says_what_is_recorded() {
    let scene = Scene::new();
    let header = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../mark");
    let program = scene.compile("marks.c", &[header]);
    let info = part(&scene, &["--start-stopped"], &words(&program, &[]));
    let marks = |info: &Value, name: &str| -> u64 {
        let streams = info["streams"].as_array().unwrap();
        let n = streams.iter().filter_map(|s| s["marks"][name].as_u64());
        n.sum()
    };
    let (_, big, recorded) = counts(&info);
    // Before and after in the first thread, and once in the other.
    assert_eq!(big, 3);
    assert!((1_000..300_000).contains(&recorded), "{recorded}");
    for (name, n) in [("round", 10), ("in a gap", 1), ("end", 1)] {
        assert_eq!(marks(&info, name), n, "{name}");
    }
    let (_, big, _) = counts(&part(&scene, &[], &words(&program, &[])));
    assert_eq!(big, 2);
    // In a gap that goes on for another reason: skipped code says that it is not to be recorded.
    let (small, big, _) = counts(&part(
        &scene,
        &["--skip-module", "marks"],
        &words(&program, &[]),
    ));
    assert!(small > 2 && big > 0, "{small}, {big}");
    let tells = words(&program, &["tell"]);
    let first = |d: &Done| d.text().lines().next().unwrap_or_default().to_owned();
    assert_eq!(first(&scene.native(&tells)), "0 0 0 0");
    assert_eq!(
        first(&record(&scene, &["--start-stopped"], &tells).0),
        "0 1 1 0"
    );
    assert_eq!(first(&record(&scene, &[], &tells).0), "1 1 1 0");
    assert_eq!(first(&record(&scene, &["--plain"], &tells).0), "0 0 0 0");
}

#[test]
fn a_gap_that_becomes_wider_is_one() {
    let scene = Scene::new();
    let program = scene.compile("wider.c", &[]);
    let options = ["--from", "main", "--to", "write", "--skip-module", "libc"];
    let (done, trace) = record(&scene, &options, &words(&program, &[]));
    assert_eq!(done.text(), "some text\nsome text\n", "{}", done.messages());
    let (small, big, _) = counts(&scene.info(&trace));
    let file = trace.to_str().unwrap();
    let verified = scene.run(&mut scene.hindsight(&["replay", "--verify", "--json", file]));
    assert!(verified.status.success(), "{}", verified.messages());
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(report["gaps"], small + big, "{report:#}");
    // Two reasons were given for the same gap.
    let begun = report["events"]["gap begin"].as_u64().unwrap();
    assert!(begun > small + big, "{report:#}");
}

#[test]
fn memory_is_carried_over_calls_whose_functions_are_declared() {
    let scene = Scene::new();
    let program = scene.compile("carried.c", &["-O1", "-fno-builtin"]);
    let window = ["--only-module", "carried"];
    let (done, trace) = record(&scene, &window, &words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    let mem = |options: &[&str]| {
        let mut command = scene.hindsight(&["mem"]);
        command
            .arg(&trace)
            .args(["50%", "text", "17"])
            .args(options);
        scene.run(&mut command)
    };
    // Where half of the instructions are done, the text was written, or its first calls were made.
    let shown = mem(&[]);
    assert!(shown.status.success(), "{}", shown.messages());
    let json: Value = serde_json::from_str(&mem(&["--json"]).text()).unwrap();
    assert!(json["carried"].is_array() && json["bytes"].as_array().unwrap().len() == 17);
    let file = scene.path("declared");
    std::fs::write(&file, "[libc.so]\nstrlen(w:0)\n").unwrap();
    let wrong = mem(&["--declared", file.to_str().unwrap()]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        wrong
            .messages()
            .contains("line 2, column 8: w:0 is none of"),
        "{}",
        wrong.messages()
    );
    let missing = mem(&["--declared", "/nonexistent"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        missing.messages().contains("/nonexistent"),
        "{}",
        missing.messages()
    );
    assert_eq!(mem(&["--assume", "everything"]).status.code(), Some(2));
    let known: Value = serde_json::from_str(&mem(&["--json", "--assume", "off"]).text()).unwrap();
    assert_eq!(known["carried"], Value::Array(Vec::new()));
    assert_eq!(known["bytes"], json["bytes"]);
}

#[test]
fn variables_are_carried_over_calls_and_say_so() {
    let scene = Scene::new();
    let program = scene.compile("carried.c", &["-O0", "-g", "-fno-builtin"]);
    let window = ["--only-module", "carried"];
    let (done, trace) = record(&scene, &window, &words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    let ask = |command: &str, words: &[&str]| {
        let mut c = scene.hindsight(&[command]);
        scene.run(c.arg(&trace).args(words))
    };
    let calls: Value = serde_json::from_str(&ask("calls", &["stage", "--json"]).text()).unwrap();
    let call = calls["calls"].as_array().unwrap().last().unwrap();
    let place = call["position"].as_str().unwrap();
    let at = |options: &[&str]| {
        let done = ask("at", &[&[place, "--frame", "1"][..], options].concat());
        assert!(done.status.success(), "{}", done.messages());
        done.text()
    };
    let shown = at(&[]);
    assert!(shown.contains("int kept = 42 (carried)"), "{shown}");
    assert!(shown.contains(", 1 gap away: strlen())\n"), "{shown}");
    assert!(
        shown
            .lines()
            .any(|l| l.starts_with("#2") && l.contains("main at") && l.ends_with(" (carried)")),
        "{shown}"
    );
    let off = at(&["--assume", "off"]);
    assert!(off.contains("int kept = ?  (at 0x"), "{off}");
    // The program has that name, too.
    let stack = off.split("call stack").last().unwrap();
    assert!(
        !stack.contains("carried)") && !stack.contains("#2"),
        "{off}"
    );
    // What this `printf` writes is not known: its format has `%n`. Somebody knows better.
    let printed = calls["calls"][7]["position"].as_str().unwrap();
    let other = |options: &[&str]| {
        let all = ask("at", &[&[printed, "--frame", "1"][..], options].concat()).text();
        let line = all.lines().find(|l| l.contains(" * other = "));
        line.unwrap_or_default().trim().to_owned()
    };
    assert!(other(&[]).contains("other = ?  (at "), "{}", other(&[]));
    let assumed = other(&["--assume", "straight"]);
    assert!(assumed.contains(" (assumed)  ("), "{assumed}");
    assert!(
        assumed.ends_with(", 1 gap of which nothing is known)"),
        "{assumed}"
    );
    let file = scene.path("declared");
    std::fs::write(&file, "[libc.so]\nprintf(stdio)\n").unwrap();
    let declared = other(&["--declared", file.to_str().unwrap()]);
    assert!(declared.contains(" (carried)  ("), "{declared}");
    assert!(
        declared.contains("away: printf(stdio), strlen(), "),
        "{declared}"
    );
    // Only who asks for more gets what is far away.
    let options = ["--frame", "1", "--declared", file.to_str().unwrap()];
    let near = ask("at", &[&[printed][..], &options].concat()).text();
    assert!(!near.contains("on the stack"), "{near}");
    let left_out = "\nnot looked for: values farther than 4 gaps away";
    assert!(near.contains(left_out), "{near}");
    let far = ["--assume", "declared"];
    let far = ask("at", &[&[printed][..], &options, &far].concat()).text();
    assert!(far.contains("\"on the stack...\" (carried)"), "{far}");
    assert!(!far.contains(left_out), "{far}");

    let json: Value = serde_json::from_str(&at(&["--json"])).unwrap();
    let kept = (json["variables"].as_array().unwrap().iter()).find(|v| v["name"] == "kept");
    let kept = kept.unwrap();
    assert_eq!(
        (&kept["text"], &kept["integer"]),
        (&"?".into(), &Value::Null)
    );
    let carried = &kept["carried"];
    assert_eq!(
        (&carried["text"], &carried["integer"]),
        (&"42".into(), &"0x2a".into())
    );
    assert_eq!(carried["from"][0]["rule"], "declared");
    assert_eq!(carried["from"][0]["declarations"][0], "strlen()");
    let frames = json["stack_carried"]["frames"].as_array().unwrap();
    assert_eq!(frames[0]["frames"][0]["function"], "main");
    assert_eq!(json["stack"].as_array().unwrap().len(), 2);
}

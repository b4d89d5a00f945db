//! Live programs that gdb leads to a place of their recording: they begin as the recorded ones did, and where they part is said.

use crate::breakpath::{PROGRAM, arrive, ask, call, route};
use crate::common::compile;
use hindsight_lab::Scene;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What it does depends on what is in a file.
const READER: &str = r#"
#include <stdio.h>
static int first(int n) { return n + 1; }
static int second(int n) { return n + 2; }
int main(int argc, char **argv) {
    FILE *f = fopen(argv[1], "r");
    int n = 0;
    for (int i = 0, c; (c = getc(f)) != EOF; i++) {
        if (c == 'x') __asm__ volatile("int3");
        n = c == 'a' ? first(n) : second(n);
    }
    printf("%d\n", n);
    return 0;
}
"#;

/// What it shows is the same in a run that begins as the recorded one did, wherever its stack is.
const BEGIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>
static int after(int n) { return n + 1; }
int main(int argc, char **argv) {
    char folder[4096];
    for (int i = 0; i < argc; i++) printf("[%s] %ld\n", argv[i], (long)argv[i] & 4095);
    printf("%s %s\n", getenv("KEPT"), getcwd(folder, sizeof folder));
    printf("%ld %ld\n", (long)&argc & 4095, (long)getenv("KEPT") & 4095);
    unsigned char *random = (unsigned char *)getauxval(AT_RANDOM);
    for (int i = 0; i < 16; i++) printf("%02x", random[i]);
    printf(" %s\n", (char *)getauxval(AT_EXECFN));
    fflush(stdout);
    printf("behind %d\n", after(argc));
    return 0;
}
"#;

/// Has `hindsight` lead a live program.
fn lead(s: &Scene, trace: &Path, place: &str) -> (Option<i32>, Value, String) {
    ask(s, trace, place, &["--run", "--yes", "--limit", "100000"])
}

/// A recorded program, the file that it reads, and the third call of `second`.
fn reader(s: &Scene) -> (PathBuf, PathBuf, String) {
    let text = s.path("text");
    let program = compile(s, "program", READER, &[]);
    std::fs::write(&text, "abaabbab").unwrap();
    let (_, trace) = s.record(&[&program, &text]);
    let place = call(s, &trace, "second", 2);
    (trace, text, place)
}

#[test]
fn a_program_is_led_there_and_begins_as_it_did() {
    let s = Scene::new();
    let program = compile(&s, "program", BEGIN, &[]);
    let trace = s.path("begin.hst");
    let mut record = s.recording(
        &trace,
        &[program.to_str().unwrap(), "a b", "", "it's\n$HOME"],
    );
    let recorded = s.run(record.env("KEPT", "a 'value'"));
    let place = call(&s, &trace, "after", 0);
    let stops = route(&s, &trace, &place, &[])["stops"].clone();
    let (status, json, told) = lead(&s, &trace, &place);
    assert_eq!(status, Some(0), "{json} {told}");
    assert_eq!((&json["reached"], &json["stops"]), (&true.into(), &stops));
    assert_eq!(json["difference"], Value::Null);
    let shown = recorded.text();
    let (shown, _) = shown.split_once("behind").unwrap();
    assert!(shown.contains("a 'value'"), "{shown}");
    assert!(told.contains(shown), "{told}\nis without\n{shown}");
}

#[test]
fn a_run_that_differs_says_where() {
    let s = Scene::new();
    let (trace, text, place) = reader(&s);
    let (status, json, told) = lead(&s, &trace, &place);
    assert_eq!(status, Some(0), "{json} {told}");
    // There is no such call now.
    for (content, live) in [
        ("aaaaaaaa", "ended"),
        ("abaaxbab", "something else stopped"),
    ] {
        std::fs::write(&text, content).unwrap();
        let (status, json, told) = lead(&s, &trace, &place);
        assert_eq!(status, Some(1), "{json} {told}");
        assert_eq!(json["reached"], false);
        let now = json["difference"]["live"].as_str().unwrap();
        assert!(now.contains(live), "{json}");
        // The script says it, too.
        let told = arrive(&s, &trace, &place, &["program"], &[]).unwrap_err();
        assert!(
            told.contains(live) && told.contains("not like the recorded one"),
            "{told}"
        );
    }
    // As many calls, with another number: the place is right, and a register is not.
    std::fs::write(&text, "bbb").unwrap();
    let (status, json, told) = lead(&s, &trace, &place);
    assert_eq!(status, Some(1), "{json} {told}");
    let what = json["difference"]["what"].as_str().unwrap();
    assert!(what.starts_with("register "), "{json}");
    // What people get.
    let mut command = s.hindsight(&["breakpath", "--run", "--yes"]);
    let done = s.run(command.arg(&trace).arg(&place));
    assert_eq!(done.status.code(), Some(1));
    assert!(done.messages().contains(what), "{}", done.messages());
}

#[test]
fn only_the_recorded_program_is_run_and_only_if_asked_to() {
    let s = Scene::new();
    let (trace, _, place) = reader(&s);
    let refuses = |command: &mut std::process::Command, why: &str| {
        let done = s.run(command.arg(&trace).arg(&place));
        assert_eq!(done.status.code(), Some(2), "{}", done.messages());
        assert!(done.messages().contains(why), "{}", done.messages());
    };
    // Nobody can be asked.
    let run = || s.hindsight(&["breakpath", "--run"]);
    refuses(&mut run(), "--yes does it");
    refuses(
        run().arg("--yes").env("PATH", s.path(".")),
        "gdb is not installed",
    );
    compile(&s, "program", "int main(void) { return 3; }", &[]);
    refuses(run().arg("--yes"), "not on this machine as it was recorded");
    std::fs::remove_file(s.path("program")).unwrap();
    refuses(run().arg("--yes"), "not on this machine as it was recorded");
}

#[test]
fn another_library_is_named_at_once() {
    let s = Scene::new();
    let shared = ["-shared", "-fPIC"];
    let extra = compile(
        &s,
        "extra.so",
        "int extra(int n) { return n + 1; }",
        &shared,
    );
    let source = "int extra(int n); int main(void) { return extra(41) != 42; }";
    let program = compile(&s, "program", source, &[extra.to_str().unwrap()]);
    // More than the kernel leaves below a small environment.
    let trace = s.path("large.hst");
    let mut record = s.recording(&trace, &[&program]);
    for n in 0..3 {
        record.env(format!("LARGE{n}"), "x".repeat(100_000));
    }
    assert_eq!(s.run(&mut record).status.code(), Some(0));
    let place = call(&s, &trace, "extra", 0);
    let (status, json, told) = lead(&s, &trace, &place);
    assert_eq!(status, Some(0), "{json} {told}");
    assert!(!told.contains("not as recorded"), "{told}");
    let other = "int extra(int n) { return n + 1; } int more(int n) { return n * n; }";
    compile(&s, "extra.so", other, &shared);
    let (_, _, told) = lead(&s, &trace, &place);
    assert!(told.contains("not as recorded"), "{told}");
    assert!(told.contains("extra.so is another file"), "{told}");
}

/// A program that waits for ever in the live run.
#[test]
fn signals_end_it_with_the_program() {
    let s = Scene::new();
    let source = r#"
#include <stdio.h>
#include <unistd.h>
static int end(int n) { return n + 1; }
int main(int argc, char **argv) {
    if (access(argv[1], F_OK)) {
        dprintf(2, "waits %d\n", getpid());
        pause();
    }
    return end(1);
}
"#;
    let program = compile(&s, "program", source, &[]);
    let go = s.path("go");
    std::fs::write(&go, "").unwrap();
    let (_, trace) = s.record(&[&program, &go]);
    let place = call(&s, &trace, "end", 0);
    std::fs::remove_file(&go).unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut command = s.hindsight(&["breakpath", "--run", "--yes", "--json"]);
        let running = s.start(command.arg(&trace).arg(&place));
        let waits = || {
            let said = running.messages();
            let (_, rest) = said.split_once("waits ")?;
            rest.split_once('\n')?.0.parse::<i32>().ok()
        };
        let pid = loop {
            match waits() {
                Some(pid) => break pid,
                None => assert!(running.is_running(), "{}", running.messages()),
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert!(hindsight_lab::kill(running.id(), signal));
        let done = running.finish();
        if signal == libc::SIGTERM {
            assert_eq!(done.status.code(), None, "{}", done.messages());
        } else {
            let json: Value = serde_json::from_slice(&done.stdout).unwrap();
            assert_eq!(done.status.code(), Some(1), "{json}");
            let live = json["difference"]["live"].as_str().unwrap();
            assert!(live.contains("something else stopped"), "{json}");
        }
        hindsight_lab::await_end(pid);
    }
}

/// Debian's lldb does not find its own module by itself.
fn module_of_lldb() -> PathBuf {
    let inside = |folder: &Path, begins: &str| -> Vec<PathBuf> {
        let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let named = all.filter(|e| e.file_name().to_string_lossy().starts_with(begins));
        named.map(|e| e.path()).collect()
    };
    let versions = inside(Path::new("/usr/lib"), "llvm-");
    let pythons = versions
        .iter()
        .flat_map(|v| inside(&v.join("lib"), "python3"));
    let mut all = pythons.map(|p| p.join("dist-packages"));
    all.find(|p| p.join("lldb/embedded_interpreter.py").exists())
        .expect("python3-lldb-14 is missing: scripts/setup installs it")
}

#[test]
fn lldb_arrives_too() {
    let s = Scene::new();
    let program = compile(&s, "program", PROGRAM, &[]);
    let (_, trace) = s.record(&[&program]);
    let mut kinds = std::collections::BTreeSet::new();
    let places = [
        "94%".to_owned(),
        "97%".to_owned(),
        call(&s, &trace, "deep", 20),
    ];
    for place in places {
        let way = route(&s, &trace, &place, &[]);
        let settings = way["settings"].as_array().unwrap();
        kinds.extend(
            settings
                .iter()
                .map(|h| h["kind"].as_str().unwrap().to_owned()),
        );
        let script = s.run(
            s.hindsight(&["breakpath", "--lldb"])
                .arg(&trace)
                .arg(&place),
        );
        std::fs::write(s.path("way.py"), script.stdout).unwrap();
        let mut lldb = s.command("lldb");
        lldb.args(["-x", "-b", "-o", "command script import ./way.py", "--"])
            .arg(&program)
            .env("PYTHONPATH", module_of_lldb());
        let done = s.run(&mut lldb);
        let (position, stops) = (way["position"].as_str().unwrap(), &way["stops"]);
        let arrived = format!("position {position} after {stops} stops");
        assert!(
            done.text().contains(&arrived),
            "{} {}",
            done.text(),
            done.messages()
        );
    }
    assert_eq!(kinds.len(), 2, "only {kinds:?}");
}

//! Live programs that gdb leads to a place of their recording: they begin as the recorded ones did, and where they part is said.

use crate::breakpath::{PROGRAM, arrive, ask, call, route};
use crate::common::compile;
use hindsight_lab::Scene;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

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

/// How long something may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `hindsight` at a terminal. Types each text once the other one is shown. Returns its status and what was shown.
fn at_a_terminal(s: &Scene, arguments: &str, talk: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = s.command("script");
    let hindsight = hindsight_lab::hindsight().display();
    command
        .args(["-qec", &format!("{hindsight} {arguments}"), "/dev/null"])
        .stdin(Stdio::piped());
    let mut running = s.start(&mut command);
    let mut input = running.input();
    let mut from = 0;
    for (until, text) in talk {
        let began = Instant::now();
        while !running.so_far()[from..].contains(until) {
            let shown = running.so_far();
            assert!(running.is_running() && began.elapsed() < LIMIT, "{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
        from = running.so_far().len();
        input.write_all(text.as_bytes()).unwrap();
    }
    let done = running.finish();
    (done.status.code(), done.text())
}

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
fn at_a_terminal_it_asks_and_stays_in_gdb() {
    let s = Scene::new();
    let source = "int end(int n) { return n + 1; } int main(void) { return end(41) - 42; }";
    let program = compile(&s, "program", source, &[]);
    let trace = s.path("asked.hst");
    let mut record = s.recording(&trace, &[program.to_str().unwrap(), "a b", "c\nd"]);
    record
        .env("LD_LIBRARY_PATH", "/nowhere\u{1b}")
        .env("OTHER", "1");
    assert_eq!(s.run(&mut record).status.code(), Some(0));
    let place = call(&s, &trace, "end", 0);
    let run = format!("breakpath {} {place} --run", trace.display());
    let folder = s.path(".").canonicalize().unwrap();
    for answer in ["n\n", "\n", "\u{3}"] {
        let (status, shown) = at_a_terminal(&s, &run, &[("[y/N] ", answer)]);
        assert_ne!(status, Some(0), "{answer:?}: {shown}");
        assert!(!shown.contains("after 1 stops"), "{shown}");
        for said in [
            r"' 'a b' $'c\nd'",
            r"$'LD_LIBRARY_PATH=/nowhere\u001b'",
            "'OTHER=1'",
            &format!("in the directory '{}'", folder.display()),
        ] {
            assert!(shown.contains(said), "{shown}\nis without {said}");
        }
    }
    let talk = [
        ("[y/N] ", "y\n"),
        ("(gdb) ", "print 6 * 7\n"),
        ("(gdb) ", "quit\n"),
        ("(y or n) ", "y\n"),
    ];
    let (status, shown) = at_a_terminal(&s, &run, &talk);
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains(" = 42"), "{shown}");
    let batch = run + " --batch -- -iex 'set width 0'";
    let (status, shown) = at_a_terminal(&s, &batch, &[("[y/N] ", "y\n")]);
    assert_eq!(status, Some(0), "{shown}");
    // What cannot be shown is not asked.
    let mut record = s.recording(&trace, &[&program]);
    s.run(record.env("LONG", "x".repeat(20_000)));
    let run = format!("breakpath {} 99% --run", trace.display());
    let (status, shown) = at_a_terminal(&s, &run, &[]);
    assert_eq!(status, Some(2), "{shown}");
    assert!(shown.contains("too long to be shown"), "{shown}");
}

#[test]
fn it_begins_in_the_recorded_folder_or_not_at_all() {
    let s = Scene::new();
    let folder = s.path("folder");
    std::fs::create_dir(&folder).unwrap();
    let (trace, script) = (s.path("trace.hst"), folder.join("script"));
    let text = "#!/bin/sh\nfor i in 1 2 3; do echo \"$i $1 $PWD\" > here; done\n";
    std::fs::write(&script, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&script, mode).unwrap();
    let mut record = s.recording(&trace, &["./script", "a b"]);
    assert_eq!(s.run(record.current_dir(&folder)).status.code(), Some(0));
    std::fs::remove_file(folder.join("here")).unwrap();
    let mut told = String::new();
    let reached = (90..100).rev().any(|n| {
        let (status, json, said) = lead(&s, &trace, &format!("{n}%"));
        assert_ne!(status, Some(1), "{json} {said}");
        told = said;
        status == Some(0)
    });
    assert!(reached, "{told}");
    assert!(folder.join("here").exists());
    std::fs::remove_dir_all(&folder).unwrap();
    let (status, _, told) = lead(&s, &trace, "99%");
    assert_eq!(status, Some(2));
    assert!(!told.contains("after"), "{told}");
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
        let began = Instant::now();
        let pid = loop {
            if let Some(pid) = waits() {
                break pid;
            }
            let goes_on = running.is_running() && began.elapsed() < LIMIT;
            assert!(goes_on, "{}", running.messages());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(hindsight_lab::kill(running.id(), signal));
        let done = running.finish();
        // No answer, rather than a wrong one.
        assert_eq!(done.status.code(), None, "{}", done.messages());
        assert_eq!(done.text(), "");
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

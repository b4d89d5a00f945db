//! How it is asked for: on a terminal, in JSON, with a debugger, and what ends it.

use super::{NONE, call, copies, record, resume, resumed};
use hindsight_lab::{Done, Scene};
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Runs `hindsight resume` on a terminal, on which this is typed.
fn on_terminal(s: &Scene, trace: &Path, place: &str, typed: &str) -> Done {
    on_terminal_with(s, trace, place, "", typed)
}

/// The same with an option.
fn on_terminal_with(s: &Scene, trace: &Path, place: &str, option: &str, typed: &str) -> Done {
    fs::write(s.path("typed"), typed).unwrap();
    let words = [
        hindsight_lab::hindsight().to_str().unwrap(),
        "resume",
        option,
        trace.to_str().unwrap(),
        place,
    ];
    let mut script = s.command("script");
    script.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]);
    s.run(script.stdin(fs::File::open(s.path("typed")).unwrap()))
}

/// On a terminal it asks, and shows what is run behind all that a recording could make long.
#[test]
fn it_asks_on_a_terminal() {
    let s = Scene::new();
    let (_, trace) = s.record(&[resumed(&s), "pipes".into()]);
    let place = call(&s, &trace, "getppid", 0);
    let no = on_terminal(&s, &trace, &place, "n\n");
    let text = no.text();
    assert_eq!(no.status.code(), Some(1), "{text}");
    assert!(
        text.contains("nothing was run") && !text.contains("goes on\r"),
        "{text}"
    );
    let question = text.find("run it? [y/N]").unwrap();
    let command = text.rfind(" pipes`").unwrap();
    assert!(
        text.find("note: ").unwrap() < command && command < question,
        "{text}"
    );
    // The list is shown with JSON too, which nobody reads to the end.
    let json = on_terminal_with(&s, &trace, &place, "--json", "n\n");
    let text = json.text();
    let (list, question) = (
        text.find("  note: ").unwrap(),
        text.find("run it?").unwrap(),
    );
    assert!(
        text.find("\"notes\":").unwrap() < list && list < question,
        "{text}"
    );
    let yes = on_terminal(&s, &trace, &place, "y\n");
    assert!(yes.text().contains("read 2 to the end"), "{}", yes.text());
    assert_eq!(yes.status.code(), Some(7));
}

/// Scripts get the same lists. `--dry-run` makes nothing.
#[test]
fn json_says_what_will_be_done() {
    let s = Scene::new();
    fs::write(s.path("data"), "12345678").unwrap();
    let (_, trace) = s.record(&[resumed(&s), "rewritten-wholly".into()]);
    let place = call(&s, &trace, "getppid", 0);
    let mut command = s.hindsight(&["resume", "--dry-run", "--json", "--files", "recorded"]);
    command.env("TMPDIR", s.path(""));
    let done = s.run(command.arg(&trace).arg(&place));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let told: serde_json::Value = serde_json::from_str(&done.text()).unwrap();
    assert_eq!(told["position"], place);
    let all = told["descriptors"].as_array().unwrap();
    let copy = all
        .iter()
        .find(|d| d["numbers"] == serde_json::json!([3]))
        .unwrap();
    let text = copy["leads_to"].as_str().unwrap();
    assert!(
        text.starts_with("a copy of ") && text.ends_with(", at 2"),
        "{text}"
    );
    assert_eq!(told["opened_for_writing"], serde_json::json!([]));
    assert!(told["notes"].as_array().unwrap().len() >= 2);
    assert!(copies(&s).is_empty());
}

/// A debugger finds it at the place, and it goes on under it.
#[test]
fn gdb_gets_it_at_the_place() {
    let s = Scene::new();
    let (_, trace) = s.record(&[resumed(&s), "pipes".into()]);
    let place = call(&s, &trace, "getppid", 0);
    let input = "handle SIGSTOP nostop noprint nopass\nhandle SIGPIPE nostop noprint\nbacktrace\ncontinue\nquit\n";
    fs::write(s.path("commands"), input).unwrap();
    let mut command = s.hindsight(&["resume", "--yes", "--gdb"]);
    command.stdin(fs::File::open(s.path("commands")).unwrap());
    let done = s.run(command.arg(&trace).arg(&place));
    let text = done.text();
    assert!(text.contains("getppid"), "{text}{}", done.messages());
    assert!(
        text.contains("exited with code 07"),
        "{text}{}",
        done.messages()
    );

    let mut command = s.hindsight(&["resume", "--yes", "--gdb"]);
    let done = s.run(command.env("PATH", "/nonexistent").arg(&trace).arg(&place));
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(
        done.messages().contains("no gdb in PATH"),
        "{}",
        done.messages()
    );
}

/// Signals that are meant for the command end the process too.
#[test]
fn a_signal_reaches_the_process() {
    let s = Scene::new();
    let script = "import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(12))
os.getppid()
print('ready', flush=True)
if os.path.exists('waits'): time.sleep(600)
";
    let (_, trace) = record(&s, &["/usr/bin/python3", "-c", script]);
    let place = call(&s, &trace, "getppid", 0);
    fs::write(s.path("waits"), "").unwrap();
    let mut command = s.hindsight(&["resume", "--yes"]);
    command.stdin(Stdio::null()).arg(&trace).arg(&place);
    let running = s.start(&mut command);
    assert_eq!(running.first_line(), "ready");
    hindsight_lab::kill(running.id(), libc::SIGTERM);
    let done = running.finish();
    assert_eq!(done.status.code(), Some(12), "{}", done.messages());
}

/// Why the half that makes the process refuses is said, and not that the other one found nobody. That one has yet to send
/// memory then, which is more than the stream between them holds.
#[test]
fn the_reason_is_said() {
    let s = Scene::new();
    // Its working directory has a longer path than any call takes.
    let script = "import os
for i in range(21):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
os.getppid()
";
    let (_, trace) = record(&s, &["/usr/bin/python3", "-c", script]);
    let done = resume(&s, &trace, &call(&s, &trace, "getppid", 0), &NONE);
    let told = done.messages();
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(told.contains("does not fit together"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// A place that the recording does not have is told by the half that reads it.
#[test]
fn a_place_behind_the_end_is_told() {
    let s = Scene::new();
    let (_, trace) = s.record(&[resumed(&s), "pipes".into()]);
    let done = resume(&s, &trace, "0:FFFFFFFF", &NONE);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        !done.messages().contains("has ended"),
        "{}",
        done.messages()
    );
}

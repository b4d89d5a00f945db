//! What a verdict says is so: whatever the program gives out, in whichever process, counts.

use super::rerun;
use hindsight_lab::Scene;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Records a script of a shell, and runs another one with its inputs.
struct Scripts {
    scene: Scene,
    trace: PathBuf,
}

impl Scripts {
    fn recorded(script: &str) -> Scripts {
        let scene = Scene::new();
        fs::write(scene.path("script"), script).unwrap();
        let (_, trace) = scene.record(&["sh", "script"]);
        Scripts { scene, trace }
    }

    fn now(&self, script: &str, words: &[&str]) -> (Option<i32>, Value) {
        fs::write(self.scene.path("script"), script).unwrap();
        let here = self.scene.path("script");
        let mut command = self.scene.hindsight(&["rerun", "--json", "--here"]);
        let done = self
            .scene
            .run(command.arg(here).args(words).arg(&self.trace));
        let report = serde_json::from_slice(&done.stdout);
        let report = report.unwrap_or_else(|e| panic!("{e}: {}", done.messages()));
        (done.status.code(), report)
    }

    /// The verdict on another script, with no options.
    fn verdict(&self, script: &str) -> String {
        let (status, report) = self.now(script, &[]);
        assert_eq!(Some(i64::from(status.unwrap())), report["status"].as_i64());
        // Shown where a test fails.
        println!("{script}: {report:#}");
        report["verdict"].as_str().unwrap().into()
    }
}

#[test]
fn output_of_all_processes_counts() {
    let s = Scripts::recorded("(echo one; echo two >&2); (echo three) | cat; exit 0");
    assert_eq!(
        s.verdict("(echo one; echo two >&2); (echo three) | cat; exit 0"),
        "no-failure"
    );
    assert_eq!(
        s.verdict("(echo other; echo two >&2); (echo three) | cat; exit 0"),
        "other-output"
    );
    assert_eq!(
        s.verdict("(echo one; echo two >&2); (echo tree) | cat; exit 0"),
        "other-output"
    );
    // One that wrote something is not started at all. One that wrote only messages may be missing behind a failure.
    assert_eq!(
        s.verdict("(echo one; echo two >&2); exit 0"),
        "other-output"
    );
    let s = Scripts::recorded("echo one; (echo two); exit 3");
    assert_eq!(s.verdict("echo one; (echo two); exit 0"), "no-failure");
    assert_eq!(s.verdict("echo one; exit 0"), "other-output");
    let s = Scripts::recorded("echo one; (echo two >&2); exit 3");
    assert_eq!(s.verdict("echo one; exit 0"), "no-failure");
}

/// A failure of another process than the first one is no success, though the first one does not care.
#[test]
fn failures_of_all_processes_count() {
    let s = Scripts::recorded("(exit 0); (exit 3); echo end; exit 0");
    assert_eq!(
        s.verdict("(exit 0); (exit 3); echo end; exit 0"),
        "no-failure"
    );
    assert_eq!(
        s.verdict("(exit 0); (exit 0); echo end; exit 0"),
        "no-failure"
    );
    assert_eq!(
        s.verdict("(exit 7); (exit 3); echo end; exit 0"),
        "other-output"
    );
    assert_eq!(
        s.verdict("(exit 0); (kill -9 $$; :); echo end; exit 0"),
        "other-output"
    );
}

/// What the recorded program would have read behind its failure nobody knows.
#[test]
fn what_is_made_up_behind_a_failure_is_told() {
    let s = Scene::new();
    let trace = s.path("trace.hst");
    fs::write(s.path("script"), "read a; echo $a; exit 3").unwrap();
    let mut recording = s.recording(&trace, &["sh", "script"]);
    let mut feed = Command::new("echo")
        .arg("one")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    recording.stdin(feed.stdout.take().unwrap());
    s.run(&mut recording);
    feed.wait().unwrap();
    let s = Scripts { scene: s, trace };
    let (status, report) = s.now("read a; echo $a; read b; exit 0", &[]);
    assert_eq!(status, Some(0), "{report:#}");
    assert!(
        report["notes"]
            .to_string()
            .contains("behind the recorded failure"),
        "{report:#}"
    );
}

/// A program that ends early has not printed what the recorded one printed later.
#[test]
fn what_is_not_printed_any_more_counts() {
    let lines = |n: u32| format!("i=0; while [ $i -lt {n} ]; do echo $i; i=$((i+1)); done; ");
    let s = Scripts::recorded(&format!("{}exit 3", lines(400)));
    assert_eq!(s.verdict(&format!("{}exit 0", lines(400))), "no-failure");
    assert_eq!(s.verdict(&format!("{}exit 0", lines(401))), "no-failure");
    assert_eq!(s.verdict(&format!("{}exit 0", lines(399))), "other-output");
    assert_eq!(s.verdict("echo 0; exit 0"), "other-output");
    // Nor has a child of it, which failed before and fails no more, or in another way.
    let asks = "i=0; while [ $i -lt 2000 ]; do [ -e no-$i ]; i=$((i+1)); done; echo late; ";
    let s = Scripts::recorded(&format!("({asks}exit 3); echo end; exit 0"));
    let child = |script: &str| s.verdict(&format!("({script}); echo end; exit 0"));
    assert_eq!(child(&format!("{asks}exit 0")), "no-failure");
    assert_eq!(child("exit 0"), "other-output");
}

/// The program writes in one call what the recorded one wrote in many, and not all of them are loaded when it does.
#[test]
fn a_difference_far_behind_in_one_call_counts() {
    let s = Scripts::recorded("perl -e 'syswrite(STDOUT, \"a\" x 500) for 1..100'");
    for (at, verdict) in [
        (50_000, "no-failure"),
        (40_000, "other-output"),
        (7, "other-output"),
    ] {
        let script = format!(
            "perl -e '$x = \"a\" x 50_001; substr($x, {at}, 1) = \"b\"; syswrite(STDOUT, $x, 50_000)'"
        );
        assert_eq!(s.verdict(&script), verdict, "{at}");
    }
}

#[test]
fn changes_of_files_count() {
    let s = Scripts::recorded("exit 3");
    let (status, report) = s.now("echo x > made; exit 0", &[]);
    assert_eq!(
        (status, &report["effects_not_done"]),
        (Some(0), &1.into()),
        "{report:#}"
    );
    assert!(report["notes"].to_string().contains("made"), "{report:#}");
    assert!(!s.scene.path("made").exists());
    let s = Scripts::recorded("echo x > made; exit 0");
    assert_eq!(s.verdict("echo x > made; exit 0"), "no-failure");
    assert_eq!(s.verdict("echo y > made; exit 0"), "other-output");
    assert_eq!(
        s.verdict("echo x > made; echo x > more; exit 0"),
        "other-output"
    );
    assert_eq!(s.verdict("exit 0"), "other-output");
    // Who does not want to know of files is not told.
    let (status, report) = s.now("exit 0", &["--outputs", "skip"]);
    assert_eq!(status, Some(0), "{report:#}");
    let (status, report) = s.now("echo y > made; echo more; exit 0", &["--outputs", "skip"]);
    assert_eq!(status, Some(4), "{report:#}");
}

/// The same bytes elsewhere in the file are another output.
#[test]
fn where_output_goes_counts() {
    let script = |change: (&str, &str)| {
        let all = "open(F, \">\", \"made\"); syswrite(F, \"ab\"); sysseek(F, 100, 0); syswrite(F, \"cd\"); \
            truncate(F, 500); chmod(0600, \"made\")";
        assert!(all.contains(change.0));
        format!("perl -e '{}'", all.replacen(change.0, change.1, 1))
    };
    let s = Scripts::recorded(&script(("", "")));
    for (from, to, verdict) in [
        ("", "", "no-failure"),
        (
            "sysseek(F, 100, 0); ",
            "sysseek(F, 0, 1); sysseek(F, 98, 1); ",
            "no-failure",
        ),
        (
            "sysseek(F, 100, 0); ",
            "sysseek(F, 100, 0); sysseek(F, 100, 0); ",
            "no-failure",
        ),
        ("100", "50", "other-output"),
        ("sysseek(F, 100, 0); ", "", "other-output"),
        ("\">\"", "\">>\"", "other-output"),
        ("500", "501", "other-output"),
        ("0600", "0644", "other-output"),
    ] {
        assert_eq!(s.verdict(&script((from, to))), verdict, "{from} {to}");
    }
    let (_, report) = s.now(&script(("100", "50")), &[]);
    let o = &report["outputs"][0];
    assert_eq!(
        (&o["same"], &o["to"]),
        (&2.into(), &"made".into()),
        "{report:#}"
    );
    assert_eq!(o["now"], "(to byte 50 of the file)");
}

#[test]
fn messages_are_compared_with_what_stands_before_a_colon() {
    let s = Scripts::recorded("echo \"KeyError: 'a'\" >&2; exit 1");
    let said = |text: &str| s.verdict(&format!("echo \"{text}: 'a'\" >&2; exit 1"));
    assert_eq!(said("KeyError"), "same-failure");
    assert_eq!(said("ValueError"), "other-failure");
}

#[test]
fn processes_that_are_left_behind_go_on_to_their_end() {
    let late = "(sleep 0.3; echo late) & exit 0";
    let s = Scripts::recorded(late);
    assert_eq!(s.verdict(late), "no-failure");
    let (_, report) = s.now("(sleep 0.3; while :; do :; done) & exit 0", &[]);
    assert_eq!(report["verdict"], "other-output", "{report:#}");
    assert!(
        report["notes"].to_string().contains("still ran"),
        "{report:#}"
    );
}

/// Nobody reads the output any more. That is no verdict.
#[test]
fn a_reader_that_goes_away_changes_no_verdict() {
    let lines = "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done; exit 3";
    let s = Scripts::recorded(lines);
    for json in [None, Some("--json")] {
        // It is told by an error, or by a signal that ends it.
        for (trap, ends) in [
            ("trap '' PIPE; exec \"$@\"", Some(1)),
            ("exec \"$@\"", None),
        ] {
            let mut command = s.scene.command("sh");
            command.args(["-c", trap, "sh", env!("CARGO_BIN_EXE_hindsight"), "rerun"]);
            command.args(json).arg(&s.trace);
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            drop(child.stdout.take());
            assert_eq!(child.wait().unwrap().code(), ends, "{json:?} {trap}");
        }
    }
}

/// The same function is the same place, though the program has no lines and its code has moved.
#[test]
fn a_crash_elsewhere_in_the_same_function_is_the_same() {
    let s = Scene::new();
    let build = |name: &str, before: &str, function: &str| {
        let source = format!(
            "#include <stdlib.h>\n__attribute__((noinline)) int {function}(int *p) {{ {before} return *p; }}\n\
             int main(int c, char **v) {{ return {function}(c > 9 ? &c : 0) + 1; }}\n"
        );
        fs::write(s.path("crash.c"), source).unwrap();
        let program = s.path(name);
        let mut cc = Command::new("cc");
        let done = cc
            .args(["-O1", "-w", "-o"])
            .arg(&program)
            .arg(s.path("crash.c"));
        assert!(done.status().unwrap().success());
        program.to_str().unwrap().to_owned()
    };
    let (_, trace) = s.record(&[build("a", "", "parse")]);
    let moved = "static volatile int n; n = getenv(\"X\") != 0; n *= 3; n += 7; n *= 5;";
    for (name, before, function, verdict) in [
        ("a", "", "parse", "same-failure"),
        ("b", moved, "parse", "same-failure"),
        ("c", moved, "print", "other-failure"),
    ] {
        let (_, report) = rerun(&s, &trace, &[build(name, before, function)]);
        assert_eq!(report["verdict"], verdict, "{name}: {report:#}");
    }
}

/// Names that were made up stand for recorded ones, which is told. Another name is another folder, or file.
#[test]
fn a_new_file_or_folder_may_have_another_name_only_if_that_was_made_up() {
    for code in [
        "mkdir $ARGV[0]; mkdir qq($ARGV[0]/in)",
        "sysopen F, $ARGV[0], 193; unlink $ARGV[0]",
    ] {
        let s = Scene::new();
        let words = |name: &'static str| ["/usr/bin/perl", "-e", code, name];
        let (_, trace) = s.record(&words("made-AbCdEf"));
        let report = |name| rerun(&s, &trace, &[&["--"], &words(name)[..]].concat()).1;
        let other = report("made-AbCdEg");
        assert_eq!(other["verdict"], "other-output", "{other:#}");
        assert_eq!(other["agrees"], false, "{other:#}");
        let made_up = report("made-QwErTy");
        assert_eq!(made_up["agrees"], true, "{made_up:#}");
        let notes = made_up["notes"].to_string();
        assert!(
            notes.contains("made-QwErTy") && notes.contains("made-AbCdEf"),
            "{notes}"
        );
        assert_eq!(report("made-AbCdEf")["notes"], serde_json::json!([]));
    }
}

//! The store of recordings, what a recorded program inherits, messages and statuses.

use std::process::{Command, Output};

struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Store {
        Store(tempfile::tempdir().unwrap())
    }

    fn hindsight(&self, args: &[&str]) -> Output {
        let mut c = Command::new(env!("CARGO_BIN_EXE_hindsight"));
        c.env("HINDSIGHT_DIR", self.0.path())
            .args(args)
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let o = self.hindsight(args);
        assert_eq!(
            o.status.code(),
            Some(0),
            "{args:?}: {}",
            String::from_utf8_lossy(&o.stderr)
        );
        String::from_utf8(o.stdout).unwrap()
    }

    /// The path of a file beside the recordings.
    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().into()
    }

    /// What `ls --json` prints.
    fn list(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["ls", "--json"])).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.list()
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].as_str().unwrap().into())
            .collect()
    }
}

#[test]
fn a_processor_is_chosen_where_a_recording_is_read() {
    let s = Store::new();
    s.ok(&["record", "-q", "/bin/true"]);
    s.ok(&["at", "--processor", "interpreter"]);
    for (args, words) in [
        (
            ["record", "--processor=native", "true"],
            "commands that read a recording",
        ),
        (["at", "end", "--processor=both"], "replay --verify"),
    ] {
        let o = s.hindsight(&args);
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(
            o.status.code() == Some(2) && said.contains(words),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn the_last_few_of_each_program_are_kept() {
    let s = Store::new();
    assert!(s.names().is_empty());
    s.ok(&["record", "-q", "/bin/echo", "1"]);
    for _ in 0..4 {
        s.ok(&["record", "-q", "--keep", "2", "/bin/true"]);
    }
    let names = s.names();
    let count = |p: &str| names.iter().filter(|n| n.starts_with(p)).count();
    assert_eq!(
        (count("true-"), count("echo-"), names.len()),
        (2, 1, 3),
        "{names:?}"
    );
    // Without a name, the latest recording is meant.
    let info = s.ok(&["info", "--json"]);
    assert!(info.contains(names.last().unwrap()), "{info}");
    s.ok(&["rm", &names[0]]);
    assert_eq!(s.names(), names[1..]);
    s.ok(&["info", &names[1]]);
    s.ok(&["info", &format!("{}.hst", names[1])]);
    assert_eq!(s.hindsight(&["rm", "no-such-name"]).status.code(), Some(2));
    assert_eq!(s.hindsight(&["rm", "../elsewhere"]).status.code(), Some(2));
    let gone = s.ok(&["rm", "--all", "--json"]);
    let gone: serde_json::Value = serde_json::from_str(&gone).unwrap();
    let gone = gone.as_array().unwrap();
    assert!(
        gone.len() == 2
            && gone
                .iter()
                .all(|g| g["removed"] == true && g["error"].is_null()),
        "{gone:?}"
    );
    assert!(s.names().is_empty());
    assert_eq!(s.hindsight(&["info"]).status.code(), Some(2));
}

#[test]
fn what_could_not_be_started_leaves_nothing_behind() {
    let s = Store::new();
    for (program, status) in [
        ("no-such-program", 127),
        ("/etc/passwd", 126),
        ("/etc", 126),
    ] {
        let o = s.hindsight(&["record", program]);
        assert_eq!(o.status.code(), Some(status), "{program}");
        assert!(!o.stderr.is_empty());
    }
    assert!(s.names().is_empty());
}

#[test]
fn other_files_in_the_store_are_left_alone() {
    let s = Store::new();
    let other = s.0.path().join("notes.txt");
    std::fs::write(&other, "mine").unwrap();
    std::fs::write(s.0.path().join("broken-1.hst"), "no trace").unwrap();
    let list = s.ok(&["ls"]);
    assert!(
        list.contains("broken-1") && !list.contains("notes"),
        "{list}"
    );
    s.ok(&["rm", "--all"]);
    assert!(other.exists());
}

/// The copies of files in the store.
fn copies(s: &Store) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(s.0.path().join("files")).unwrap();
    let all = all.map(|e| e.unwrap().path());
    let named = |p: &std::path::PathBuf| p.file_name().unwrap().len() == 32;
    all.filter(named).collect()
}

#[test]
fn recordings_in_the_store_share_copies_of_files() {
    let s = Store::new();
    s.ok(&["record", "-q", "/bin/true"]);
    s.ok(&["record", "-q", "/bin/true"]);
    s.ok(&["record", "-q", "/bin/echo", "1"]);
    let all = s.list();
    for r in all.as_array().unwrap() {
        let (own, shared) = (
            r["bytes"].as_u64().unwrap(),
            r["shared_bytes"].as_u64().unwrap(),
        );
        assert!(own < 100_000 && shared > 3 * own, "{r}");
    }
    assert_eq!(all[0]["shared_bytes"], all[1]["shared_bytes"]);
    for n in s.names() {
        s.ok(&["replay", "--verify", &n]);
    }
    let before = copies(&s).len();
    s.ok(&["rm", &s.names()[2]]);
    // The libraries of the other recordings stay.
    assert!((3..before).contains(&copies(&s).len()));
    s.ok(&["replay", "--verify", &s.names()[0]]);
}

/// A recording that has all itself takes what the store has packed, and does not need the store afterwards.
#[test]
fn a_recording_elsewhere_copies_files_from_the_store() {
    let s = Store::new();
    s.ok(&["record", "-q", "/bin/true"]);
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let time = |p: &std::path::PathBuf| p.metadata().unwrap().modified().unwrap();
    for copy in copies(&s) {
        let file = std::fs::File::open(&copy).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let other = tempfile::tempdir().unwrap();
    let alone = other.path().join("alone.hst");
    let alone = alone.to_str().unwrap();
    s.ok(&["record", "-q", "-o", alone, "/bin/true"]);
    // What is used says so by its time.
    let used = copies(&s).iter().filter(|c| time(c) > long_ago).count();
    assert!(used >= 2, "{used} of {}", copies(&s).len());
    s.ok(&["rm", "--all"]);
    assert_eq!(copies(&s).len(), 0);
    let verified = s.ok(&["replay", "--verify", alone]);
    assert!(verified.contains("verified"), "{verified}");
    let message = s.hindsight(&["replay", "--verify", alone]).stderr;
    assert!(!String::from_utf8_lossy(&message).contains("export"));
}

#[test]
fn a_recording_that_is_taken_elsewhere_needs_its_files() {
    let s = Store::new();
    s.ok(&["record", "-q", "/bin/true"]);
    let other = tempfile::tempdir().unwrap();
    let alone = other.path().join("alone.hst");
    let alone = alone.to_str().unwrap();
    let stored = s.0.path().join(format!("{}.hst", s.names()[0]));
    std::fs::copy(stored, alone).unwrap();
    // The files of this machine have not changed.
    let o = s.hindsight(&["replay", "--verify", alone]);
    let message = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(0), "{message}");
    assert!(
        message.contains("hindsight export") && message.contains("is used instead"),
        "{message}"
    );
    let o = s.hindsight(&["export", &s.names()[0], "-o", alone]);
    assert_eq!(o.status.code(), Some(2), "no file is overwritten");
    std::fs::remove_file(alone).unwrap();
    let made = s.ok(&["export", &s.names()[0], "-o", alone, "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let size = std::fs::metadata(alone).unwrap().len();
    assert_eq!(made, serde_json::json!({"path": alone, "bytes": size}));
    let o = s.hindsight(&["export", &s.names()[0], "-o", "-", "--json"]);
    assert!(
        o.status.code() == Some(2) && o.stdout.is_empty(),
        "two things to one place"
    );
    s.ok(&["replay", "--verify", alone]);
    let o = s.hindsight(&["export", &s.names()[0], "-o", "-"]);
    assert_eq!(o.stdout, std::fs::read(alone).unwrap());
}

#[test]
fn a_recording_of_a_program_that_has_changed_needs_its_copy() {
    let s = Store::new();
    let other = tempfile::tempdir().unwrap();
    let program = other.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    s.ok(&["record", "-q", program.to_str().unwrap()]);
    let stored = s.0.path().join(format!("{}.hst", s.names()[0]));
    let moved = other.path().join("moved.hst");
    std::fs::copy(stored, &moved).unwrap();
    std::fs::OpenOptions::new()
        .append(true)
        .open(&program)
        .and_then(|mut f| std::io::Write::write_all(&mut f, b"more"))
        .unwrap();
    let o = s.hindsight(&["replay", "--verify", moved.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(2), "{message}");
    assert!(
        message.contains("hindsight export") && message.contains("/files/"),
        "{message}"
    );
}

#[test]
fn a_copy_of_a_file_that_is_missing_is_named() {
    let s = Store::new();
    s.ok(&["record", "-q", "/bin/true"]);
    let alone = s.file("alone.hst");
    let gone = copies(&s)[0].clone();
    std::fs::remove_file(&gone).unwrap();
    let o = s.hindsight(&["export", &s.names()[0], "-o", &alone]);
    let message = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(2), "{message}");
    assert!(message.contains(gone.to_str().unwrap()), "{message}");
    assert!(!std::path::Path::new(&alone).exists());
    assert!(s.ok(&["ls"]).contains(gone.to_str().unwrap()));
    s.ok(&["rm", "--all"]);
    assert_eq!(copies(&s).len(), 0);
}

#[test]
fn recordings_have_their_own_files_or_share_them_as_they_are_told() {
    let s = Store::new();
    s.ok(&["record", "-q", "--self-contained", "/bin/true"]);
    assert!(!s.0.path().join("files").exists() || copies(&s).is_empty());
    assert_eq!(s.list()[0]["shared_bytes"], 0);
    // What a ring held at the end shares files, too.
    s.ok(&[
        "record",
        "-q",
        "--ring",
        "8M",
        "--keep-on",
        "always",
        "/bin/true",
    ]);
    assert!(!copies(&s).is_empty());
    s.ok(&["replay", "--verify"]);
}

/// Runs `line` in a shell after `before`, natively and recorded.
fn both(before: &str, line: &str) -> [String; 2] {
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    let dir = tempfile::tempdir().unwrap();
    [
        "",
        &format!(
            "{hindsight} record -q -o {} ",
            dir.path().join("t.hst").display()
        ),
    ]
    .map(|prefix| {
        let script = format!("{before}; {prefix}{line}");
        let o = Command::new("/bin/sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert!(
            o.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&o.stderr)
        );
        String::from_utf8(o.stdout).unwrap()
    })
}

#[test]
fn a_program_inherits_what_it_would_without_us() {
    let signals = "/bin/grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    for before in [":", "trap '' PIPE CHLD HUP", "trap '' INT TERM"] {
        let [native, recorded] = both(before, signals);
        let ignored = |s: &str| {
            s.lines()
                .filter(|l| !l.starts_with("SigCgt"))
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(ignored(&native), ignored(&recorded), "{before}");
    }
    for before in [":", "exec 0<&-", "exec 5</dev/null", "ulimit -n 50"] {
        let [native, recorded] = both(before, "/bin/ls /proc/self/fd/");
        assert_eq!(native, recorded, "{before}");
    }
    let [native, recorded] = both("cd /usr/lib; export A=b", "/usr/bin/env");
    assert_eq!(native, recorded);
}

#[test]
fn an_instruction_that_is_not_supported_is_named() {
    let s = Store::new();
    let source = s.0.path().join("odd.c");
    let program = s.0.path().join("odd");
    // The 32-bit system call interface.
    let c = r#"
        void odd_one(void) { __asm__ volatile("mov $20, %%eax; int $0x80" ::: "rax", "memory"); }
        int main(void) { odd_one(); return 0; }
    "#;
    std::fs::write(&source, c).unwrap();
    let gcc = Command::new("gcc")
        .arg("-O1")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(gcc.expect("gcc (scripts/setup installs it)").success());
    let o = s.hindsight(&["record", program.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(125));
    let message = String::from_utf8(o.stderr).unwrap();
    for part in ["cd 80", "odd_one+", "/odd+0x", ".hst"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(s.ok(&["ls"]).contains("not recorded further"));
    assert!(s.ok(&["info"]).contains("odd_one+"));
    assert!(s.ok(&["replay", "--verify"]).contains("verified"));
}

#[test]
fn mistakes_on_the_command_line_have_a_status_of_their_own() {
    let s = Store::new();
    assert_eq!(
        s.hindsight(&["record", "--predictor", "cache:3k", "true"])
            .status
            .code(),
        Some(125)
    );
    for option in ["--only-module=", "--skip-module=", "--output=", "--from="] {
        let o = s.hindsight(&["record", option, "true"]);
        assert_eq!(o.status.code(), Some(125), "{option}");
        let message = String::from_utf8(o.stderr).unwrap();
        assert!(message.contains("invalid value ''"), "{option}: {message}");
    }
    assert_eq!(
        s.hindsight(&["info", "--no-such-option"]).status.code(),
        Some(2)
    );
    assert_eq!(s.hindsight(&["replay"]).status.code(), Some(2));
    assert_eq!(s.hindsight(&["--version"]).status.code(), Some(0));
}

#[test]
fn what_a_recording_does_not_have_is_an_error_and_said_once() {
    let s = Store::new();
    s.ok(&["record", "-q", "-o", &s.file("a.hst"), "/bin/true"]);
    let (a, gone) = (&*s.file("a.hst"), &*s.file("gone.hst"));
    let wrong = |args: &[&str], words: &str| {
        let o = s.hindsight(args);
        let (out, message) = (o.stdout, String::from_utf8(o.stderr).unwrap());
        assert_eq!(o.status.code(), Some(2), "{args:?}: {message}");
        assert!(out.is_empty(), "{args:?}");
        assert_eq!(message.matches(words).count(), 1, "{args:?}: {message}");
    };
    for command in [
        "info", "events", "output", "data", "audit", "index", "export", "rerun",
    ] {
        wrong(&[command, "/"], "Is a directory");
        wrong(&[command, gone], "No such file");
    }
    wrong(&["replay", "/"], "Is a directory");
    wrong(&["replay", "--verify", gone], "No such file");
    wrong(&["replay", "--verify", "/dev/null"], "not a regular file");
    wrong(&["events", a, "--thread", "99"], "no thread 99");
    wrong(&["events", a, "--image", "99"], "no program image 99");
    wrong(&["calls", a, "0x1000", "--thread", "99"], "no thread 99");
    wrong(&["output", a, "--thread", "99"], "no thread 99");
    wrong(&["output", a, "--image", "99"], "no program image 99");
    wrong(&["output", a, "--from", "crash"], "no signal killed");
    wrong(&["data", a, "--thread", "99"], "no thread 99");
    wrong(&["data", a, "--raw", "--fd", "1"], "say --in or --out");
    wrong(&["audit", a, "--extract", a], "cannot open the folder");
    wrong(&["rerun", a, "--here", gone], "No such file");
    wrong(&["rerun", a, "./gone"], "cannot start");
    wrong(
        &["calls", a, "0x1000", "--image", "99"],
        "no program image 99",
    );
    wrong(
        &["writes", a, "0x1000", "8", "--image", "99"],
        "no program image 99",
    );
    wrong(&["replay", a, "--process", "99"], "no program image 99");
    wrong(&["mem", a, "end", "0x1000", "0"], "at least one byte");
    wrong(&["maps", a, "end", "--image", "99"], "no program image 99");
    wrong(&["maps", a, "--address", "0x10"], "no mapping is known");
    wrong(&["maps", a, "--address", "nothing"], "nothing here");
    let b = &*format!("{a}@nowhere");
    wrong(&["symbol", b, "main"], "nowhere is no place");
    wrong(&["symbol", &format!("{gone}@end"), "main"], "No such file");
    wrong(
        &["symbol", a, "main", "7f12"],
        "7f12: expected a number, hexadecimal with 0x",
    );
    wrong(
        &["symbol", a, "main", "--image", "99"],
        "no program image 99",
    );
    wrong(&["writes", a, "0x1000", "0"], "at least one byte");
    wrong(&["mem", a, "end", "0", "0x100001"], "at most a mebibyte");
    wrong(&["writes", a, "0", "0xffffffff"], "at most a mebibyte");
    wrong(&["replay", "--verify", a, "--jobs", "0"], "at least 1");
    wrong(&["index", a, "--jobs", "0"], "at least 1");
    // These exist.
    assert!(!s.ok(&["events", a, "--image", "1"]).is_empty());
}

#[test]
fn completions_are_printed() {
    let s = Store::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = s.ok(&["completions", shell]);
        assert!(script.contains("record"));
        // It is a script, and no text for a terminal. The one for fish has tabs.
        assert!(!script.lines().any(|l| l.starts_with("\\t")), "{script}");
    }
}

/// Failed output is an error. It is not reported as a bug.
#[test]
fn a_full_device_is_reported() {
    let s = Store::new();
    let a = &s.file("a.hst");
    s.ok(&["record", "-o", a, "--", "/bin/true"]);
    for command in [
        &["completions", "bash"][..],
        &["info", a],
        &["events", a],
        &["cache"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let o = Command::new(env!("CARGO_BIN_EXE_hindsight"))
            .env("HINDSIGHT_DIR", s.0.path())
            .args(command)
            .stdout(full.unwrap())
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("standard output: No space"), "{said}");
    }
}

#[test]
fn what_has_nothing_to_verify_is_not_verified() {
    let s = Store::new();
    let file = s.file("nothing.hst");
    let o = s.hindsight(&["record", "-o", &file, "--from", "no_such_function", "true"]);
    assert_eq!(o.status.code(), Some(0));
    let o = s.hindsight(&["replay", "--verify", &file]);
    let (text, messages) = (
        String::from_utf8(o.stdout).unwrap(),
        String::from_utf8(o.stderr).unwrap(),
    );
    assert_eq!(o.status.code(), Some(3), "{text}{messages}");
    assert!(text.starts_with("NOT VERIFIED: "), "{text}");
    let o = s.hindsight(&["replay", "--verify", "--json", &file]);
    assert_eq!(o.status.code(), Some(3));
    let json: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(
        (&json["verified"], &json["nothing"]),
        (&false.into(), &true.into())
    );
    // Commands that have something to report have statuses and words of their own.
    s.ok(&["record", "-q", "-o", &file, "true"]);
    assert!(s.ok(&["replay", "--verify", &file]).starts_with("verified"));
}

#[test]
fn near_names_are_offered_for_those_that_nothing_has() {
    let s = Store::new();
    let file = s.file("near.hst");
    let source = s.file("near.c");
    let c = "int count_words(int n) { return n + 1; } int main(int n, char **v) { return count_words(n) - 2; }";
    std::fs::write(&source, c).unwrap();
    let program = s.file("near");
    let gcc = Command::new("gcc")
        .args(["-O0", "-o", &program, &source])
        .status();
    assert!(gcc.expect("gcc (scripts/setup installs it)").success());
    let said = |args: &[&str], status| {
        let o = s.hindsight(args);
        let messages = String::from_utf8(o.stderr).unwrap();
        assert_eq!(o.status.code(), Some(status), "{args:?}: {messages}");
        messages
    };
    let recorded = said(
        &["record", "-o", &file, "--from", "cuont_words", &program],
        0,
    );
    assert!(recorded.contains("did you mean count_words?"), "{recorded}");
    s.ok(&["record", "-q", "-o", &file, &program]);
    for (args, near) in [
        (["calls", &file, "count_wrods"], "did you mean count_words?"),
        (["events", &file, "--syscall=wirte"], "did you mean write?"),
        (
            ["at", &file, "syscall:exit_gruop"],
            "did you mean exit_group?",
        ),
    ] {
        let message = said(&args, 2);
        assert!(message.contains(near), "{args:?}: {message}");
    }
    s.ok(&["at", &file, "syscall:exit_group"]);
    said(&["at", &file, "syscall:exit_group:2"], 2);
}

#[test]
fn times_of_events_never_run_backwards() {
    let s = Store::new();
    let file = s.file("times.hst");
    let script = "for i in 1 2 3; do (sleep 0.01; echo $i) & done; echo a | cat | cat; wait";
    s.ok(&["record", "-q", "-o", &file, "sh", "-c", script]);
    let list: serde_json::Value =
        serde_json::from_str(&s.ok(&["events", "--time", "--json", &file])).unwrap();
    let mut last = [0.0; 3];
    let mut known = 0;
    for e in list.as_array().unwrap() {
        let Some(seconds) = e["time"]["seconds"].as_f64() else {
            continue;
        };
        let [since, until] = ["since", "until"].map(|k| e["time"][k].as_f64().unwrap());
        assert!(since <= seconds && seconds <= until, "{e}");
        let now = [since, seconds, until];
        assert!(
            now.iter().zip(&last).all(|(n, l)| n >= l),
            "{e} after {last:?}"
        );
        (last, known) = (now, known + 1);
    }
    assert!(known > 100, "{known}");
}

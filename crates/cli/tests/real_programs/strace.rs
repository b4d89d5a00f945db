//! System calls in words, compared with what strace says of the same programs.

use hindsight_lab::{Scene, words};
use std::ffi::OsString;
use std::path::Path;

/// A line without what differs from run to run: addresses, ids, sizes, times. Flags are sorted.
fn normal(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // strace adds the date to some times. We do not.
    let line = match line.split_once(" /* 1970-") {
        Some((before, after)) => before.to_owned() + after.split_once("*/").map_or("", |a| a.1),
        None => line,
    };
    // The kernel numbers message queues one after the other, for all programs.
    let ids = line.starts_with("msg");
    let mut out = String::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut last = ' ';
    for c in line.chars().chain([' ']) {
        if c == '"' && last != '\\' {
            quoted = !quoted;
        }
        last = c;
        if c.is_alphanumeric() || matches!(c, '_' | '|') {
            word.push(c);
            continue;
        }
        out += &match quoted {
            true => std::mem::take(&mut word),
            false => plain(&std::mem::take(&mut word), ids),
        };
        out.push(c);
    }
    out.trim_end().into()
}

/// A word that is not in quotes. `ids`: small numbers may be ids, too.
fn plain(word: &str, ids: bool) -> String {
    if word.contains('|') {
        let mut flags: Vec<&str> = word.split('|').collect();
        flags.sort_unstable();
        return flags.join("|");
    }
    let is_large = word.parse::<u64>().is_ok_and(|n| ids || n > 99) && !word.starts_with('0');
    let is_address = word.starts_with("0x") && word.len() > 6;
    match (is_large, is_address) {
        (true, _) => "N".into(),
        (_, true) => "X".into(),
        _ => word.into(),
    }
}

/// The calls that strace saw. The first one is the `execve` that started the program.
fn straced(scene: &Scene, argv: &[OsString]) -> Vec<String> {
    let out = scene.path("strace.out");
    let done = scene.run(scene.command("strace").arg("-o").arg(&out).args(argv));
    let text = std::fs::read_to_string(&out)
        .unwrap_or_else(|e| panic!("strace: {e}: {}", done.messages()));
    let calls = text.lines().skip(1);
    let is_call = |l: &&str| !l.starts_with("+++") && !l.starts_with("---");
    calls.filter(is_call).map(normal).collect()
}

/// The calls of the recording, by the thread that made the first one.
fn recorded(scene: &Scene, argv: &[OsString], trace: &Path) -> Vec<String> {
    scene.run(&mut scene.recording(trace, argv));
    let args = ["events", "--kind", "syscall"];
    let done = scene.run(scene.hindsight(&args).arg(trace));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let text = done.text();
    // Position, thread, and call.
    let calls = text.lines().filter_map(|l| {
        let (_, rest) = l.trim_start().split_once(' ')?;
        rest.trim_start().split_once(' ')
    });
    let first = calls.clone().next().map(|c| c.0);
    let of_first = calls.filter(|c| Some(c.0) == first);
    of_first.map(|c| normal(c.1)).collect()
}

/// Calls that differ on purpose: random numbers, and calls that the recorder answers. For a return from a handler,
/// strace shows where it goes.
const OTHERWISE: [&str; 3] = ["getrandom", "rseq", "rt_sigreturn"];

/// Compares call by call. All names must agree, and nearly all lines. The others are printed: another version of strace
/// or of the kernel may use other names, and the rest of a timeout varies.
fn compared(argv: &[OsString]) {
    let scene = Scene::new();
    let trace = scene.path("calls.hst");
    let (theirs, ours) = (straced(&scene, argv), recorded(&scene, argv, &trace));
    let name = |l: &String| l.split('(').next().unwrap_or_default().to_owned();
    let names = |all: &[String]| all.iter().map(name).collect::<Vec<_>>();
    let differs = theirs.iter().zip(&ours).find(|(a, b)| name(a) != name(b));
    assert_eq!(differs, None, "{argv:?}");
    assert_eq!(names(&theirs), names(&ours), "{argv:?}");
    let (mut all, mut same) = (0, 0);
    for (their, our) in theirs.iter().zip(&ours) {
        if OTHERWISE.contains(&name(our).as_str()) {
            continue;
        }
        all += 1;
        match their == our {
            true => same += 1,
            false => println!("strace: {their}\n   here: {our}"),
        }
    }
    println!("{argv:?}: {same} of {all}");
    assert!(100 * same >= 95 * all, "{argv:?}: {same} of {all}");
}

fn argv(all: &[&str]) -> Vec<OsString> {
    all.iter().map(OsString::from).collect()
}

#[test]
fn calls_of_all_kinds_are_shown_as_strace_does() {
    let scene = Scene::new();
    let program = scene.compile("calls.c", &[]);
    compared(&words(&program, &[]));
}

#[test]
fn calls_of_common_programs_are_shown_as_strace_does() {
    compared(&argv(&["ls", "-l", "/usr"]));
    compared(&argv(&["cat", "/etc/passwd", "/nonexistent"]));
    // Not Python: its use of memory depends on the seeds of its hashes.
}

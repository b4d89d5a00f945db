//! Recording by threads of a process that does other things too.

use hindsight_launch::{AttachError, Destination, Ending, Error, KeepOn, Recording, Status, Unfit};
use hindsight_trace::{Completeness, Trace};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// The end of a recording that is whole, and how many instructions it has.
fn whole(path: &Path) -> (Option<Ending>, u64) {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.completeness(), Completeness::Complete);
    let summary = trace.summary().unwrap();
    (summary.ending.clone(), summary.totals.instructions)
}

#[test]
fn programs_are_recorded_side_by_side() {
    let d = tempfile::tempdir().unwrap();
    let start = |n: i32| {
        let file = d.path().join(format!("{n}.hst"));
        let out = File::create(d.path().join(format!("{n}.txt"))).unwrap();
        let recording = Recording::builder("sh")
            .args(["-c", "read line; echo $line $NUMBER; pwd; exit $NUMBER"])
            .env("NUMBER", n.to_string())
            .current_dir(d.path())
            .stdin(File::open("/proc/sys/kernel/ostype").unwrap())
            .stdout(out)
            .destination(Destination::File(file))
            .cache(false)
            .start()
            .unwrap();
        assert!(recording.pid() > 1);
        recording
    };
    let all: Vec<Recording> = (1..4).map(start).collect();
    for (n, recording) in (1..4).zip(all) {
        let outcome = recording.wait().unwrap();
        assert_eq!(outcome.status, Some(Status::Exited(n)));
        assert!(outcome.is_kept() && !outcome.hung);
        let (ending, instructions) = whole(&outcome.file.unwrap());
        assert_eq!(ending, Some(Ending::Exit(n)));
        assert!(instructions > 1000);
        let mut said = String::new();
        let text = d.path().join(format!("{n}.txt"));
        File::open(text).unwrap().read_to_string(&mut said).unwrap();
        let folder = d.path().canonicalize().unwrap();
        assert_eq!(said, format!("Linux {n}\n{}\n", folder.display()));
    }
}

#[test]
fn what_is_not_to_be_kept_is_gone() {
    let d = tempfile::tempdir().unwrap();
    let file = d.path().join("kept.hst");
    let record = |program: &str| {
        let recording = Recording::builder(program)
            .destination(Destination::File(file.clone()))
            .keep_on(KeepOn::Failure)
            .cache(false)
            .start();
        recording.unwrap().wait().unwrap()
    };
    let outcome = record("true");
    assert!(!outcome.kept && outcome.file.is_none() && outcome.name.is_none());
    assert!(!file.exists());
    let outcome = record("false");
    assert_eq!(outcome.file.as_ref(), Some(&file));
    assert_eq!(whole(&file).0, Some(Ending::Exit(1)));
    let stream = Recording::builder("true")
        .destination(Destination::StandardOutput)
        .keep_on(KeepOn::Failure);
    assert!(matches!(stream.start(), Err(Error::CannotTakeBack)));
}

#[test]
fn a_program_that_takes_too_long_is_killed() {
    let d = tempfile::tempdir().unwrap();
    let file = d.path().join("hung.hst");
    let recording = Recording::builder("sleep")
        .arg("600")
        .destination(Destination::File(file.clone()))
        .timeout(Duration::from_millis(300))
        .cache(false)
        .start()
        .unwrap();
    assert!(recording.wait_timeout(Duration::ZERO).is_none());
    let outcome = recording.wait().unwrap();
    assert!(outcome.hung && outcome.kept);
    assert_eq!(outcome.status, Some(Status::Killed(9)));
    assert_eq!(whole(&file).0, Some(Ending::Signal(9)));
}

#[test]
fn errors_say_what_they_are() {
    let missing = Recording::builder("no-such-program-anywhere").start();
    match missing.err() {
        Some(Error::Program(refusal)) => assert!(refusal.missing, "{refusal}"),
        other => panic!("{other:?}"),
    }
    let folder = Recording::builder("true").destination(Destination::File("/".into()));
    let refused = folder.start().err().unwrap();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    let own = Recording::attach(std::process::id() as i32).start();
    let own = own.err().unwrap();
    assert!(
        matches!(own, Error::Attach(AttachError::ThisOne(_))),
        "{own}"
    );
}

/// A process that is killed in the end.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_process_is_recorded_until_it_is_left() {
    let d = tempfile::tempdir().unwrap();
    let file = d.path().join("attached.hst");
    let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = sleeper.0.id() as i32;
    let attach = || {
        let to = Destination::File(file.clone());
        Recording::attach(pid).destination(to).start()
    };
    let recording = attach().unwrap();
    assert_eq!(recording.pid(), pid);
    let again = attach().err().unwrap();
    let recorded = |e: &Error| {
        let Error::Attach(AttachError::Unfit { why, .. }) = e else {
            return false;
        };
        matches!(why, Unfit::Recorded)
    };
    assert!(recorded(&again), "{again}");
    recording.detach();
    let outcome = recording.wait().unwrap();
    assert_eq!(outcome.ending, Some(Ending::Detached));
    assert_eq!(whole(&file).0, Some(Ending::Detached));
    // It goes on, and nothing of the recorder is left in it.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps.contains("hindsight"), "{maps}");
}

//! The prompt, on a terminal.

use super::ask::*;
use hindsight_lab::Scene;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Both ends of a terminal: ours, and that of a program.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: there is room for two descriptors, and nothing else is asked for.
    let made = unsafe {
        libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    assert_eq!(made, 0);
    // SAFETY: the kernel has just made them, and nobody else owns them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// A process that ends when the test does.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What has come, and how much of it was looked at.
#[derive(Default)]
struct Seen(String, usize);

/// Reads until a text has come behind what was looked at.
fn until(ours: &mut File, wanted: &str, Seen(seen, at): &mut Seen) {
    let begin = Instant::now();
    let mut buf = [0; 4096];
    let found = loop {
        if let Some(found) = seen[*at..].find(wanted) {
            break found;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "{wanted:?} does not come: {seen}"
        );
        let mut ready = libc::pollfd {
            fd: ours.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: there is one descriptor, which is open.
        if unsafe { libc::poll(&mut ready, 1, 100) } == 0 {
            continue;
        }
        let n = ours.read(&mut buf).unwrap_or(0);
        assert!(n > 0, "it has ended: {seen}");
        *seen += &String::from_utf8_lossy(&buf[..n]);
    };
    *at += found + wanted.len();
}

/// Starts a prompt for recordings, at a terminal.
fn prompt(scene: &Scene, recordings: &[&str]) -> (File, Killed) {
    let (ours, theirs) = terminal();
    let mut command = command(scene, recordings);
    command.env("TERM", "xterm");
    command
        .stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::from(theirs.try_clone().unwrap()))
        .stderr(Stdio::from(theirs));
    // The terminal is the one from which interrupts come.
    use std::os::unix::process::CommandExt;
    // SAFETY: both calls may be made in a process that was just forked.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        })
    };
    (ours, Killed(command.spawn().unwrap()))
}

#[test]
fn several_recordings_can_be_asked_at_a_prompt() {
    let s = several();
    let (mut ours, mut child) = prompt(&s.scene, &["a.hst", "b.hst"]);
    let mut seen = Seen::default();
    until(&mut ours, "sql> ", &mut seen);
    let question = "select recording, count(*) n from calls('pay') group by 1 order by 1;\r";
    ours.write_all(question.as_bytes()).unwrap();
    until(&mut ours, "(2 rows)", &mut seen);
    let rows: Vec<&str> = seen.0.lines().map(str::trim).collect();
    let has = |name: &str, n: &str| rows.iter().any(|r| r.split_whitespace().eq([name, n]));
    assert!(has("a", "200") && has("b", "50"), "{}", seen.0);
    until(&mut ours, "sql> ", &mut seen);
    ours.write_all(b"\x04").unwrap();
    let status = child.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", seen.0);
}

#[test]
fn questions_are_typed_interrupted_and_remembered() {
    let a = accounts();
    let home = a.scene.path("store");
    let (mut ours, mut child) = prompt(&a.scene, &[a.trace.to_str().unwrap()]);
    let mut seen = Seen::default();
    until(&mut ours, "sql> ", &mut seen);
    // What is typed before a line is asked for is lost.
    ours.write_all(b"select count(*) as calls_made\r").unwrap();
    until(&mut ours, "...> ", &mut seen);
    ours.write_all(b"from calls('pay');\r").unwrap();
    until(&mut ours, "(1 row)", &mut seen);
    assert!(seen.0.contains("200"), "{}", seen.0);
    until(&mut ours, "sql> ", &mut seen);
    ours.write_all(b".schema calls\r").unwrap();
    until(&mut ours, "rdi", &mut seen);
    until(&mut ours, "sql> ", &mut seen);
    // This one would take for ever.
    let long = "select max((a.time + b.time) % 1000) from instructions a, instructions b;\r";
    ours.write_all(long.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    ours.write_all(b"\x03").unwrap();
    until(&mut ours, "interrupted", &mut seen);
    until(&mut ours, "sql> ", &mut seen);
    ours.write_all(b"select 40 + 2;\r").unwrap();
    until(&mut ours, "(1 row)", &mut seen);
    assert!(seen.0.contains("42"), "{}", seen.0);
    until(&mut ours, "sql> ", &mut seen);
    ours.write_all(b"\x04").unwrap();
    let status = child.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", seen.0);
    let history = std::fs::read_to_string(home.join("sql-history")).unwrap();
    assert!(history.contains("select 40 + 2;"), "{history}");
}

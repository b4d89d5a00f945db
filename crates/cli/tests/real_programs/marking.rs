//! Marks and state points that somebody outside asks for, while the program computes or waits.

use hindsight_lab::{Done, Running, Scene, await_end, kill};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of `memory` in the program.
const SIZE: usize = 16 * 4096;

/// In less than this a mark is set. Loaded machines take their time.
const LIMIT: Duration = Duration::from_secs(8);

/// The program, recorded, while it goes on.
struct Marked {
    scene: Scene,
    running: Running,
    trace: PathBuf,
    pid: i32,
    /// Where its memory is.
    address: String,
}

impl Marked {
    fn begin(how: &str, options: &[&str]) -> Marked {
        let scene = Scene::new();
        let program = scene.compile("marking.c", &["-pthread"]);
        let trace = scene.path("trace.hst");
        let mut c = scene.hindsight(&["record", "--quiet"]);
        c.args(options).arg("-o").arg(&trace).arg("--");
        let running = scene.start(c.arg(program).arg(how));
        let first = running.first_line();
        let (pid, address) = first.trim().split_once(' ').unwrap();
        Marked {
            pid: pid.parse().unwrap(),
            address: address.into(),
            scene,
            running,
            trace,
        }
    }

    /// The lines behind the first one, once there are that many.
    fn lines(&self, n: usize) -> Vec<i32> {
        let began = Instant::now();
        loop {
            let text = self.running.so_far();
            let numbers: Vec<_> = text.lines().skip(1).map(|l| l.parse().unwrap()).collect();
            if numbers.len() >= n {
                return numbers;
            }
            assert!(began.elapsed() < LIMIT, "{}", self.running.messages());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_mark(&self, pid: i32, words: &[&str]) -> Done {
        let mut c = self.scene.hindsight(&["mark", "--json"]);
        self.scene.run(c.arg(pid.to_string()).args(words))
    }

    /// Sets a mark in time; behind how many instructions, and of which thread.
    fn mark(&self, pid: i32, words: &[&str]) -> (u64, i64) {
        let began = Instant::now();
        let done = self.try_mark(pid, words);
        assert!(done.status.success(), "{words:?}: {}", done.messages());
        assert!(began.elapsed() < LIMIT, "{words:?}: {:?}", began.elapsed());
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(told["name"].as_str(), Some(words[0]));
        let n = |key: &str| told[key].as_i64().unwrap();
        (n("instructions") as u64, n("tid"))
    }

    /// Asks the recording, which answers in JSON.
    fn ask(&self, command: &str, words: &[&str]) -> Value {
        let mut c = self.scene.hindsight(&[command, "--json"]);
        let done = self.scene.run(c.arg(&self.trace).args(words));
        assert!(done.status.success(), "{words:?}: {}", done.messages());
        serde_json::from_slice(&done.stdout).unwrap()
    }

    /// The mark is at this place, in the recording as it is now.
    fn must_be_at(&self, name: &str, (instructions, tid): (u64, i64)) {
        let at = self.ask("at", &[&format!("mark:{name}")]);
        let n = |v: &Value| v.as_i64().unwrap();
        let there = (n(&at["instructions"]) as u64, n(&at["thread"]["tid"]));
        assert_eq!(there, (instructions, tid), "{name}");
    }

    /// Has the program end, and verifies the recording. What it printed last.
    fn end(self) -> (Scene, PathBuf, String) {
        kill(self.pid, libc::SIGTERM);
        let done = self.running.finish();
        self.scene.must_verify(&self.trace);
        let last = done.text().lines().last().unwrap_or_default().to_owned();
        (self.scene, self.trace, last)
    }
}

#[test]
fn whatever_a_program_does_it_gets_a_mark() {
    for (how, last) in [
        ("compute", "0 0"),
        ("calls", "0 0"),
        ("read", "-1 4"),
        ("poll", "-1 4"),
        ("epoll", "-1 4"),
        ("futex", "-1 4"),
        ("sleep", "-1 4"),
    ] {
        let m = Marked::begin(how, &[]);
        let plain = m.mark(m.pid, &["plain"]);
        m.must_be_at("plain", plain);
        let later = m.mark(m.running.id(), &["later"]);
        assert!(later.0 >= plain.0 && later.1 == plain.1, "{how}");
        // The program sees none of it.
        let (.., said) = m.end();
        assert_eq!(said, last, "{how}");
    }
}

#[test]
fn a_program_that_goes_on_gets_a_state_point() {
    for how in ["compute", "calls"] {
        let m = Marked::begin(how, &[]);
        let state = m.mark(m.running.id(), &["all of it", "--state"]);
        let later = m.mark(m.pid, &["later"]);
        assert!(later.0 > state.0, "{how}: a state point is behind its mark");
        m.must_be_at("all of it", state);
        let known = m.ask("mem", &["state:all of it", &m.address, &SIZE.to_string()]);
        let known: Vec<Option<u8>> = serde_json::from_value(known["bytes"].clone()).unwrap();
        let wanted = (0..SIZE).map(|i| Some((i * 7 + i / 4096 + 1) as u8));
        assert!(known.into_iter().eq(wanted), "{how}");
        let (.., said) = m.end();
        assert_eq!(said, "0 0", "{how}");
    }
}

#[test]
fn a_program_that_waits_gets_no_state_point() {
    let m = Marked::begin("poll", &[]);
    let done = m.try_mark(m.pid, &["never", "--state"]);
    assert_eq!(done.status.code(), Some(2), "{}", done.messages());
    let why = "waits in a system call";
    assert!(done.messages().contains(why), "{}", done.messages());
    let (scene, trace, said) = m.end();
    assert_eq!(said, "-1 4");
    let mut c = scene.hindsight(&["at"]);
    let done = scene.run(c.arg(trace).arg("mark:never"));
    let none = "there are 0";
    assert!(done.messages().contains(none), "{}", done.messages());
}

#[test]
fn a_thread_can_be_chosen() {
    let m = Marked::begin("threads", &[]);
    for tid in m.lines(3) {
        let name = format!("in {tid}");
        let set = m.mark(tid, &[&name]);
        assert_eq!(set.1, tid as i64);
        m.must_be_at(&name, set);
    }
    let first = m.mark(m.pid, &["first"]);
    assert_eq!(first.1, m.pid as i64);
    let done = m.try_mark(m.pid, &["state", "--state"]);
    assert_eq!(done.status.code(), Some(2));
    let why = "it left the quiet regime: a second thread begins";
    assert!(done.messages().contains(why), "{}", done.messages());
    m.end();
}

#[test]
fn a_process_can_be_chosen() {
    let m = Marked::begin("processes", &[]);
    let child = m.lines(1)[0];
    for (pid, of, name) in [
        (child, child, "child"),
        (m.pid, m.pid, "parent"),
        (m.running.id(), m.pid, "front"),
    ] {
        let set = m.mark(pid, &[name]);
        assert_eq!(set.1, of as i64, "{name}");
        m.must_be_at(name, set);
    }
    let done = m.try_mark(child, &["state", "--state"]);
    assert!(
        done.messages().contains("it never was in the quiet regime"),
        "{}",
        done.messages()
    );
    m.end();
    await_end(child);
}

#[test]
fn a_ring_gets_marks() {
    let m = Marked::begin("compute", &["--ring", "64M"]);
    m.mark(m.pid, &["in a ring"]);
    let mut c = m.scene.hindsight(&["dump", "-o"]);
    let done = m.scene.run(c.arg(&m.trace).arg(m.pid.to_string()));
    assert!(
        done.status.code().is_some_and(|s| s < 2),
        "{}",
        done.messages()
    );
    let marks = m.ask("events", &["--kind", "mark"]);
    assert!(marks.to_string().contains("in a ring"), "{marks}");
    kill(m.pid, libc::SIGTERM);
    m.running.finish();
}

#[test]
fn what_cannot_be_is_said() {
    let m = Marked::begin("compute", &[]);
    let own = std::process::id() as i32;
    for (pid, name, why) in [
        (own, "name", "is not recorded"),
        (i32::MAX, "name", "there is no process"),
        (m.pid, "", "a name of 1 to 256 bytes"),
        (
            m.pid,
            &"n".repeat(257),
            "a name of 1 to 256 bytes; this one has 257",
        ),
    ] {
        let done = m.try_mark(pid, &[name]);
        assert_eq!(done.status.code(), Some(2), "{why}");
        assert!(done.messages().contains(why), "{}", done.messages());
    }
    m.mark(m.pid, &[&"n".repeat(256)]);
    m.end();
}

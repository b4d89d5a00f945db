//! Recordings that do not end yet: questions while they are written.

use hindsight_lab::{Done, Running, Scene, collector_of, kill, share};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is said of a recording that is being written.
const WORD: &str = "the recording is still being written; so far it ends at ";
/// A recording is at most this far behind its program. Chunks are written each second.
const LIMIT: Duration = Duration::from_secs(60);

/// A program that goes on until [`stop`].
struct Living {
    scene: Scene,
    running: Running,
    trace: PathBuf,
}

impl Living {
    fn begin(options: &[&str]) -> Living {
        let scene = Scene::new();
        let program = scene.compile("living.c", &["-pthread"]);
        let trace = scene.path("trace.hst");
        let mut c = scene.hindsight(&["record", "--quiet"]);
        let running = scene.start(c.args(options).arg("-o").arg(&trace).arg("--").arg(program));
        let l = Living {
            scene,
            running,
            trace,
        };
        // Its first chunks are there.
        l.until(|| l.ask(&["info", "--json"], &[]).status.success() && l.ticks().is_some());
        l
    }

    fn until(&self, mut is: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < LIMIT, "{}", self.running.messages());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask(&self, command: &[&str], words: &[&str]) -> Done {
        let mut c = self.scene.hindsight(command);
        self.scene.run(c.arg(&self.trace).args(words))
    }

    /// The same, which succeeds and is JSON, and tells whether the recording still grows.
    fn json(&self, command: &[&str], words: &[&str], growing: bool) -> Value {
        let done = self.ask(command, words);
        let said = done.messages();
        assert!(done.status.success(), "{command:?}: {said}");
        assert_eq!(said.contains(WORD), growing, "{command:?}: {said}");
        serde_json::from_slice(&done.stdout).unwrap()
    }

    /// How often `tick` was called so far, if the program has come to it.
    fn ticks(&self) -> Option<u64> {
        let done = self.ask(&["calls", "--no-args", "--json"], &["tick"]);
        let told: Value = serde_json::from_slice(&done.stdout).ok()?;
        told["total"].as_u64().filter(|n| *n > 0)
    }

    /// Lets the program end.
    fn stop(&self) {
        File::create(self.scene.path("stop")).unwrap();
    }
}

fn position(at: &Value) -> (u64, u64) {
    let text = at["position"].as_str().unwrap();
    let (order, count) = text.split_once(':').unwrap();
    let n = |t| u64::from_str_radix(t, 16).unwrap();
    (n(order), n(count))
}

/// What `info` says: whether it is being recorded, and the words.
fn told(scene: &Scene, trace: &Path) -> (bool, String) {
    let info = scene.info(trace);
    assert_eq!(info["complete"], false, "{info}");
    let words = info["completeness"].as_str().unwrap().into();
    (info["being_recorded"].as_bool().unwrap(), words)
}

#[test]
fn each_question_finds_the_newest_end() {
    for options in share([&[][..], &["--regime", "checked"]], 2) {
        let l = Living::begin(options);
        let (is, words) = told(&l.scene, &l.trace);
        assert!(is && words.starts_with("being recorded"), "{words}");
        let mut last = ((0, 0), 0, 0);
        for round in 0..4 {
            if round == 2 {
                File::create(l.scene.path("more")).unwrap();
            }
            l.until(|| l.ticks() > Some(last.1));
            let at = l.json(&["at", "--json"], &["end"], true);
            assert_eq!(at["being_recorded"], true);
            let calls = l.json(&["calls", "--json", "--count", "0"], &["tick"], true);
            let total = calls["total"].as_u64().unwrap();
            assert_eq!(calls["being_recorded"], true);
            // They are all there, in order.
            let list = calls["calls"].as_array().unwrap();
            for (i, c) in list.iter().enumerate() {
                let text = c["arguments"][0]["text"].as_str().unwrap();
                assert_eq!(text, (i + 1).to_string(), "{c}");
            }
            let events = l.json(&["events", "--json"], &[], true);
            let events = events.as_array().unwrap();
            // Nothing of it has ended yet.
            let ends = |e: &&Value| e["kind"] == "thread-end" || e["kind"] == "process-end";
            assert_eq!(events.iter().find(ends), None);
            let events = events.len();
            let now = (position(&at), total, events);
            assert!(
                now.0 > last.0 && now.1 > last.1 && now.2 > last.2,
                "{now:?} {last:?}"
            );
            last = now;
            // The last write is the last call's, or the one before, which still works.
            let writes = l.json(&["writes", "--json", "--count", "1"], &["ticks"], true);
            let value = writes[0]["value"].as_array().unwrap();
            let value = value
                .iter()
                .rev()
                .fold(0, |n, b| n << 8 | b.as_u64().unwrap());
            assert!(value >= total, "{writes} {total}");
            let stack = l.ask(&["backtrace"], &["end"]);
            let frames = stack.text();
            assert!(stack.messages().contains(WORD), "{}", stack.messages());
            // Either of its threads. Names in the C library depend on what is installed.
            assert!(frames.contains("living.c:"), "{frames}");
        }
        l.until(|| {
            l.ask(&["backtrace", "--threads"], &["end"])
                .text()
                .contains(" heart at ")
        });
        assert!(l.running.is_running());
        l.stop();
        let Living {
            scene,
            running,
            trace,
        } = l;
        let done = running.finish();
        assert_eq!(done.text(), "1\n", "{}", done.messages());
        scene.must_verify(&trace);
        let info = scene.info(&trace);
        assert_eq!(
            (&info["complete"], &info["being_recorded"]),
            (&true.into(), &false.into())
        );
        let mut c = scene.hindsight(&["calls", "--json", "--count", "0"]);
        let done = scene.run(c.arg(&trace).arg("tick"));
        assert!(!done.messages().contains(WORD), "{}", done.messages());
        let calls: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(calls["total"].as_u64() > Some(last.1));
        assert_eq!(calls["being_recorded"], false);
        // The last one is the one that the last write to it says.
        let mut c = scene.hindsight(&["writes", "--json", "--count", "1"]);
        let done = scene.run(c.arg(&trace).arg("ticks"));
        let writes: Value = serde_json::from_slice(&done.stdout).unwrap();
        let value = writes[0]["value"].as_array().unwrap();
        let value = value
            .iter()
            .rev()
            .fold(0, |n, b| n << 8 | b.as_u64().unwrap());
        assert_eq!(calls["total"], value);
    }
}

#[test]
fn a_copy_and_what_a_killed_recorder_leaves_are_only_incomplete() {
    let l = Living::begin(&[]);
    let copy = l.scene.path("copy.hst");
    fs::copy(&l.trace, &copy).unwrap();
    assert!(told(&l.scene, &l.trace).0);
    let (is, words) = told(&l.scene, &copy);
    assert!(!is && !words.contains("being recorded"), "{words}");
    assert!(kill(collector_of(l.running.id()), libc::SIGKILL));
    l.until(|| !told(&l.scene, &l.trace).0);
    let (_, words) = told(&l.scene, &l.trace);
    assert!(
        words.starts_with("unfinished") || words.starts_with("cut"),
        "{words}"
    );
    l.stop();
    let at = l.json(&["at", "--json"], &["end"], false);
    assert_eq!(at["being_recorded"], false);
}

/// Whoever may open a file may hold its lock. That makes nobody wait, and no recording look longer than it is.
#[test]
fn a_lock_of_somebody_else_is_only_a_hint() {
    let l = Living::begin(&[]);
    let copy = l.scene.path("copy.hst");
    fs::copy(&l.trace, &copy).unwrap();
    l.stop();
    let Living {
        scene,
        running,
        trace,
    } = l;
    running.finish();
    let locked: Vec<File> = [&copy, &trace].map(|p| File::open(p).unwrap()).into();
    locked.iter().for_each(|f| f.lock().unwrap());
    assert!(told(&scene, &copy).0);
    assert_eq!(scene.info(&trace)["complete"], true);
    for file in [&copy, &trace] {
        let done = scene.run(scene.hindsight(&["at"]).arg(file).arg("end"));
        assert!(done.status.success(), "{}", done.messages());
    }
    // A recording over it waits for nobody.
    let done = scene.run(&mut scene.recording(&trace, &["true"]));
    assert!(done.status.success(), "{}", done.messages());
}

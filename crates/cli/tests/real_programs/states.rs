//! State points that a program asks for.

use hindsight_lab::{Scene, children, collector_of, kill};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const SIZE: usize = 64 * 4096;

fn states(s: &Scene, trace: &Path) -> Vec<Value> {
    let done = s.run(s.hindsight(&["states", "--json"]).arg(trace));
    assert!(done.status.success(), "{}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

fn memory(s: &Scene, trace: &Path, place: &str, address: &str) -> Vec<Option<u8>> {
    let mut c = s.hindsight(&["mem", "--json"]);
    let done = s.run(c.arg(trace).args([place, address, &SIZE.to_string()]));
    assert!(done.status.success(), "{place}: {}", done.messages());
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    serde_json::from_value(told["bytes"].clone()).unwrap()
}

/// Records the program. Its output, and what it gave out of its memory.
fn record(s: &Scene, trace: &Path, more: &[&str]) -> (String, Vec<u8>) {
    let (program, out) = (s.compile("states.c", &["-pthread"]), s.path("out"));
    let mut c = s.hindsight(&["record", "--quiet", "-o"]);
    let done = s.run(c.arg(trace).arg("--").arg(&program).arg(&out).args(more));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    s.must_verify(trace);
    (done.text().trim().into(), std::fs::read(&out).unwrap())
}

#[test]
fn all_memory_is_known_there() {
    let s = Scene::new();
    let trace = s.path("states.hst");
    let (address, given) = record(&s, &trace, &[]);
    let list = states(&s, &trace);
    let names: Vec<_> = list.iter().map(|p| p["name"].as_str()).collect();
    let [first, later] = [Some("filled"), Some("changed")];
    assert_eq!(names, [first, later, later, later]);
    // The last pages are touched by nobody behind the first one, and each restates what has changed before it.
    let bytes: Vec<u64> = list.iter().map(|p| p["bytes"].as_u64().unwrap()).collect();
    assert!(bytes[0] > (SIZE - 8 * 4096) as u64, "{bytes:?}");
    assert!(
        bytes[1..]
            .iter()
            .all(|n| (3 * 4096..SIZE as u64 / 2).contains(n)),
        "{bytes:?}"
    );
    assert_eq!(list[0]["is_change"].as_bool(), Some(false));
    assert!(
        list[1..]
            .iter()
            .all(|p| p["is_change"] == true && p["is_whole"] == true)
    );
    let places = [
        "state:filled",
        "state:changed",
        "state:3",
        "state:changed:3",
    ];
    for (i, place) in places.iter().enumerate() {
        let known = memory(&s, &trace, place, &address);
        let wanted = &given[i * SIZE..(i + 1) * SIZE];
        assert!(
            known.iter().zip(wanted).all(|(k, w)| *k == Some(*w)),
            "{place}"
        );
        // Its mark is set by the instruction before.
        let at = |place: &str| {
            let done = s.run(s.hindsight(&["at", "--json"]).arg(&trace).arg(place));
            let told: Value = serde_json::from_slice(&done.stdout).unwrap();
            told["instructions"].as_u64().unwrap()
        };
        assert_eq!(at(place), at(&format!("mark:{}", 2 * i + 1)) + 1, "{place}");
    }
    // The names of marks are other ones.
    for (place, wrong) in [
        ("state:5", "there are 4"),
        ("state:changed:4", "there are 3"),
        ("state:round", "there are 0"),
        ("mark:round:5", "there are 4"),
        ("state:0", "counted from 1"),
        ("mark:", "is no place"),
    ] {
        let done = s.run(s.hindsight(&["at"]).arg(&trace).arg(place));
        assert_eq!(done.status.code(), Some(2), "{place}");
        assert!(
            done.messages().contains(wrong),
            "{place}: {}",
            done.messages()
        );
    }
    let none = s.run(s.hindsight(&["states", "--image", "9"]).arg(&trace));
    assert_eq!(none.status.code(), Some(2), "{}", none.messages());
    // A part that begins at one has its memory, too.
    let part = s.path("part.hst");
    let mut c = s.hindsight(&["cut"]);
    let done = s.run(c.arg(&trace).arg("state:3..end").arg("-o").arg(&part));
    assert!(done.status.success(), "{}", done.messages());
    s.must_verify(&part);
    let position = list[2]["position"].as_str().unwrap();
    let known = memory(&s, &part, position, &address);
    let wanted = &given[2 * SIZE..3 * SIZE];
    assert!(known.iter().zip(wanted).all(|(k, w)| *k == Some(*w)));
    assert_eq!(states(&s, &part)[0]["position"], list[2]["position"]);
}

/// Records the program with the large memory. Its status, its output, what it gave out, and how many copies of it were made.
fn record_apart(s: &Scene, trace: &Path, more: &[&str]) -> (Option<i32>, String, Vec<u8>, usize) {
    let (program, out, log) = (
        s.compile("states_apart.c", &["-O2"]),
        s.path("out"),
        s.path("log"),
    );
    let mut c = s.hindsight(&["record", "--quiet", "-o"]);
    c.env("HINDSIGHT_LOG", "memory=debug")
        .env("HINDSIGHT_LOG_FILE", &log);
    let done = s.run(c.arg(trace).arg("--").arg(&program).arg(&out).args(more));
    s.must_verify(trace);
    let log = std::fs::read_to_string(&log).unwrap();
    let copies = log.matches("makes a key frame").count();
    let given = std::fs::read(&out).unwrap();
    (done.status.code(), done.text(), given, copies)
}

/// All that the program gave out is what its memory holds at these state points.
fn must_hold(s: &Scene, trace: &Path, said: &str, given: &[u8], points: usize) {
    const PAGE: usize = 4096;
    const SHOWN: usize = 4;
    let start: usize = said.lines().next().unwrap().parse().unwrap();
    for point in 0..points {
        for i in 0..SHOWN {
            let address = (start + i * (24 * 256 / SHOWN) * PAGE).to_string();
            let mut c = s.hindsight(&["mem", "--json"]);
            let place = format!("state:{}", point + 1);
            let done = s.run(c.arg(trace).args([&place, &address, "4096"]));
            assert!(done.status.success(), "{place}: {}", done.messages());
            let told: Value = serde_json::from_slice(&done.stdout).unwrap();
            let known: Vec<Option<u8>> = serde_json::from_value(told["bytes"].clone()).unwrap();
            let wanted = &given[(point * SHOWN + i) * PAGE..][..PAGE];
            assert!(
                known.iter().zip(wanted).all(|(k, w)| *k == Some(*w)),
                "{place}, page {i}"
            );
        }
    }
}

#[test]
fn a_copy_makes_them_while_the_program_goes_on() {
    let s = Scene::new();
    let trace = s.path("apart.hst");
    let (status, said, given, copies) = record_apart(&s, &trace, &[]);
    assert_eq!((status, copies), (Some(0), 4));
    let list = states(&s, &trace);
    let names: Vec<_> = list.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["filled", "changed", "changed", "changed"]);
    assert!(list[1..].iter().all(|p| p["is_change"] == true));
    must_hold(&s, &trace, &said, &given, 4);
    // What it had written until then.
    let mut c = s.hindsight(&["states", "--json", "--descriptors"]);
    let done = s.run(c.arg(&trace));
    let list: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    let out = s.path("out");
    for (n, state) in (1..).zip(&list) {
        let open = state["descriptors"].as_array().unwrap();
        let file = open.iter().find(|d| d["path"] == out.to_str().unwrap());
        let file = file.unwrap_or_else(|| panic!("{open:?}"));
        assert_eq!(file["place"], n * 4 * 4096);
        assert_eq!(file["flags"].as_i64().map(|f| f & 3), Some(1));
    }
    let done = s.run(s.hindsight(&["states", "--descriptors"]).arg(&trace));
    let wanted = format!("{}, at byte 65 536, flags 0", out.display());
    assert!(done.text().contains(&wanted), "{}", done.text());
}

#[test]
fn the_program_does_not_see_the_copy() {
    let s = Scene::new();
    let trace = s.path("apart.hst");
    // It waits for any child, but has none.
    let (status, said, given, copies) = record_apart(&s, &trace, &["wait"]);
    assert_eq!((status, copies), (Some(0), 4));
    assert_eq!(said.lines().nth(1), Some("1"), "{said}");
    must_hold(&s, &trace, &said, &given, 1);
    // What a copy does not have is not left to one.
    let (status, said, given, copies) = record_apart(&s, &trace, &["wipe"]);
    assert_eq!((status, copies), (Some(0), 1));
    must_hold(&s, &trace, &said, &given, 4);
}

#[test]
fn the_copy_outlives_a_program_that_is_killed() {
    let s = Scene::new();
    let trace = s.path("apart.hst");
    for (how, status) in [("die", None), ("execute", Some(0))] {
        let (ended, said, given, copies) = record_apart(&s, &trace, &[how]);
        assert_eq!((ended, copies), (status, 1), "{how}");
        assert_eq!(states(&s, &trace).len(), 1, "{how}");
        must_hold(&s, &trace, &said, &given, 1);
    }
}

/// A key frame whose copy is killed is not in the recording. The next one restates everything.
#[test]
fn without_its_copy_there_is_no_state_point() {
    let s = Scene::new();
    let trace = s.path("apart.hst");
    let (status, said, given, copies) = record_apart(&s, &trace, &["kill-copy"]);
    assert_eq!((status, copies), (Some(0), 3));
    let list = states(&s, &trace);
    assert_eq!(list.len(), 3, "{list:?}");
    assert_eq!(list[0]["is_change"].as_bool(), Some(false));
    assert_eq!(list[0]["name"].as_str(), Some("changed"));
    must_hold(&s, &trace, &said, &given[given.len() / 4..], 3);
}

/// Each state point of a recording whose collector was killed is whole, at whatever time that was.
#[test]
fn a_killed_collector_leaves_no_half_of_one() {
    let s = Scene::new();
    let trace = s.path("apart.hst");
    let (program, out) = (s.compile("states_apart.c", &["-O2"]), s.path("out"));
    let mut found = Vec::new();
    for wait in (0..8).map(|i| Duration::from_millis(60 * i)) {
        let _ = std::fs::remove_file(&trace);
        let mut c = s.hindsight(&["record", "--quiet", "-o"]);
        let running = s.start(c.arg(&trace).arg("--").arg(&program).arg(&out));
        let said = running.first_line();
        let collector = collector_of(running.id());
        std::thread::sleep(wait);
        // A fast machine may be done by now.
        if children(running.id()).iter().any(|c| c.0 == collector) {
            kill(collector, libc::SIGKILL);
        }
        running.finish();
        // At first, perhaps nothing has reached the file.
        if s.info(&trace)["instructions"] == 0 {
            continue;
        }
        s.must_verify(&trace);
        let points = states(&s, &trace).len();
        let given = std::fs::read(&out).unwrap();
        must_hold(&s, &trace, &said, &given, points);
        found.push(points);
    }
    assert!(
        found.iter().any(|n| *n < 4),
        "no collector was killed in time: {found:?}"
    );
}

/// The program goes on when there is no room for a key frame that its copy has made.
#[test]
fn without_room_there_is_no_state_point() {
    let s = Scene::new();
    let trace = s.path("apart.hst");
    let (program, out) = (s.compile("states_apart.c", &["-O2"]), s.path("out"));
    // Blocks of 512 bytes, and a third of the first key frame.
    let hindsight = hindsight_lab::hindsight().display();
    let line = format!("ulimit -S -f 16384; exec {hindsight} record --quiet -o \"$@\"");
    let mut c = s.command("sh");
    c.args(["-c", &line, "sh"]).arg(&trace).arg("--");
    let done = s.run(c.arg(&program).arg(&out));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    assert!(
        done.messages().contains("cannot be written"),
        "{}",
        done.messages()
    );
    assert_eq!(std::fs::metadata(&out).unwrap().len(), 4 * 4 * 4096);
    s.must_verify(&trace);
    assert_eq!(states(&s, &trace).len(), 0);
}

/// What ends amid a key frame does not list it, and is readable up to there.
#[test]
fn a_recording_that_is_cut_has_those_before() {
    let s = Scene::new();
    let (trace, part) = (s.path("apart.hst"), s.path("part.hst"));
    let (_, said, given, _) = record_apart(&s, &trace, &[]);
    let whole = std::fs::read(&trace).unwrap();
    for (percent, points) in [(20, 0), (70, 2)] {
        std::fs::write(&part, &whole[..whole.len() * percent / 100]).unwrap();
        assert_eq!(states(&s, &part).len(), points, "{percent}%");
        let done = s.run(s.hindsight(&["states"]).arg(&part));
        let warned = done.messages();
        assert!(warned.contains("cut: readable up to byte"), "{warned}");
        let done = s.run(s.hindsight(&["replay", "--verify"]).arg(&part));
        assert!(done.status.success(), "{percent}%: {}", done.messages());
        must_hold(&s, &part, &said, &given, points);
    }
}

/// A file that is mapped changes while the copy looks at memory. No state point says that it was so before.
#[test]
fn what_is_written_to_a_file_later_is_in_none() {
    let s = Scene::new();
    let (trace, file) = (s.path("file.hst"), s.path("mapped"));
    let (program, log) = (s.compile("states_file.c", &["-O2"]), s.path("log"));
    for _ in 0..3 {
        std::fs::write(&file, [b'o'; 16 * 4096]).unwrap();
        let mut c = s.hindsight(&["record", "--quiet", "-o"]);
        c.env("HINDSIGHT_LOG", "memory=debug")
            .env("HINDSIGHT_LOG_FILE", &log);
        let done = s.run(c.arg(&trace).arg("--").arg(&program).arg(&file));
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains("makes a key frame"), "{log}");
        for place in (1..=states(&s, &trace).len()).map(|n| format!("state:{n}")) {
            let mut c = s.hindsight(&["mem", "--json"]);
            let done = s.run(c.arg(&trace).args([&place, done.text().trim(), "65536"]));
            assert!(done.status.success(), "{place}: {}", done.messages());
            let told: Value = serde_json::from_slice(&done.stdout).unwrap();
            let known: Vec<Option<u8>> = serde_json::from_value(told["bytes"].clone()).unwrap();
            assert!(
                known.iter().flatten().all(|b| *b == b'o'),
                "{place}: {:?}",
                known.iter().flatten().find(|b| **b != b'o')
            );
        }
    }
}

/// The recording keeps what follows the last ones, and each is whole.
#[test]
fn a_ring_keeps_the_last_ones() {
    let s = Scene::new();
    let trace = s.path("window.hst");
    let (program, out) = (s.compile("states.c", &["-pthread"]), s.path("out"));
    let record = |options: &[&str]| {
        let mut c = s.hindsight(&["record", "--quiet", "--keep-state-points", "2"]);
        c.args(options).arg("-o").arg(&trace).arg("--");
        s.run(c.arg(&program).arg(&out))
    };
    let done = record(&["--ring", "64M", "--regime", "quiet", "--keep-on", "always"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    s.must_verify(&trace);
    let list = states(&s, &trace);
    let names: Vec<_> = list.iter().map(|p| p["name"].as_str()).collect();
    // The mark of the first one was dropped, with what came before it.
    assert_eq!(names, [None, Some("changed")]);
    let given = std::fs::read(&out).unwrap();
    for (place, n) in [("state:1", 2), ("state:2", 3)] {
        let known = memory(&s, &trace, place, done.text().trim());
        let wanted = &given[n * SIZE..(n + 1) * SIZE];
        assert!(
            known.iter().zip(wanted).all(|(k, w)| *k == Some(*w)),
            "{place}"
        );
    }
    for (options, why) in [
        (&[][..], "keeps all state points"),
        (&["--ring", "64M"], "in the quiet regime only"),
    ] {
        let done = record(options);
        assert_eq!(done.status.code(), Some(125), "{why}");
        assert!(done.messages().contains(why), "{}", done.messages());
    }
}

#[test]
fn with_several_threads_they_are_marks() {
    let s = Scene::new();
    let trace = s.path("threads.hst");
    record(&s, &trace, &["threads"]);
    assert_eq!(states(&s, &trace), [] as [Value; 0]);
    let done = s.run(
        s.hindsight(&["at", "--json"])
            .arg(&trace)
            .arg("mark:changed:3"),
    );
    assert!(done.status.success(), "{}", done.messages());
}

#[test]
fn they_are_made_before_calls_of_which_nothing_can_be_skipped() {
    let s = Scene::new();
    let trace = s.path("calls.hst");
    let script = "import mmap, os, time\n\
                  pause = lambda: time.sleep(0.15)\n\
                  pause(); m = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  m[0] = 7; pause(); child = os.fork()\n\
                  if child == 0: os._exit(3)\n\
                  assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n\
                  pause(); os.execv('/bin/true', ['true'])";
    let mut c = s.hindsight(&["record", "--quiet", "--state-points", "calls", "-o"]);
    let done = s.run(c.arg(&trace).args(["--", "/usr/bin/python3", "-c", script]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    s.must_verify(&trace);
    let done = s.run(s.hindsight(&["events", "--raw", "--json"]).arg(&trace));
    assert!(done.status.success(), "{}", done.messages());
    let events: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    let call_at = |position: &Value| {
        let here = |e: &&Value| e["position"] == *position && e["kind"] == "syscall";
        events
            .iter()
            .find(here)
            .map(|e| e["name"].as_str().unwrap())
    };
    let before: Vec<_> = states(&s, &trace)
        .iter()
        .map(|p| call_at(&p["position"]).unwrap_or("none").to_owned())
        .collect();
    let allowed = [
        "mmap", "munmap", "mremap", "clone", "fork", "vfork", "execve",
    ];
    assert!(
        before.iter().all(|c| allowed.contains(&c.as_str())),
        "{before:?}"
    );
    for call in ["mmap", "clone", "execve"] {
        assert!(before.iter().any(|c| c == call), "{call}: {before:?}");
    }
}

#[test]
fn they_are_made_from_time_to_time() {
    let s = Scene::new();
    let trace = s.path("times.hst");
    let script =
        "import time\nend = time.monotonic() + 1.5\nn = 0\nwhile time.monotonic() < end: n += 1";
    let record = |when: &str, options: &[&str]| {
        let mut c = s.hindsight(&["record", "--quiet", "--state-points", when, "-o"]);
        c.arg(&trace).args(options).arg("--");
        s.run(c.args(["/usr/bin/python3", "-c", script]))
    };
    let done = record("100ms", &[]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    s.must_verify(&trace);
    let list = states(&s, &trace);
    assert!(
        list.len() >= 3 && list.iter().all(|p| p["name"].is_null()),
        "{list:?}"
    );
    let done = record("events=1000", &[]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    s.must_verify(&trace);
    assert!(!states(&s, &trace).is_empty());
    // Their own events do not count, or there would be ever more of them.
    let script = "n = 0\nfor i in range(20_000_000): n += i";
    let events = |options: &[&str]| {
        let mut c = s.hindsight(&["record", "--quiet"]);
        c.args(options).arg("-o").arg(&trace).arg("--");
        let done = s.run(c.args(["/usr/bin/python3", "-c", script]));
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        let mut c = s.hindsight(&["replay", "--verify", "--json"]);
        let done = s.run(c.arg(&trace));
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        let kinds = told["events"].as_object().unwrap();
        kinds.values().filter_map(Value::as_u64).sum::<u64>()
    };
    let own = events(&[]);
    events(&["--state-points", "events=300"]);
    let points = states(&s, &trace).len() as u64;
    // On a busy machine there are more: threads are asked where they are.
    assert!(points <= own / 150, "{points} with {own} events");
    let refused = record("every=1s", &["--regime", "checked"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(refused.messages().contains("in the quiet regime only"));
}

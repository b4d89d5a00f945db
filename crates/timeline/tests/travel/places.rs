//! Events, and the names of places.

use hindsight_lab::Scene;
use hindsight_timeline::{
    Error, Filter, Ground, Kind, KindOf, KnownByte, Options, Place, Position, Timeline,
};
use serde_json::Value;
use std::time::Duration;

/// A recording with gaps and marks, and two threads.
fn record(s: &Scene) -> Timeline {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../mark");
    let program = s.compile("marks.c", &["-pthread", include]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[&program]));
    assert!(run.status.success(), "{}", run.messages());
    Timeline::open(&trace, Options::default()).unwrap()
}

#[test]
fn every_end_of_a_gap_is_a_place_to_go_on_from() {
    let s = Scene::new();
    let program = s.compile("travel.c", &[]);
    let trace = s.path("t.hst");
    let skip = ["record", "--quiet", "--skip-module", "libc*", "-o"];
    let mut command = s.hindsight(&skip);
    let run = s.run(command.arg(&trace).arg("--").arg(&program).arg("20"));
    assert!(run.status.success(), "{}", run.messages());
    let open = |interval| {
        let options = Options {
            interval,
            unsaved: true,
            ..Options::default()
        };
        Timeline::open(&trace, options).unwrap()
    };
    let t = open(0);
    let filter = Filter {
        kinds: vec![KindOf::Gap],
        ..Filter::default()
    };
    let mut ends = t.events(&filter).unwrap();
    ends.retain(|h| h.kind == Kind::GapEnd);
    ends.truncate(100);
    assert!(ends.len() > 20, "{}", ends.len());
    // After frames at which gaps end: the interval is the distance of the first two ends. And after a checkpoint that
    // is taken some way before the goal (`TRAIL`).
    let fine = open(ends[1].count - ends[0].count);
    let mut c = fine.cursor().unwrap();
    for end in &ends {
        let look = |t: &Timeline, over: &[u64]| {
            let mut c = t.cursor().unwrap();
            for more in over {
                c.seek_count(end.thread, end.count + more).unwrap();
            }
            let registers = c.registers().unwrap();
            let memory = c.memory(registers.gpr[4], 64).unwrap();
            let known: Vec<_> = memory.bytes.iter().map(|b| b.map(|k| k.value)).collect();
            (c.count(), registers, known)
        };
        let wanted = look(&t, &[1]);
        assert_eq!(look(&t, &[1 << 14, 1]), wanted, "{end:?}");
        assert_eq!(look(&fine, &[1]), wanted, "{end:?}");
        // Nothing from before the gap is known: not at its end, and not within. What is read behind it is known at its end.
        let at_once = look(&t, &[1 << 14, 0]);
        assert_eq!(look(&fine, &[0]), at_once, "{end:?}");
        c.seek_count(end.thread, end.count).unwrap();
        let m = c.memory(at_once.1.gpr[4], 64).unwrap();
        let behind = |k: &KnownByte| k.ground == Ground::Exposed;
        assert!(m.bytes.iter().flatten().all(behind), "{end:?}\n{m}");
        c.seek_count(end.thread, end.count - 1).unwrap();
        let m = c.memory(at_once.1.gpr[4], 64).unwrap();
        assert!(m.bytes.iter().all(Option::is_none), "{end:?}\n{m}");
    }
}

#[test]
fn marks_gaps_and_regimes_are_events() {
    let s = Scene::new();
    let t = record(&s);
    let list = |kind: KindOf| {
        let kinds = vec![kind];
        let all = t.events(&Filter {
            kinds,
            ..Filter::default()
        });
        all.unwrap()
    };
    let marks: Vec<(String, Vec<u8>)> = (list(KindOf::Mark).into_iter())
        .filter_map(|h| match h.kind {
            Kind::Mark { name, payload } => Some((name, payload)),
            _ => None,
        })
        .collect();
    let rounds: Vec<i32> = (marks.iter().filter(|m| m.0 == "round"))
        .map(|m| i32::from_le_bytes(m.1[..].try_into().unwrap()))
        .collect();
    assert_eq!(rounds, (0..10).collect::<Vec<_>>());
    assert!(marks.iter().any(|m| m.0 == "in a gap" && m.1.len() == 4));
    // The worker's gap has a beginning and an end, around its mark.
    let inside = list(KindOf::Mark)
        .into_iter()
        .find(|h| matches!(&h.kind, Kind::Mark { name, .. } if name == "in a gap"));
    let inside = inside.unwrap();
    let gaps: Vec<_> = (list(KindOf::Gap).into_iter())
        .filter(|h| h.thread == inside.thread)
        .collect();
    assert!(matches!(gaps[0].kind, Kind::GapBegin { .. }) && gaps[0].count < inside.count);
    assert!(gaps[1].kind == Kind::GapEnd && gaps[1].count > inside.count);
    // A second thread ends the quiet regime.
    let regimes = list(KindOf::Regime);
    let said: Vec<bool> = (regimes.iter())
        .filter_map(|h| match &h.kind {
            Kind::Regime { quiet, .. } => Some(*quiet),
            _ => None,
        })
        .collect();
    assert_eq!(said.first(), Some(&true), "{regimes:?}");
    assert!(said.contains(&false), "{regimes:?}");
    // The same on the command line.
    let ask = |kind: &str| -> Vec<Value> {
        let done = s.run(
            s.hindsight(&["events", "--json", "--kind", kind])
                .arg(t.path()),
        );
        assert!(done.status.success(), "{}", done.messages());
        serde_json::from_slice(&done.stdout).unwrap()
    };
    assert_eq!(ask("mark").len(), marks.len());
    assert_eq!(ask("gap")[0]["kind"], "gap-begin");
    let bad = s.run(s.hindsight(&["events", "--kind", "marks"]).arg(t.path()));
    assert_eq!(bad.status.code(), Some(2));
    assert!(bad.messages().contains("marks is no kind of events"));
}

#[test]
fn places_have_names() {
    let s = Scene::new();
    let t = record(&s);
    let find = |text: &str| t.find(text.parse::<Place>().unwrap(), None);
    let (begin, end) = t.range().unwrap();
    assert_eq!(find("begin").unwrap(), begin);
    assert_eq!(find("end").unwrap(), end);
    assert_eq!(find("100%").unwrap(), end);
    let all = t.events(&Filter::default()).unwrap();
    assert_eq!(find("event:7").unwrap(), all[6].position);
    let calls = t.events(&Filter {
        kinds: vec![KindOf::Syscall],
        ..Filter::default()
    });
    let calls = calls.unwrap();
    assert_eq!(find("syscall:3").unwrap(), calls[2].position);
    let past = format!("syscall:{}", calls.len() + 1);
    let error = find(&past).unwrap_err();
    assert!(matches!(error, Error::NoPlace(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("there are {}", calls.len()))
    );
    // Parts of the run: as many instructions of all threads come before as the percentage says.
    let threads = t.threads().unwrap();
    let total: u64 = threads.iter().map(|x| x.to - x.from).sum();
    let done = |p: Position| -> u64 {
        let of =
            |x: &hindsight_timeline::Thread| t.count_at(x.id, p).unwrap().map_or(0, |c| c - x.from);
        threads.iter().map(of).sum()
    };
    let mut before = begin;
    for part in [0, 1, 10, 33, 50, 75, 90, 99] {
        let p = find(&format!("{part}%")).unwrap();
        assert!(p >= before, "{part}%: {p} {before}");
        assert_eq!(done(p), total * part / 100, "{part}%");
        before = p;
    }
    // The same on the command line.
    let at = s.run(
        s.hindsight(&["at", "--json"])
            .arg(t.path())
            .arg("syscall:3"),
    );
    let place: Value = serde_json::from_slice(&at.stdout).unwrap();
    assert_eq!(place["position"], calls[2].position.to_string());
    let bad = s.run(s.hindsight(&["at"]).arg(t.path()).arg("syscall:0"));
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        bad.messages().contains("is no place") && bad.messages().contains("counted from 1"),
        "{}",
        bad.messages()
    );
}

#[test]
fn places_are_found_by_time() {
    let s = Scene::new();
    let source = s.path("naps.c");
    let text = "#include <unistd.h>\nint main(void) { for (int i = 0; i < 3; i++) { getppid(); usleep(200000); } return 0; }";
    std::fs::write(&source, text).unwrap();
    let program = s.path("naps");
    let mut gcc = s.command("gcc");
    assert!(
        s.run(gcc.arg(&source).arg("-o").arg(&program))
            .status
            .success()
    );
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[&program]));
    assert!(run.status.success(), "{}", run.messages());
    let t = Timeline::open(&trace, Options::default()).unwrap();
    let calls = t.events(&Filter {
        kinds: vec![KindOf::Syscall],
        syscalls: vec![hindsight_syscalls::number("getppid").unwrap()],
        ..Filter::default()
    });
    let calls: Vec<Position> = calls.unwrap().iter().map(|h| h.position).collect();
    assert_eq!(calls.len(), 3);
    let when: Vec<_> = calls.iter().map(|p| t.when(*p).unwrap().unwrap()).collect();
    for m in &when {
        assert!(
            m.since <= m.estimate && m.estimate <= m.until,
            "{when:?} is not in order"
        );
    }
    // The time between them is at least as long as the program slept.
    for w in when.windows(2) {
        assert!(w[1].until - w[0].since >= Duration::from_millis(200));
        assert!(w[0].estimate < w[1].estimate, "{when:?}");
    }
    // In the middle of a nap, the program is between the two calls.
    let middle = when[1].until + Duration::from_millis(100);
    let middle = middle.min((when[1].until + when[2].since) / 2);
    let at = t.find(Place::Time(middle), None).unwrap();
    assert!(calls[1] <= at && at <= calls[2], "{at} {calls:?} {when:?}");
    assert_eq!(
        t.find(Place::Time(Duration::ZERO), None).unwrap(),
        t.range().unwrap().0
    );
    let late = t.find("time:1000s".parse().unwrap(), None);
    assert!(matches!(late, Err(Error::NoPlace(_))), "{late:?}");
    // The same on the command line, and by the time of day.
    let place = format!("time:{}s", middle.as_secs_f64());
    let out = s.run(s.hindsight(&["at", "--json"]).arg(&trace).arg(&place));
    let shown: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", out.messages()));
    assert_eq!(shown["position"], at.to_string());
    assert!(shown["time"]["since"].as_f64().unwrap() <= shown["time"]["until"].as_f64().unwrap());
    let day = t.started_ms() + middle.as_millis() as u64;
    let out = s.run(
        s.command("date")
            .arg(format!("--date=@{}.{:03}", day / 1000, day % 1000))
            .arg("+%H:%M:%S.%3N"),
    );
    let clock: Place = out.text().trim().parse().unwrap();
    let by_clock = t.find(clock, None).unwrap();
    assert!(
        calls[1] <= by_clock && by_clock <= calls[2],
        "{by_clock} {calls:?}"
    );
    let out = s.run(s.hindsight(&["events", "--time", "--json"]).arg(&trace));
    let all: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", out.messages()));
    let times = all.as_array().unwrap().iter();
    let times: Vec<f64> = times
        .filter_map(|e| e["time"]["seconds"].as_f64())
        .collect();
    assert!(times.len() > 10 && times.is_sorted(), "{times:?}");
    let out = s.run(s.hindsight(&["events", "--time"]).arg(&trace)).text();
    assert!(out.lines().all(|l| l.trim_start().contains("s  ")), "{out}");
}

#[test]
fn a_crash_is_a_place() {
    let s = Scene::new();
    let program = s.compile("crashes.c", &["-pthread"]);
    let trace = s.path("t.hst");
    for how in ["fault", "abort"] {
        s.run(&mut s.recording(&trace, &[program.as_os_str(), how.as_ref()]));
        let t = Timeline::open(&trace, Options::default()).unwrap();
        let crash = t.find(Place::Crash, None).unwrap();
        let thread = t.locate(crash).unwrap().thread;
        assert_ne!(thread, t.threads().unwrap()[0].id, "{how}");
        let signals = t.events(&Filter {
            kinds: vec![KindOf::Signal, KindOf::Exception],
            ..Filter::default()
        });
        assert_eq!(signals.unwrap().last().unwrap().position, crash);
    }
    s.run(&mut s.recording(&trace, &["sh", "-c", "kill -9 $$"]));
    let t = Timeline::open(&trace, Options::default()).unwrap();
    let none = t.find(Place::Crash, None).unwrap_err();
    assert!(none.to_string().contains("signal 9 killed"), "{none}");
    // Nothing killed this program.
    let none = record(&s).find(Place::Crash, None).unwrap_err();
    assert!(none.to_string().contains("no signal killed"), "{none}");
}

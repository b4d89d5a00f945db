//! What happened, and the names of places.

use crate::harness::Scene;
use hindsight_timeline::{Error, Filter, Kind, KindOf, Options, Place, Position, Timeline};
use serde_json::Value;

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
    // The worker's gap has a begin and an end, around its mark.
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
    // Parts of the run: as many instructions of all threads lie before as they say.
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
    assert!(bad.messages().contains("is no place"));
}

//! A walk through a thread sees what single steps see.

use super::open;
use crate::questions::Rng;
use hindsight_lab::{Scene, words};
use hindsight_timeline::{Cancel, Error, FlowControl};
use std::path::Path;

#[test]
fn a_walk_sees_what_single_looks_see() {
    let scene = Scene::new();
    let threads = scene.compile("sharing.c", &["-pthread"]);
    let handlers = scene.compile("handlers.c", &[]);
    for argv in [
        words(Path::new("/bin/sh"), &["-c", "echo 1; ls / | wc -l"]),
        words(&threads, &[]),
        words(&handlers, &[]),
    ] {
        let (_, trace) = scene.record(&argv);
        let t = open(&trace, 0);
        let mut rng = Rng(3);
        let mut looked = 0;
        for thread in t.threads().unwrap() {
            let mut cursor = t.cursor().unwrap();
            let mut walk = t.walk(thread.id, Cancel::new()).unwrap();
            // Forwards and backwards, at the beginning and at the end.
            let length = thread.to - thread.from;
            let mut from = vec![thread.from, thread.to.saturating_sub(30).max(thread.from)];
            from.extend((0..6).map(|_| thread.from + rng.below(length.max(1))));
            for from in from {
                let until = (from + 40).min(thread.to);
                let mut next = from;
                walk.run((from, until), true, &mut |w| {
                    assert!(
                        w.count == next || w.count + 1 == next,
                        "{} after {next}",
                        w.count
                    );
                    next = w.count + 1;
                    looked += 1;
                    cursor.seek_count(thread.id, w.count).unwrap();
                    let rip = cursor.registers().unwrap().rip;
                    let all = cursor.accesses().unwrap();
                    for a in w.accesses {
                        let same = |o: &&hindsight_timeline::Access| {
                            (o.address, o.len) == (a.access.address, a.access.len)
                                && (o.read && a.access.read || o.write && a.access.write)
                        };
                        assert!(
                            all.iter().any(|o| same(&o)),
                            "{a:?} at {} is not in {all:?}",
                            w.count
                        );
                    }
                    // At a signal more than one instruction has this count.
                    if all.len() == w.accesses.len() && rip == w.pc {
                        let halves = all.iter().map(|o| o.read as usize + o.write as usize);
                        let halves: usize = halves.sum();
                        assert!(halves >= w.accesses.len());
                    }
                    let writes = w.accesses.iter().filter(|a| a.access.write);
                    for a in writes.filter(|a| a.bytes.is_some()).take(1) {
                        cursor.seek_count(thread.id, w.count + 1).unwrap();
                        let known = cursor
                            .known_memory(a.access.address, a.access.len as usize)
                            .unwrap();
                        let seen: Option<Vec<u8>> =
                            known.bytes.iter().map(|b| b.map(|b| b.value)).collect();
                        // Other threads may write there at the same time, and the kernel in a call.
                        if known.candidates.is_empty() && w.count + 1 < until {
                            assert!(
                                seen.is_none() || seen == a.bytes,
                                "{a:?} at {}: {seen:?}",
                                w.count
                            );
                        }
                    }
                    true
                })
                .unwrap();
                assert!(next >= until || length == 0, "{next} of {until}");
            }
        }
        assert!(looked > 100, "{looked}");
    }
}

#[test]
fn a_walk_ends_when_it_is_told_to() {
    let (_scene, trace) = hindsight_lab::example();
    let t = open(&trace, 0);
    let thread = t.threads().unwrap()[0].clone();
    let cancel = Cancel::new();
    let mut walk = t.walk(thread.id, cancel.clone()).unwrap();
    let mut seen = 0;
    walk.run((thread.from, thread.to), false, &mut |w| {
        assert!(w.accesses.is_empty());
        seen += 1;
        seen < 5
    })
    .unwrap();
    assert_eq!(seen, 5);
    cancel.cancel();
    let done = walk.run((thread.from, thread.to), false, &mut |_| true);
    assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
    assert!(
        t.walk(hindsight_timeline::ThreadId(999), Cancel::new())
            .is_err()
    );
}

#[test]
fn straights_are_made_of_the_instructions_of_a_walk() {
    let scene = Scene::new();
    let handlers = scene.compile("handlers.c", &[]);
    let (_, trace) = scene.record(&words(&handlers, &[]));
    let t = open(&trace, 0);
    let thread = t.threads().unwrap()[0].clone();
    let range = (thread.from, thread.to);
    // Where each instruction is, and whether the kernel let the thread go on there.
    let mut single = Vec::new();
    let mut walk = t.walk(thread.id, Cancel::new()).unwrap();
    walk.run(range, false, &mut |w| {
        single.push((w.count, w.pc, w.entered));
        true
    })
    .unwrap();
    let mut next = 0;
    let mut branch = None;
    let mut straights = 0;
    let mut walk = t.walk(thread.id, Cancel::new()).unwrap();
    walk.run_straight(range, &mut |s| {
        assert_eq!(single[next], (s.count, s.pc, s.entered));
        // It goes on elsewhere only where a branch, or the kernel, leads.
        let elsewhere = branch.is_some_and(|(end, flow)| end != s.pc && flow == FlowControl::Next);
        assert!(!elsewhere || s.entered, "{s:?} behind {branch:?}");
        branch = Some((s.end, s.flow));
        next += s.len as usize;
        straights += 1;
        true
    })
    .unwrap();
    assert_eq!(next, single.len());
    assert!(straights < next / 2, "{straights} of {next}");
    // Its registers are those that a cursor sees.
    let mut cursor = t.cursor().unwrap();
    let mut rng = Rng(5);
    for n in 0..20 {
        let count = thread.from + rng.below(thread.to - thread.from);
        let registers = walk.go(count).unwrap();
        cursor.seek_count(thread.id, count).unwrap();
        assert_eq!(registers, cursor.registers().unwrap(), "{n}: {count}");
    }
}

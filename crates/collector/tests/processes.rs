//! Many threads and processes. Some of them die without saying so.

mod common;

use common::*;
use hindsight_events::ring::{data_offset, kind};
use hindsight_events::{Encoder, EndKind, Event, MAX_EVENT};
use hindsight_trace::{Completeness, Trace};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

#[test]
fn threads_in_thousands_share_the_rings() {
    const WORKERS: usize = 8;
    const EACH: usize = 500;
    // More workers than rings.
    let rings = 5;
    let begin = Instant::now();
    let mut o = collect(Disk::default(), |control, _| {
        let image = Producer::claim(control, 0..control.rings(), Who::image(1, 0)).unwrap();
        std::thread::scope(|s| {
            for _ in 0..WORKERS {
                s.spawn(move || {
                    for n in 0..EACH as u64 {
                        let mut p = loop {
                            match Producer::claim(control, 0..rings, Who::thread()) {
                                Some(p) => break p,
                                None => std::thread::sleep(Duration::from_millis(1)),
                            }
                        };
                        (0..1 + n % 3).for_each(|i| p.emit(i, &patch(i)));
                        p.end();
                    }
                });
            }
        });
        image.end();
    });
    println!(
        "{:?} for each thread",
        begin.elapsed() / (WORKERS * EACH) as u32
    );
    let t = o.trace();
    assert_eq!(t.completeness(), Completeness::Complete);
    assert_eq!(t.threads().len(), WORKERS * EACH);
    let events: usize = t.threads().iter().map(|s| positions(&t, *s).len()).sum();
    assert_eq!(
        events,
        (0..EACH).map(|n| 1 + n % 3).sum::<usize>() * WORKERS
    );
    assert_eq!(
        (t.images().len(), t.images()[0].threads.len()),
        (1, WORKERS * EACH)
    );
}

/// A process that does nothing until it is killed, in place of a recorded one.
fn sleeper() -> std::process::Child {
    std::process::Command::new("/bin/sleep")
        .arg("1000")
        .spawn()
        .unwrap()
}

#[test]
fn rings_of_the_dead_are_used_again() {
    let mut o = collect(Disk::default(), |control, _| {
        let mut child = sleeper();
        let pid = child.id() as i32;
        let of = Who {
            pid,
            tid: pid,
            image: 2,
            parent: 1,
            ..Who::thread()
        };
        let mut image = Producer::of(
            control,
            0,
            Who {
                kind: kind::IMAGE,
                ..of
            },
        );
        image.emit(0, &Event::Unmap { addr: 0, len: 4096 });
        let mut thread = Producer::of(control, 1, of);
        thread.emit(0, &patch(0));
        // Idle for long, and alive.
        std::thread::sleep(Duration::from_millis(700));
        thread.emit(1, &patch(1));
        child.kill().unwrap();
        // A zombie is as dead as a process that was reaped.
        let again = Producer::of(control, 1, Who::thread());
        child.wait().unwrap();
        again.end();
    });
    let t = o.trace();
    let lost: Vec<_> = t.counts().iter().map(|s| s.lost).collect();
    assert_eq!(lost, [false, true, false]);
    assert_eq!(t.completeness(), Completeness::Complete);
    assert_eq!(positions(&t, 2), [0, 1]);
}

#[test]
fn other_processes_are_waited_for() {
    let mut o = collect(Disk::default(), |control, _| {
        // Left alone when the program ends.
        let mut child = sleeper();
        let pid = child.id() as i32;
        let who = Who {
            pid,
            tid: pid,
            ..Who::thread()
        };
        let file = File::from(control.fd().try_clone_to_owned().unwrap());
        let mut p = Producer::of(control, 7, who);
        p.emit(0, &patch(0));
        let at = p.control.ctl(p.ring).head.load(Relaxed);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            let mut enc = Encoder::default();
            let mut buf = [0; MAX_EVENT];
            enc.encode(0, &patch(0), &mut buf);
            let n = enc.encode(1, &patch(1), &mut buf);
            file.write_all_at(&buf[..n], (data_offset(7) as u64) + at)
                .unwrap();
            let head = hindsight_events::ring::ctl_offset(7) as u64;
            file.write_all_at(&(at + n as u64).to_le_bytes(), head)
                .unwrap();
            std::thread::sleep(Duration::from_millis(100));
            child.kill().unwrap();
            child.wait().unwrap();
        });
    });
    assert_eq!(positions(&o.trace(), 1), [0, 1]);
}

#[test]
fn images_that_were_left_are_closed() {
    let end = |kind, message| Event::End {
        kind,
        code: 0,
        message,
    };
    let mut o = collect(Disk::default(), |control, _| {
        let first = Producer::of(control, 9, Who::image(1, 0));
        // Another thread of the program, which cannot say that it ends.
        let mut other = Producer::of(control, 8, Who::thread());
        other.emit(0, &patch(0));
        let mut main = Producer::of(control, 7, Who::thread());
        main.emit(0, &end(EndKind::Exec, b""));
        main.end();
        let second = Producer::of(control, 6, Who::image(2, 1));
        // The ring is free again although process and thread live on.
        let mut main = Producer::of(
            control,
            8,
            Who {
                image: 2,
                parent: 1,
                ..Who::thread()
            },
        );
        main.emit(5, &end(EndKind::Unsupported, b"an odd instruction"));
        main.end();
        second.end();
        drop((first, other));
    });
    let refusals = &o.collected.refusals;
    assert_eq!(refusals.len(), 1);
    assert_eq!(
        (refusals[0].image, refusals[0].message.as_str()),
        (2, "an odd instruction")
    );
    let t = o.trace();
    let images: Vec<_> = t
        .images()
        .iter()
        .map(|i| {
            (
                i.number,
                i.parent,
                i.by_exec,
                i.streams.len(),
                i.threads.len(),
            )
        })
        .collect();
    assert_eq!(images, [(1, 0, false, 1, 2), (2, 1, true, 1, 1)]);
    assert_eq!(t.command(2), "what 'it executes'");
}

#[test]
fn code_comes_before_what_runs_it() {
    let o = collect(Disk::default(), |control, _| {
        let mut image = Producer::of(control, 200, Who::image(1, 0));
        let mut thread = Producer::new(control, 0);
        for i in 0..300_000 {
            if i % 1000 == 0 {
                let (addr, bytes) = (i, &[0x90; 100]);
                image.emit(
                    0,
                    &Event::Code {
                        epoch: 0,
                        addr,
                        bytes,
                    },
                );
            }
            thread.emit(i, &patch(i));
        }
        thread.end();
        image.end();
    });
    let bytes = o.disk.bytes.lock().unwrap().clone();
    let t = Trace::from_bytes(bytes).unwrap();
    let image = t.images()[0].streams[0];
    let thread = t.threads()[0];
    assert!(t.chunks(thread).len() > 3);
    for c in t.chunks(thread) {
        let pieces: u32 = t
            .chunks(image)
            .iter()
            .filter(|i| i.offset < c.offset)
            .map(|i| i.events)
            .sum();
        assert!(pieces as u64 > c.last_pos / 1000, "{pieces} {}", c.last_pos);
    }
}

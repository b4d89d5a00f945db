//! The collector against a producer that writes rings as the recorder does.

mod common;

use common::*;
use hindsight_collector::Control;
use hindsight_events::copied::stage;
use hindsight_events::event::tag;
use hindsight_events::ring::{RING_BYTES, commons};
use hindsight_events::{Decoder, EndKind, Event};
use hindsight_trace::{Completeness, Header, Summary, Trace};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

#[test]
fn rings_become_streams() {
    const N: u64 = 150_000;
    let mut o = collect(Disk::default(), |control, _| {
        std::thread::scope(|s| {
            for ring in 1..4 {
                s.spawn(move || {
                    let mut p = Producer::new(control, ring);
                    (0..N).for_each(|i| p.emit(i, &patch(i)));
                    control.ctl(ring).mispredictions.store(N, Relaxed);
                    p.end();
                });
            }
        });
    });
    let t = o.trace();
    assert_eq!(t.completeness(), Completeness::Complete);
    assert_eq!(t.streams(), [1, 2, 3]);
    for s in 1..4 {
        assert_eq!(positions(&t, s), (0..N).collect::<Vec<_>>());
    }
    let totals = t.summary().unwrap().totals;
    assert_eq!(
        (totals.instructions, totals.unpredicted_reads),
        (3 * (N - 1), 3 * N)
    );
    assert!(o.told.is_empty(), "{:?}", o.told);
}

/// A copy that fails leaves nothing in the stream of its thread. The thread has gone on, and nothing is lost.
#[test]
fn what_is_held_back_comes_without_a_key_frame_too() {
    const N: u64 = 200_000;
    let mut o = collect(Disk::default(), |control, _| {
        let mut p = Producer::new(control, 1);
        (0..10).for_each(|i| p.emit(i, &patch(i)));
        let ctl = control.ctl(1);
        ctl.copied.expect(ctl.head.load(Relaxed));
        (10..N).for_each(|i| p.emit(i, &patch(i)));
        assert!(ctl.head.load(Relaxed) > 2 * RING_BYTES as u64);
        assert_eq!(ctl.copied.stage(), stage::AWAITED);
        ctl.copied.fail();
        while ctl.copied.stage() == stage::FAILED {
            control.wake();
            std::thread::yield_now();
        }
        assert_eq!(ctl.copied.stage(), stage::DROPPED);
        p.end();
    });
    assert_eq!(positions(&o.trace(), 1), (0..N).collect::<Vec<_>>());
    assert!(o.told.is_empty(), "{:?}", o.told);
}

/// The bytes of a trace's stream, without times, which the collector writes.
fn said(t: &Trace, stream: u32) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    for c in t.chunks(stream) {
        let b = t.load(c).unwrap();
        let (mut dec, mut at) = (Decoder::default(), 0);
        while let Some((pos, e, n)) = dec.decode(&b[at..]) {
            at += n;
            if !matches!(e, Event::Time { .. }) {
                all.push((pos, format!("{e:?}")));
            }
        }
    }
    all
}

#[test]
fn references_to_common_cells_become_what_these_hold() {
    const BLOCKS: u64 = 50;
    const FAR: u64 = 0x7fff_0000_0000;
    let byte = |i: u64| (i * 7 + (i >> 8) * 13) as u8;
    let cells: Vec<u8> = (0..BLOCKS * commons::BLOCK).map(byte).collect();
    let masks = |i: u64| (0..64).map(move |l| [0xff, 0xff, 0x81, 0][((l + i / 5) % 4) as usize]);
    let pages = |i: u64| (3 * i, FAR + 4096 * i, masks(i).collect());
    let mut changes: Vec<(u64, u64, Vec<u8>)> = (0..BLOCKS * 16).map(pages).collect();
    // Some lines within a page.
    changes.push((90_000, FAR + 4096 + 192, vec![0xf0, 0xff]));
    let mut o = collect(Disk::default(), |control, _| {
        let file = File::from(control.fd().try_clone_to_owned().unwrap());
        let at = commons::offset(1).unwrap() + FAR % commons::BYTES;
        file.write_all_at(&cells, at).unwrap();
        let (mut refers, mut says) = (Producer::new(control, 1), Producer::new(control, 2));
        for (pos, line, masks) in &changes {
            let (pos, line) = (*pos, *line);
            refers.emit(pos, &Event::Common { line, masks });
            let mut words = Vec::new();
            let lines = cells[(line - FAR) as usize..].as_chunks::<64>().0;
            for (mask, line) in masks.iter().zip(lines) {
                let chosen = line.as_chunks::<8>().0.iter().enumerate();
                words.extend(chosen.filter(|(i, _)| mask >> i & 1 != 0).map(|(_, w)| *w));
            }
            let words = words.as_flattened();
            says.emit(pos, &Event::Lines { line, masks, words });
            refers.emit(pos, &patch(pos));
            says.emit(pos, &patch(pos));
        }
        refers.end();
        says.end();
    });
    let t = o.trace();
    assert_eq!(t.completeness(), Completeness::Complete);
    assert!(o.told.is_empty(), "{:?}", o.told);
    let both = [said(&t, 1), said(&t, 2)];
    assert_eq!(both[0].len() as u64, 2 * (BLOCKS * 16 + 1));
    assert!(both[0] == both[1]);
    // Chunks end at the same events, so that the file does not depend on who has referred.
    let ends = |s| t.chunks(s).iter().map(|c| c.last_pos).collect::<Vec<_>>();
    assert!(ends(1).len() > 1);
    assert_eq!(ends(1), ends(2));
}

#[test]
fn a_thread_that_wrote_nothing_leaves_common_cells_to_others() {
    let cells: Vec<u8> = (0..commons::BLOCK).map(|i| (i * 7) as u8).collect();
    let produce = |control: &Control| {
        let file = File::from(control.fd().try_clone_to_owned().unwrap());
        let at = commons::offset(1).unwrap();
        file.write_all_at(&cells, at).unwrap();
        // It was killed as it began. The collector comes to it first.
        Producer::new(control, 1).end();
        Producer::of(control, 2, Who::image(1, 0)).end();
        let mut p = Producer::new(control, 3);
        let masks = &[0xff; 64];
        p.emit(1, &Event::Common { line: 0, masks });
        p.end();
    };
    let mut o = collect_behind(Disk::default(), &Header::default(), produce, |_, _| {});
    let t = o.trace();
    let lines = Event::Lines {
        line: 0,
        masks: &[0xff; 64],
        words: &cells[..4096],
    };
    assert!(o.told.is_empty(), "{:?}", o.told);
    assert!(said(&t, 3) == [(1, format!("{lines:?}"))]);
}

#[test]
fn references_to_cells_that_cannot_be_there_end_a_stream() {
    let mut o = collect(Disk::default(), |control, _| {
        let masks = &[0xff; 64];
        let mut p = Producer::of(
            control,
            1,
            Who {
                image: 4097,
                ..Who::thread()
            },
        );
        p.emit(1, &patch(1));
        p.emit(2, &Event::Common { line: 4096, masks });
        p.emit(3, &patch(3));
        p.end();
        // Half of one, as of a thread that was killed.
        let mut p = Producer::new(control, 2);
        p.emit(1, &patch(1));
        p.raw(&[tag::COMMON, 1, 0x80]);
        p.end();
    });
    let t = o.trace();
    assert_eq!((positions(&t, 1), positions(&t, 2)), (vec![1], vec![1]));
    assert_eq!(o.told.len(), 1, "{:?}", o.told);
}

/// However much comes at once, a recording that is cut later says how long it took, since replay
/// may ask for that.
#[test]
fn each_chunk_says_when_it_came() {
    let mut o = collect(Disk::default(), |control, _| {
        let mut p = Producer::new(control, 1);
        (0..600_000).for_each(|i| p.emit(i, &patch(i)));
        p.end();
    });
    let t = o.trace();
    assert!(t.chunks(1).len() > 1);
    for c in t.chunks(1) {
        let b = t.load(c).unwrap();
        let (mut dec, mut at, mut last) = (Decoder::default(), 0, None);
        while let Some((_, e, n)) = dec.decode(&b[at..]) {
            (at, last) = (at + n, Some(matches!(e, Event::Time { .. })));
        }
        assert_eq!(last, Some(true));
    }
}

#[test]
fn a_ring_used_again_is_another_stream() {
    let mut o = collect(Disk::default(), |control, _| {
        for _ in 0..3 {
            let mut p = Producer::new(control, 1);
            (0..10).for_each(|i| p.emit(i, &patch(i)));
            p.end();
            control.wake();
        }
    });
    let t = o.trace();
    assert_eq!(t.streams(), [1, 2, 3]);
    assert!((1..4).all(|s| positions(&t, s) == (0..10).collect::<Vec<_>>()));
}

#[test]
fn a_full_disk_stops_the_trace_and_not_the_program() {
    let disk = Disk {
        room: Some(700_000),
        ..Disk::default()
    };
    let seen = AtomicUsize::new(0);
    let mut o = collect(disk, |control, _| {
        let mut p = Producer::new(control, 1);
        // Many times what the ring holds. It would block if nobody emptied the ring.
        (0..400_000).for_each(|i| p.emit(i, &patch(i)));
        // What is still in the ring may be what fills the disk.
        for _ in 0..1000 {
            seen.store(control.header().failed.load(Acquire) as usize, Relaxed);
            if seen.load(Relaxed) != 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        p.emit(
            400_000,
            &Event::End {
                kind: EndKind::Exit,
                code: 3,
                message: b"",
            },
        );
        p.end();
    });
    assert_eq!(seen.load(Relaxed), libc::ENOSPC as usize);
    assert_eq!(o.told.len(), 1);
    assert!(o.told[0].contains("No space left"), "{}", o.told[0]);
    let end = o.collected.end().unwrap();
    assert_eq!((end.kind.as_str(), end.code), ("exit", 3));
    assert_eq!(o.collected.totals().streams, 1);
    let t = o.trace();
    assert!(matches!(t.completeness(), Completeness::Cut { .. }));
    let got = positions(&t, 1);
    assert!(got.len() > 10_000 && got.iter().copied().eq(0..got.len() as u64));
}

#[test]
fn a_disk_that_is_full_at_the_very_end_loses_no_counts() {
    let produce = |control: &Control, _: &Disk| {
        let mut p = Producer::new(control, 1);
        (0..1000).for_each(|i| p.emit(i, &patch(i)));
        control.ctl(1).position.store(999, Relaxed);
        p.end();
    };
    let mut whole = collect(Disk::default(), produce);
    let begun = whole.disk.bytes.lock().unwrap().len();
    let end = whole.trace().len() as usize - begun;
    let disk = Disk {
        // The times may make one somewhat shorter than the other. So the disk is full half through what is written last.
        room: Some(begun + end / 2),
        ..Disk::default()
    };
    let mut o = collect(disk, produce);
    assert!(o.told.is_empty(), "{:?}, {begun} and {end} bytes", o.told);
    let (sink, summary) = o.collected.finish(Summary::default());
    assert!(sink.is_none() && o.collected.error.is_some());
    // An empty recording is not kept, and this one is not empty.
    assert_eq!(summary.totals.instructions, 999);
    let t = o.trace();
    assert!(matches!(t.completeness(), Completeness::Cut { .. }));
    assert_eq!(positions(&t, 1).len(), 1000);
}

#[test]
fn nonsense_in_a_ring_ends_its_stream_alone() {
    let mut o = collect(Disk::default(), |control, _| {
        let mut bad = Producer::new(control, 1);
        bad.emit(0, &patch(0));
        bad.raw(&[0xff; 100]);
        let mut lost = Producer::new(control, 2);
        lost.emit(0, &patch(0));
        lost.settle();
        let head = &control.ctl(2).head;
        head.store(head.load(Relaxed) + (RING_BYTES as u64) * 5, Release);
        let mut good = Producer::new(control, 3);
        (0..1000).for_each(|i| good.emit(i, &patch(i)));
        bad.raw(&vec![0xff; RING_BYTES]);
        bad.raw(&vec![0xff; RING_BYTES]);
        [bad, lost, good].into_iter().for_each(Producer::end);
    });
    let t = o.trace();
    assert_eq!(o.told.len(), 2, "{:?}", o.told);
    let mut lengths: Vec<_> = t
        .streams()
        .iter()
        .map(|s| positions(&t, *s).len())
        .collect();
    lengths.sort();
    assert_eq!(lengths, [1, 1, 1000]);
}

#[test]
fn what_was_gathered_reaches_the_file_within_seconds() {
    collect(Disk::default(), |control, disk| {
        let mut p = Producer::new(control, 1);
        (0..10).for_each(|i| p.emit(i, &patch(i)));
        control.wake();
        // On a machine with nothing else to do it takes less than two seconds.
        let began = Instant::now();
        let t = loop {
            let bytes = disk.bytes.lock().unwrap().clone();
            match Trace::from_bytes(bytes) {
                Ok(t) if !t.chunks(1).is_empty() => break t,
                _ => assert!(began.elapsed() < Duration::from_secs(60), "nothing comes"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(t.completeness(), Completeness::Unfinished);
        assert_eq!(positions(&t, 1).len(), 10);
        p.end();
    });
}

#[test]
fn executable_files_are_taken_along_once() {
    let path = std::env::current_exe().unwrap();
    let text = path.to_str().unwrap().as_bytes();
    let mut o = collect(Disk::default(), |control, _| {
        let mut p = Producer::of(control, 0, Who::image(1, 0));
        for (addr, (prot, path)) in (0x1000..).step_by(0x10000).zip([
            (5, text),
            (5, text),
            (1, b"/etc/passwd"),
            (5, b"/no/such/file"),
            (5, b"[vdso]"),
        ]) {
            p.emit(
                0,
                &Event::Map {
                    addr,
                    len: 0x2000,
                    prot,
                    flags: 2,
                    offset: 0x3000,
                    object: 0,
                    path,
                },
            );
        }
        let mut thread = Producer::new(control, 2);
        let end = Event::End {
            kind: EndKind::Unsupported,
            code: 0,
            message: b"an odd instruction",
        };
        thread.emit(0, &end);
        thread.end();
        p.end();
    });
    let maps = &o.collected.refusals[0].maps;
    let found = maps.iter().filter(|m| m.offset == 0x3000 && m.path == text);
    assert_eq!(found.count(), 2, "{maps:?}");
    let t = o.trace();
    assert_eq!(t.modules().len(), 1);
    assert_eq!(
        t.module_bytes(t.modules()[0].hash).unwrap(),
        std::fs::read(path).unwrap()
    );
}

#[test]
fn instructions_are_counted_as_far_as_events_tell() {
    let result = Event::SyscallRet { ret: 0 };
    let call = Event::Syscall {
        nr: 39,
        args: [0; 6],
    };
    let registers = |ilen| Event::Regs {
        mask: 1,
        ilen,
        values: [0; 19],
    };
    // The last event, at position 10, and the instructions that are completed behind it.
    for (events, expected) in [
        (&[patch(10)][..], 10),
        (&[call], 10),
        (&[call, result], 11),
        (&[registers(2)], 11),
        (&[registers(0)], 10),
    ] {
        let mut o = collect(Disk::default(), |control, _| {
            let mut p = Producer::new(control, 1);
            p.emit(0, &registers(0));
            events.iter().for_each(|e| p.emit(10, e));
            // Replay does not go to where only the order is told. What was executed since then
            // cannot be verified.
            p.emit(20, &Event::Seq { number: 1 });
            control.ctl(1).position.store(5000, Relaxed);
            p.end();
        });
        o.trace();
        assert_eq!(o.collected.totals().instructions, expected, "{events:?}");
    }
}

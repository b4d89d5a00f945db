//! The collector against a producer that writes rings as the recorder does.

use hindsight_collector::{Collected, Collector, Control};
use hindsight_events::ring::{RING_BYTES, data_offset, state};
use hindsight_events::{Decoder, Encoder, EndKind, Event, MAX_EVENT};
use hindsight_trace::{Completeness, Header, Summary, Trace};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The recorder's end of one ring.
struct Producer<'c> {
    control: &'c Control,
    file: File,
    ring: usize,
    enc: Encoder,
}

impl<'c> Producer<'c> {
    fn new(control: &'c Control, ring: usize) -> Producer<'c> {
        let ctl = control.ctl(ring);
        // The ring may have been used before; the collector gives it back.
        while ctl
            .state
            .compare_exchange(state::FREE, state::LIVE, AcqRel, Relaxed)
            .is_err()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = File::from(control.fd().try_clone_to_owned().unwrap());
        Producer {
            control,
            file,
            ring,
            enc: Encoder::default(),
        }
    }

    fn emit(&mut self, pos: u64, e: &Event) {
        let mut buf = [0; MAX_EVENT];
        let n = self.enc.encode(pos, e, &mut buf);
        self.raw(&buf[..n]);
    }

    fn raw(&mut self, b: &[u8]) {
        let ctl = self.control.ctl(self.ring);
        let head = ctl.head.load(Relaxed);
        while head + b.len() as u64 - ctl.tail.load(Acquire) > RING_BYTES as u64 {
            ctl.waiting.store(1, SeqCst);
            self.control.wake();
            std::thread::yield_now();
        }
        ctl.waiting.store(0, Relaxed);
        let at = head as usize % RING_BYTES;
        let first = b.len().min(RING_BYTES - at);
        let base = data_offset(self.ring);
        self.file
            .write_all_at(&b[..first], (base + at) as u64)
            .unwrap();
        self.file.write_all_at(&b[first..], base as u64).unwrap();
        ctl.head.store(head + b.len() as u64, Release);
    }

    fn end(self) {
        self.control
            .ctl(self.ring)
            .state
            .store(state::ENDED, Release);
    }
}

fn patch(i: u64) -> Event<'static> {
    Event::Patch {
        line: i.wrapping_mul(64 * 7919) & 0xffff_ffff_ffc0,
        mask: 0x81,
        words: [i, 0, 0, 0, 0, 0, 0, !i],
    }
}

/// A sink that can be looked at while it is written, and that is full at some point.
#[derive(Clone, Default)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Option<usize>,
}

impl Write for Disk {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        let mut all = self.bytes.lock().unwrap();
        let room = self
            .room
            .map_or(b.len(), |r| r.saturating_sub(all.len()).min(b.len()));
        if room == 0 && !b.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        all.extend_from_slice(&b[..room]);
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Outcome {
    collected: Collected<Disk>,
    told: Vec<String>,
    disk: Disk,
}

impl Outcome {
    fn trace(&mut self) -> Trace {
        self.collected.finish(Summary::default());
        Trace::from_bytes(self.disk.bytes.lock().unwrap().clone()).unwrap()
    }
}

/// Collects what `produce` writes.
fn collect(disk: Disk, produce: impl FnOnce(&Control, &Disk)) -> Outcome {
    let control = Control::new().unwrap();
    let told = Mutex::new(Vec::new());
    let tell = |m: &str| told.lock().unwrap().push(m.to_string());
    let collector = Collector::new(&control, disk.clone(), &Header::default(), tell).unwrap();
    let ended = AtomicBool::new(false);
    let collected = std::thread::scope(|s| {
        let c = s.spawn(|| collector.run(&ended));
        produce(&control, &disk);
        ended.store(true, Release);
        control.wake();
        c.join().unwrap()
    });
    Outcome {
        collected,
        told: told.into_inner().unwrap(),
        disk,
    }
}

fn positions(t: &Trace, stream: u32) -> Vec<u64> {
    let mut out = Vec::new();
    for c in t.chunks(stream) {
        let b = t.load(c).unwrap();
        let (mut dec, mut at) = (Decoder::default(), 0);
        while at < b.len() {
            let (pos, e, n) = dec.decode(&b[at..]).unwrap();
            assert!(matches!(e, Event::Patch { .. }) && e == patch(pos), "{e:?}");
            out.push(pos);
            at += n;
        }
    }
    out
}

#[test]
fn rings_become_streams() {
    const N: u64 = 150_000;
    let mut o = collect(Disk::default(), |control, _| {
        std::thread::scope(|s| {
            for ring in 1..4 {
                s.spawn(move || {
                    let mut p = Producer::new(control, ring);
                    (0..N).for_each(|i| p.emit(i, &patch(i)));
                    control.ctl(ring).surprises.store(N, Relaxed);
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
    let summary = t.summary().unwrap();
    assert_eq!(
        (summary.instructions(), summary.unpredicted_reads()),
        (3 * (N - 1), 3 * N)
    );
    assert!(o.told.is_empty(), "{:?}", o.told);
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
        // Many times what the ring holds: it would block if nobody emptied it.
        (0..400_000).for_each(|i| p.emit(i, &patch(i)));
        seen.store(control.header().failed.load(Acquire) as usize, Relaxed);
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
    assert_eq!(o.collected.end, Some((EndKind::Exit, 3, String::new())));
    let t = o.trace();
    assert!(matches!(t.completeness(), Completeness::Cut { .. }));
    let got = positions(&t, 1);
    assert!(got.len() > 10_000 && got.iter().copied().eq(0..got.len() as u64));
}

#[test]
fn nonsense_in_a_ring_ends_its_stream_alone() {
    let mut o = collect(Disk::default(), |control, _| {
        let mut bad = Producer::new(control, 1);
        bad.emit(0, &patch(0));
        bad.raw(&[0xff; 100]);
        let mut lost = Producer::new(control, 2);
        lost.emit(0, &patch(0));
        control.wake();
        std::thread::sleep(Duration::from_millis(50));
        let head = &control.ctl(2).head;
        head.store(head.load(Relaxed) + (RING_BYTES as u64) * 5, Release);
        let mut good = Producer::new(control, 3);
        (0..1000).for_each(|i| good.emit(i, &patch(i)));
        bad.raw(&vec![0xff; RING_BYTES]);
        bad.raw(&vec![0xff; RING_BYTES]);
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
        std::thread::sleep(Duration::from_millis(1800));
        let t = Trace::from_bytes(disk.bytes.lock().unwrap().clone()).unwrap();
        assert_eq!(t.completeness(), Completeness::Unfinished);
        assert_eq!(positions(&t, 1).len(), 10);
    });
}

#[test]
fn executable_files_are_taken_along_once() {
    let path = std::env::current_exe().unwrap();
    let text = path.to_str().unwrap().as_bytes();
    let mut o = collect(Disk::default(), |control, _| {
        let mut p = Producer::new(control, 0);
        for (prot, path) in [
            (5, text),
            (5, text),
            (1, b"/etc/passwd"),
            (5, b"/no/such/file"),
            (5, b"[vdso]"),
        ] {
            p.emit(
                0,
                &Event::Map {
                    addr: 0x1000,
                    len: 0x2000,
                    prot,
                    flags: 2,
                    offset: 0x3000,
                    path,
                },
            );
        }
    });
    assert_eq!(
        o.collected
            .maps
            .iter()
            .filter(|m| m.path == text && m.offset == 0x3000)
            .count(),
        2
    );
    let t = o.trace();
    assert_eq!(t.modules().len(), 1);
    assert_eq!(
        t.module_bytes(t.modules()[0].hash).unwrap(),
        std::fs::read(path).unwrap()
    );
}

//! The collector against a producer that writes rings as the recorder does.

use hindsight_collector::{Collected, Collector, Control};
use hindsight_events::ring::{RING_BYTES, RINGS, data_offset, kind, state};
use hindsight_events::{Decoder, Encoder, EndKind, Event, MAX_EVENT};
use hindsight_trace::{Completeness, Header, Summary, Trace};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The recorder's end of one ring.
struct Producer<'c> {
    control: &'c Control,
    file: File,
    ring: usize,
    enc: Encoder,
}

/// Who produces, in which program image.
#[derive(Clone, Copy)]
struct Who {
    kind: u32,
    image: u32,
    parent: u32,
    pid: i32,
    tid: i32,
}

impl Who {
    /// A thread of this process in image 1.
    fn thread() -> Who {
        Who {
            kind: kind::THREAD,
            image: 1,
            parent: 0,
            pid: std::process::id() as i32,
            // SAFETY: touches no memory.
            tid: unsafe { libc::gettid() },
        }
    }

    fn image(image: u32, parent: u32) -> Who {
        Who {
            kind: kind::IMAGE,
            image,
            parent,
            ..Who::thread()
        }
    }
}

impl<'c> Producer<'c> {
    fn new(control: &'c Control, ring: usize) -> Producer<'c> {
        Producer::of(control, ring, Who::thread())
    }

    fn of(control: &'c Control, ring: usize, who: Who) -> Producer<'c> {
        // The ring may have been used before; the collector gives it back.
        loop {
            if let Some(p) = Producer::claim(control, ring..ring + 1, who) {
                return p;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the first free ring.
    fn claim(control: &'c Control, mut rings: Range<usize>, who: Who) -> Option<Producer<'c>> {
        let free = |i: &usize| {
            let state = &control.ctl(*i).state;
            let (from, to) = (state::FREE, state::CLAIMED);
            state.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
        };
        let ring = rings.find(free)?;
        let ctl = control.ctl(ring);
        ctl.kind.store(who.kind, Relaxed);
        ctl.image.store(who.image, Relaxed);
        ctl.parent.store(who.parent, Relaxed);
        ctl.pid.store(who.pid, Relaxed);
        ctl.tid.store(who.tid, Relaxed);
        ctl.state.store(state::LIVE, Release);
        let file = File::from(control.fd().try_clone_to_owned().unwrap());
        Some(Producer {
            control,
            file,
            ring,
            enc: Encoder::default(),
        })
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
        self.control.wake();
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
    let (ended, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let collected = std::thread::scope(|s| {
        let c = s.spawn(|| collector.run(&ended, &stop));
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
    let end = o.collected.streams()[0].end.clone().unwrap();
    assert_eq!((end.kind.as_str(), end.code), ("exit", 3));
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
        std::thread::sleep(Duration::from_millis(1800));
        let t = Trace::from_bytes(disk.bytes.lock().unwrap().clone()).unwrap();
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
        p.end();
    });
    assert_eq!(
        o.collected
            .maps
            .iter()
            .filter(|m| (m.image, m.offset) == (1, 0x3000) && m.path == text)
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

#[test]
fn threads_in_thousands_share_the_rings() {
    const WORKERS: usize = 8;
    const EACH: usize = 500;
    // More workers than rings.
    let rings = 5;
    let begin = Instant::now();
    let mut o = collect(Disk::default(), |control, _| {
        let image = Producer::claim(control, 0..RINGS, Who::image(1, 0)).unwrap();
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

/// A process that does nothing until it is killed, in the place of one that is recorded.
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
        // A zombie is as dead as one that has been reaped.
        let again = Producer::of(control, 1, Who::thread());
        child.wait().unwrap();
        again.end();
    });
    let lost: Vec<_> = o.collected.streams().iter().map(|s| s.lost).collect();
    assert_eq!(lost, [false, true, false]);
    let t = o.trace();
    assert_eq!(t.completeness(), Completeness::Complete);
    assert_eq!(positions(&t, 2), [0, 1]);
}

#[test]
fn other_processes_are_waited_for() {
    let mut o = collect(Disk::default(), |control, _| {
        // Left to itself when the program ends.
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
        // Another thread of the program, which does not get to say that it ends.
        let mut other = Producer::of(control, 8, Who::thread());
        other.emit(0, &patch(0));
        let mut main = Producer::of(control, 7, Who::thread());
        main.emit(0, &end(EndKind::Exec, b""));
        main.end();
        let second = Producer::of(control, 6, Who::image(2, 1));
        // The ring is free again though process and thread live on.
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
    // What ran is known while it runs.
    let me = std::env::args().next().unwrap();
    assert!(t.command(2).starts_with(&me), "{}", t.command(2));
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

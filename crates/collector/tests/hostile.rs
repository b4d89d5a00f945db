//! Programs that write into the memory that they share with the collector. `HINDSIGHT_FUZZ_SECONDS`
//! says for how long (5), `HINDSIGHT_FUZZ_SEED` with which seed they begin.

mod common;

use common::*;
use hindsight_collector::{Collector, Control, discard};
use hindsight_events::copied::{Copied, stage};
use hindsight_events::ring::{
    Header as ControlHeader, RING_BYTES, STRIPES_OFFSET, ctl_offset, data_offset, kind, state,
};
use hindsight_events::{Decoder, Encoder, EndKind, Event, MAX_EVENT};
use hindsight_trace::{Header, Summary, Trace};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Number of rings that are written to.
const RINGS: usize = 12;

/// Longest time in which the collector has to end when it is told to.
const LIMIT: Duration = Duration::from_secs(30);

/// Memory that the collector may take besides the rings and the trace, in KiB.
const MEMORY_KIB: u64 = 1 << 20;

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            r.next();
        }
        r
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    /// A number that means something, or one next to it.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => self.below(256),
            3 => 1 << self.below(64),
            4 => (1u64 << self.below(64)).wrapping_sub(1),
            5 => std::process::id() as u64,
            6 => RING_BYTES as u64 * self.below(4) + self.below(16),
            _ => self.next(),
        }
    }
}

fn seconds() -> u64 {
    std::env::var("HINDSIGHT_FUZZ_SECONDS").map_or(5, |v| v.parse().unwrap())
}

fn first_seed() -> u64 {
    std::env::var("HINDSIGHT_FUZZ_SEED").map_or(1, |v| v.parse().unwrap())
}

/// A sink that takes so many bytes and no more.
struct Bin {
    bytes: std::sync::Arc<Mutex<Vec<u8>>>,
}

impl io::Write for Bin {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        let mut all = self.bytes.lock().unwrap();
        // The disk is full at some point, as for anybody who writes without end.
        if all.len() > 96 << 20 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        all.extend_from_slice(b);
        Ok(b.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes anything anywhere into the memory of a recording.
struct Vandal<'c> {
    control: &'c Control,
    file: File,
    random: Random,
}

impl<'c> Vandal<'c> {
    fn new(control: &'c Control, seed: u64) -> Vandal<'c> {
        Vandal {
            control,
            file: File::from(control.fd().try_clone_to_owned().unwrap()),
            random: Random::new(seed),
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).unwrap();
    }

    /// Some bytes of the header, the locks, the control pages or the rings.
    fn scribble(&mut self) {
        let r = &mut self.random;
        let ring = r.below(RINGS as u64) as usize;
        let at = match r.below(8) {
            0 => r.below(size_of::<ControlHeader>() as u64) as usize,
            1 => r.below(400) as usize,
            2 => STRIPES_OFFSET + r.below(1 << 14) as usize,
            3..=5 => ctl_offset(ring) + r.below(300) as usize,
            6 => ctl_offset(r.below(3000) as usize) + r.below(300) as usize,
            _ => data_offset(ring) + r.below(RING_BYTES as u64 - 8) as usize,
        };
        let value = r.number().to_le_bytes();
        let len = [1, 4, 8][r.below(3) as usize];
        // Words of the layout are at multiples of their size.
        self.put(at / len * len, &value[..len]);
        if self.random.below(16) == 0 {
            self.control.header().stuck.fetch_add(1, AcqRel);
            self.control.wake();
        }
    }

    /// Takes a ring for a stream of somebody, with something in it.
    fn stream(&mut self) {
        let i = self.random.below(RINGS as u64) as usize;
        let ctl = self.control.ctl(i);
        if !self.control.header().claim_one(i, ctl) {
            if self.random.below(8) == 0 {
                ctl.state.store(state::ENDED, Release);
                self.control.header().request_attention(i);
                self.control.wake();
            }
            std::thread::yield_now();
            return;
        }
        let r = &mut self.random;
        let image = if r.below(20) == 0 {
            r.number() as u32
        } else {
            1 + r.below(40) as u32
        };
        let parent = if r.below(20) == 0 {
            r.number() as u32
        } else {
            image.wrapping_sub(1)
        };
        ctl.kind
            .store((r.below(3) == 0) as u32 * kind::IMAGE, Relaxed);
        ctl.image.store(image, Relaxed);
        ctl.parent.store(parent, Relaxed);
        let pids = [std::process::id() as i32, r.number() as i32];
        ctl.pid.store(pids[r.below(2) as usize], Relaxed);
        ctl.tid.store(pids[r.below(2) as usize], Relaxed);
        ctl.burst.store(r.below(4) as u32 / 3, Relaxed);
        if r.below(4) == 0 {
            let at = [r.below(3000), r.number()];
            ctl.copied.at.store(at[r.below(2) as usize], Relaxed);
            ctl.copied
                .pid
                .store([0, pids[0], pids[1]][r.below(3) as usize], Relaxed);
            ctl.copied.stage.store(r.below(7) as u32, Relaxed);
        }
        ctl.state.store(state::LIVE, Release);
        let n = self.random.below(400);
        self.events(i, n);
        if self.random.below(4) != 0 {
            ctl.state.store(state::ENDED, Release);
        }
        self.control.header().request_attention(i);
        self.control.wake();
    }

    /// Appends events of all kinds. Some of them make no sense.
    fn events(&mut self, i: usize, n: u64) {
        let mut wire = Vec::new();
        let (mut enc, mut buf) = (Encoder::default(), [0; MAX_EVENT]);
        let long = [0xa5u8; 8192];
        for _ in 0..n {
            let r = &mut self.random;
            let some = &long[..r.below(200) as usize];
            let path = format!("/no/such/file/{}", r.next());
            let e = match r.below(12) {
                0 => Event::Map {
                    addr: r.number(),
                    len: r.number(),
                    prot: 7,
                    flags: 1,
                    offset: r.number(),
                    object: r.number(),
                    path: path.as_bytes(),
                },
                1 => Event::Unmap {
                    addr: r.number(),
                    len: r.number(),
                },
                2 => Event::Code {
                    epoch: r.number(),
                    addr: r.number(),
                    bytes: &long[..4096],
                },
                3 => Event::Mark {
                    name: some.len() / 2,
                    bytes: some,
                },
                4 => Event::File {
                    addr: r.number(),
                    len: r.number(),
                    offset: r.number(),
                    device: r.number(),
                    inode: r.number(),
                    size: r.number(),
                    modified: r.number(),
                    path: if r.below(2) == 0 {
                        b"/proc/self/mem"
                    } else {
                        path.as_bytes()
                    },
                },
                5 => Event::Memory {
                    addr: r.number(),
                    bytes: some,
                },
                6 => Event::Seq { number: r.number() },
                7 => Event::CodeEpoch { epoch: r.number() },
                8 => Event::GapBegin {
                    reason: hindsight_events::GapReason::Stopped,
                },
                9 if r.below(20) == 0 => Event::End {
                    kind: [EndKind::Exec, EndKind::Unsupported, EndKind::Exit][r.below(3) as usize],
                    code: 1,
                    message: some,
                },
                _ => patch(r.next()),
            };
            let step = if r.below(100) == 0 { r.number() } else { 1 };
            let pos = enc.pos.saturating_add(step);
            let len = enc.encode(pos, &e, &mut buf);
            wire.extend_from_slice(&buf[..len]);
        }
        if self.random.below(4) == 0 && !wire.is_empty() {
            let at = self.random.below(wire.len() as u64) as usize;
            wire[at] ^= 1 << self.random.below(8);
        }
        wire.truncate(RING_BYTES);
        self.put(data_offset(i), &wire);
        self.control.ctl(i).head.store(wire.len() as u64, Release);
    }
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Reads all of a trace.
fn read_all(bytes: Vec<u8>) -> usize {
    let t = Trace::from_bytes(bytes).unwrap();
    let mut events = 0;
    for s in t.streams() {
        for c in t.chunks(s) {
            let Ok(b) = t.load(c) else { continue };
            let (mut dec, mut at) = (Decoder::default(), 0);
            while let Some((_, _, n)) = dec.decode(&b[at..]) {
                (at, events) = (at + n, events + 1);
            }
            assert_eq!(at, b.len(), "what is in a chunk is whole events");
        }
    }
    events
}

/// One recording, to which several threads do the worst that `work` knows. It ends by the program's
/// end, or by being told to.
fn survive(seed: u64, time: Duration, told: bool, work: fn(&mut Vandal)) {
    let control = Control::new().unwrap();
    let theirs = control.for_program().unwrap();
    let bytes = std::sync::Arc::new(Mutex::new(Vec::new()));
    let sink = Bin {
        bytes: bytes.clone(),
    };
    let lines = AtomicU32::new(0);
    let tell = |_: &str| {
        lines.fetch_add(1, Relaxed);
    };
    let collector = Collector::new(&control, sink, &Header::default(), tell).unwrap();
    let (ended, stop, enough) = (
        AtomicBool::new(false),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let before = memory_kib();
    let peak = AtomicU64::new(0);
    let mut collected = std::thread::scope(|s| {
        let c = s.spawn(|| collector.run(&ended, &stop));
        for n in 0..2 {
            let mut v = Vandal::new(&control, seed * 10 + n);
            let enough = &enough;
            s.spawn(move || {
                while !enough.load(Relaxed) {
                    work(&mut v);
                }
            });
        }
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::thread::sleep(Duration::from_millis(20));
            peak.fetch_max(memory_kib(), Relaxed);
        }
        if told {
            stop.store(true, Release);
        } else {
            enough.store(true, Release);
            drop(theirs);
            ended.store(true, Release);
        }
        control.wake();
        let begin = Instant::now();
        while !c.is_finished() {
            if begin.elapsed() > LIMIT {
                eprintln!("the collector does not end: HINDSIGHT_FUZZ_SEED={seed}");
                // A thread that hangs cannot be joined.
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        enough.store(true, Release);
        c.join()
            .unwrap_or_else(|_| panic!("HINDSIGHT_FUZZ_SEED={seed}"))
    });
    let (_, summary) = collected.finish(Summary::default());
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    let len = bytes.len() as u64 >> 10;
    let events = read_all(bytes);
    println!(
        "seed {seed}: {events} events of {} streams, {len} KiB, {} lines, peak {} KiB",
        summary.totals.streams,
        lines.load(Relaxed),
        peak.load(Relaxed)
    );
    assert!(lines.load(Relaxed) <= 20, "it says so, but not without end");
    let own = peak.load(Relaxed).saturating_sub(before + 2 * len);
    assert!(own < MEMORY_KIB, "{own} KiB, HINDSIGHT_FUZZ_SEED={seed}");
}

/// Rounds of [`survive`], for a share of the time.
fn rounds(share: u64, told: bool, work: fn(&mut Vandal)) {
    let time = Duration::from_millis(seconds() * 1000 / share);
    let begin = Instant::now();
    for seed in first_seed().. {
        survive(seed, (time / 3).min(Duration::from_secs(2)), told, work);
        if begin.elapsed() >= time {
            return;
        }
    }
}

#[test]
fn words_that_make_no_sense_do_no_harm() {
    rounds(3, false, |v| v.scribble());
}

#[test]
fn streams_without_end_take_bounded_memory() {
    rounds(3, false, |v| match v.random.below(4000) {
        0 => v.scribble(),
        _ => v.stream(),
    });
}

#[test]
fn who_is_told_to_end_does_so_whatever_is_written() {
    rounds(3, true, |v| match v.random.below(300) {
        0 => v.scribble(),
        _ => v.stream(),
    });
}

#[test]
fn what_was_recorded_before_stays() {
    const N: u64 = 20_000;
    let mut o = collect(Disk::default(), |control, _| {
        let mut p = Producer::new(control, 1);
        (0..N).for_each(|i| p.emit(i, &patch(i)));
        p.settle();
        let mut v = Vandal::new(control, 1);
        for _ in 0..3000 {
            v.scribble();
        }
        // No other process has the memory of this one.
        let theirs = control.for_program().unwrap();
        drop(theirs);
    });
    let t = o.trace();
    let ours = t.threads().into_iter().find(|s| {
        let c = t.chunks(*s);
        c.first()
            .is_some_and(|c| c.first_pos == 0 && c.events > 1000)
    });
    let c = &t.chunks(ours.expect("the stream is there"))[0];
    let b = t.load(c).unwrap();
    let (mut dec, mut at, mut next) = (Decoder::default(), 0, 0);
    while let Some((pos, e, n)) = dec.decode(&b[at..]) {
        at += n;
        if !matches!(e, Event::Time { .. }) {
            assert_eq!((pos, e), (next, patch(next)));
            next += 1;
        }
    }
    assert!(next > 1000);
}

#[test]
fn without_a_collector_the_program_goes_on() {
    let control = Control::new().unwrap();
    let theirs = control.for_program().unwrap();
    let (ended, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| discard(&control, &ended, &stop));
        for _ in 0..3 {
            let mut p = Producer::new(&control, 5);
            // Many times what the ring holds.
            (0..200_000).for_each(|i| p.emit(i, &patch(i)));
            p.end();
        }
        assert_eq!(control.header().failed.load(Acquire), libc::EIO as u32);
        // Nor does it wait for a key frame that nobody takes.
        let mut p = Producer::new(&control, 5);
        p.emit(0, &patch(0));
        let copied = &control.ctl(5).copied;
        let turns: [fn(&Copied); 3] = [|_| {}, |c| c.hand(1, 2), Copied::fail];
        for turn in turns {
            copied.expect(0);
            turn(copied);
            while copied.stage() != stage::DROPPED {
                std::thread::yield_now();
            }
            // A copy that comes late changes nothing.
            turn(copied);
            assert_eq!(copied.stage(), stage::DROPPED);
        }
        p.end();
        drop(theirs);
        ended.store(true, Release);
    });
}

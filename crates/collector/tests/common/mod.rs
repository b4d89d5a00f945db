//! A producer that writes rings as the recorder does.
#![allow(dead_code)] // each test file uses its own part

use hindsight_collector::{Collected, Collector, Control};
use hindsight_events::ring::{RING_BYTES, data_offset, kind, state};
use hindsight_events::{Decoder, Encoder, Event, MAX_EVENT};
use hindsight_trace::{Header, Summary, Trace};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The recorder's end of one ring.
pub struct Producer<'c> {
    pub control: &'c Control,
    file: File,
    pub ring: usize,
    enc: Encoder,
}

/// Who produces, and in which program image.
#[derive(Clone, Copy)]
pub struct Who {
    pub kind: u32,
    pub image: u32,
    pub parent: u32,
    pub pid: i32,
    pub tid: i32,
}

impl Who {
    /// A thread of this process in image 1.
    pub fn thread() -> Who {
        Who {
            kind: kind::THREAD,
            image: 1,
            parent: 0,
            pid: std::process::id() as i32,
            // SAFETY: the call uses no memory.
            tid: unsafe { libc::gettid() },
        }
    }

    pub fn image(image: u32, parent: u32) -> Who {
        Who {
            kind: kind::IMAGE,
            image,
            parent,
            ..Who::thread()
        }
    }
}

impl<'c> Producer<'c> {
    pub fn new(control: &'c Control, ring: usize) -> Producer<'c> {
        Producer::of(control, ring, Who::thread())
    }

    pub fn of(control: &'c Control, ring: usize, who: Who) -> Producer<'c> {
        // The ring may have been used before. The collector gives it back.
        loop {
            if let Some(p) = Producer::claim(control, ring..ring + 1, who) {
                return p;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the first free ring.
    pub fn claim(control: &'c Control, mut rings: Range<usize>, who: Who) -> Option<Producer<'c>> {
        let free = |i: &usize| control.header().claim_one(*i, control.ctl(*i));
        let ring = rings.find(free)?;
        let ctl = control.ctl(ring);
        ctl.kind.store(who.kind, Relaxed);
        ctl.image.store(who.image, Relaxed);
        ctl.parent.store(who.parent, Relaxed);
        ctl.pid.store(who.pid, Relaxed);
        ctl.tid.store(who.tid, Relaxed);
        if who.parent != 0 {
            ctl.set_command(b"what\0it executes\0");
        }
        let executed = who.kind == kind::IMAGE && who.parent != 0 && who.pid == Who::thread().pid;
        ctl.executed.store(executed as u32, Relaxed);
        ctl.state.store(state::LIVE, Release);
        let file = File::from(control.fd().try_clone_to_owned().unwrap());
        Some(Producer {
            control,
            file,
            ring,
            enc: Encoder::default(),
        })
    }

    pub fn emit(&mut self, pos: u64, e: &Event) {
        let mut buf = [0; MAX_EVENT];
        let n = self.enc.encode(pos, e, &mut buf);
        self.raw(&buf[..n]);
    }

    /// Waits until the collector has taken all of it.
    pub fn settle(&self) {
        let ctl = self.control.ctl(self.ring);
        while ctl.taken.load(Acquire) != ctl.head.load(Relaxed) {
            self.control.wake();
            std::thread::yield_now();
        }
    }

    pub fn raw(&mut self, b: &[u8]) {
        let ctl = self.control.ctl(self.ring);
        let head = ctl.head.load(Relaxed);
        while head + b.len() as u64 - ctl.tail.load(Acquire) > RING_BYTES as u64 {
            ctl.waiting.store(1, SeqCst);
            self.control.header().request_attention(self.ring);
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

    pub fn end(self) {
        self.control
            .ctl(self.ring)
            .state
            .store(state::ENDED, Release);
        self.control.header().request_attention(self.ring);
        self.control.wake();
    }
}

pub fn patch(i: u64) -> Event<'static> {
    Event::Patch {
        line: i.wrapping_mul(64 * 7919) & 0xffff_ffff_ffc0,
        mask: 0x81,
        words: [i, 0, 0, 0, 0, 0, 0, !i],
    }
}

/// A sink that can be looked at while it is written to, and that is full at some point.
#[derive(Clone, Default)]
pub struct Disk {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub room: Option<usize>,
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

pub struct Outcome {
    pub collected: Collected<Disk>,
    pub told: Vec<String>,
    pub disk: Disk,
}

impl Outcome {
    pub fn trace(&mut self) -> Trace {
        self.collected.finish(Summary::default());
        Trace::from_bytes(self.disk.bytes.lock().unwrap().clone()).unwrap()
    }
}

/// Collects what `produce` writes.
pub fn collect(disk: Disk, produce: impl FnOnce(&Control, &Disk)) -> Outcome {
    collect_with(disk, &Header::default(), produce)
}

/// [`collect`] into a trace that begins with `header`.
pub fn collect_with(disk: Disk, header: &Header, produce: impl FnOnce(&Control, &Disk)) -> Outcome {
    collect_behind(disk, header, |_| {}, produce)
}

/// [`collect_with`]. All of what `before` produces is there when the collector first looks.
pub fn collect_behind(
    disk: Disk,
    header: &Header,
    before: impl FnOnce(&Control),
    produce: impl FnOnce(&Control, &Disk),
) -> Outcome {
    let control = Control::new().unwrap();
    let me = std::process::id() as i32;
    control.header().guest_pid.store(me, Relaxed);
    before(&control);
    let told = Mutex::new(Vec::new());
    let tell = |m: &str| told.lock().unwrap().push(m.to_string());
    let collector = Collector::new(&control, disk.clone(), header, tell).unwrap();
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

pub fn positions(t: &Trace, stream: u32) -> Vec<u64> {
    let mut out = Vec::new();
    for c in t.chunks(stream) {
        let b = t.load(c).unwrap();
        let (mut dec, mut at) = (Decoder::default(), 0);
        while at < b.len() {
            let (pos, e, n) = dec.decode(&b[at..]).unwrap();
            at += n;
            if matches!(e, Event::Time { .. }) {
                continue;
            }
            assert!(matches!(e, Event::Patch { .. }) && e == patch(pos), "{e:?}");
            out.push(pos);
        }
    }
    out
}

//! The producer's side of the memory shared with the collector.

use crate::fail::{self, STATUS};
use crate::lock::Lock;
use crate::sys::{self, PROT_NONE, PROT_READ, PROT_WRITE};
use crate::{arena, line};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use hindsight_events::ring::{self, Ctl, FILE_LEN, Header, RING_BYTES, RINGS, state};
use hindsight_events::{Encoder, Event, MAX_EVENT};
use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED};

/// Start of the mapped control file; null when nothing is recorded.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

fn header() -> Option<&'static Header> {
    let base = BASE.load(Acquire);
    // SAFETY: non-null means a mapped control file, whose header consists of atomics.
    (!base.is_null()).then(|| unsafe { &*base.cast::<Header>() })
}

fn ctl(i: usize) -> Option<&'static Ctl> {
    let base = BASE.load(Acquire);
    // SAFETY: as above; each control page consists of atomics.
    (!base.is_null()).then(|| unsafe { &*base.add(ring::ctl_offset(i)).cast::<Ctl>() })
}

/// Maps the control file for the rest of the process's life and closes its descriptor.
pub fn open(fd: i32) {
    let base = match arena::map(FILE_LEN as u64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) {
        Ok(b) => b as *mut u8,
        Err(e) => fail::die(
            STATUS,
            &line!("cannot map the memory shared with the collector (error {e})"),
        ),
    };
    sys::close(fd);
    BASE.store(base, Release);
    let Some(h) = header() else { return };
    if h.magic.load(Acquire) != ring::MAGIC {
        fail::die(
            STATUS,
            &line!("the two halves of the recorder are of different versions"),
        );
    }
    h.guest_pid.store(sys::getpid(), Release);
}

/// The next number of the recording's order; 0 when nothing is recorded.
pub fn next_sequence() -> u64 {
    header().map_or(0, |h| h.sequence.fetch_add(1, AcqRel))
}

/// Writes one event stream.
pub struct Emitter {
    ctl: Option<&'static Ctl>,
    data: *mut u8,
    enc: Encoder,
    head: u64,
    /// `head` when the collector's sleep was last looked at.
    looked: u64,
}

// SAFETY: an emitter is the only producer of its ring, whichever thread holds it.
unsafe impl Send for Emitter {}

impl Emitter {
    /// An emitter that drops everything.
    pub fn silent() -> Emitter {
        Emitter {
            ctl: None,
            data: null_mut(),
            enc: Encoder::default(),
            head: 0,
            looked: 0,
        }
    }

    /// Takes a free ring: the first one (the process stream) or one for a thread. Silent when
    /// nothing is recorded; `None` when all rings are taken.
    fn claim(mut rings: core::ops::Range<usize>) -> Option<Emitter> {
        let base = BASE.load(Acquire);
        if base.is_null() {
            return Some(Emitter::silent());
        }
        let i = rings.find(|&i| {
            ctl(i).is_some_and(|c| {
                c.state
                    .compare_exchange(state::FREE, state::LIVE, AcqRel, Relaxed)
                    .is_ok()
            })
        })?;
        let c = ctl(i)?;
        c.tid.store(sys::gettid(), Relaxed);
        let len = RING_BYTES as u64;
        let data = arena::map(
            2 * len,
            PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1,
            0,
        )
        .ok()?;
        let from = base as u64 + ring::data_offset(i) as u64;
        sys::duplicate_shared(from, len, data).ok()?;
        sys::duplicate_shared(from, len, data + len).ok()?;
        let head = c.head.load(Relaxed);
        Some(Emitter {
            ctl: Some(c),
            data: data as *mut u8,
            enc: Encoder::default(),
            head,
            looked: head,
        })
    }

    /// An emitter for the calling thread.
    pub fn thread() -> Option<Emitter> {
        Emitter::claim(1..RINGS)
    }

    /// The ring's control page, for its counters.
    pub fn ctl(&self) -> Option<&'static Ctl> {
        self.ctl
    }

    /// Appends an event. Waits while the ring is full; ends the process when the collector is gone.
    pub fn emit(&mut self, pos: u64, ev: &Event) {
        let Some(ctl) = self.ctl else { return };
        if self.head - ctl.tail.load(Acquire) > (RING_BYTES - MAX_EVENT) as u64 {
            self.wait(ctl);
        }
        let at = self.head as usize % RING_BYTES;
        // SAFETY: MAX_EVENT bytes from here are free (checked above) and contiguous, since the
        // data is mapped twice in a row; the collector does not read behind `head`.
        let out = unsafe { core::slice::from_raw_parts_mut(self.data.add(at), MAX_EVENT) };
        self.head += self.enc.encode(pos, ev, out) as u64;
        ctl.head.store(self.head, Release);
        if self.head - self.looked >= RING_BYTES as u64 / 8 {
            self.looked = self.head;
            if self.head - ctl.tail.load(Relaxed) >= RING_BYTES as u64 / 4 {
                wake(false);
            }
        }
    }

    /// Gives the mapping of the ring's data back; nothing can be emitted any more.
    pub fn release(&mut self) {
        self.ctl = None;
        if !self.data.is_null() {
            let _ = sys::munmap(self.data as u64, 2 * RING_BYTES as u64);
            self.data = null_mut();
        }
    }

    /// Says that nothing follows in this stream.
    pub fn end(&mut self) {
        if let Some(ctl) = self.ctl {
            ctl.state.store(state::ENDED, Release);
            wake(true);
        }
    }

    #[cold]
    fn wait(&mut self, ctl: &Ctl) {
        let mut alive = Watch::new();
        loop {
            let seen = ctl.space.load(Acquire);
            ctl.waiting.store(1, SeqCst);
            if self.head - ctl.tail.load(SeqCst) <= (RING_BYTES - MAX_EVENT) as u64 {
                break;
            }
            wake(true);
            sys::futex_wait(&ctl.space, seen, 100);
            alive.check();
        }
        ctl.waiting.store(0, Relaxed);
    }
}

/// The process stream's emitter.
static PROCESS: Lock<Option<Emitter>> = Lock::new(None);

/// Appends an event to the process stream.
pub fn emit_process(ev: &Event) {
    let mut p = PROCESS.lock();
    p.get_or_insert_with(|| Emitter::claim(0..1).unwrap_or_else(Emitter::silent))
        .emit(0, ev);
}

/// Says that the process stream is complete.
pub fn end_process() {
    if let Some(e) = PROCESS.lock().as_mut() {
        e.end();
    }
}

/// Wakes the collector if it sleeps (or whatever it does).
fn wake(always: bool) {
    if let Some(h) = header()
        && (always || h.sleeping.load(Relaxed) != 0)
    {
        h.wake.fetch_add(1, AcqRel);
        sys::futex_wake(&h.wake);
    }
}

/// Notices that the collector is gone.
struct Watch {
    heartbeat: u32,
    since: u64,
}

impl Watch {
    fn new() -> Watch {
        Watch {
            heartbeat: header().map_or(0, |h| h.heartbeat.load(Relaxed)),
            since: sys::seconds(),
        }
    }

    fn check(&mut self) {
        let Some(h) = header() else { return };
        let beat = h.heartbeat.load(Relaxed);
        let now = sys::seconds();
        if beat != self.heartbeat {
            (self.heartbeat, self.since) = (beat, now);
        }
        if !sys::process_exists(h.collector_pid.load(Relaxed)) || now - self.since > 10 {
            fail::die(
                STATUS,
                &line!("the collector is gone; the recording ends here"),
            );
        }
    }
}

/// Marks all streams as ended, for an end that cannot write events any more.
pub fn abandon() {
    for i in 0..RINGS {
        if let Some(c) = ctl(i) {
            let _ = c
                .state
                .compare_exchange(state::LIVE, state::ENDED, AcqRel, Relaxed);
        }
    }
    wake(true);
}

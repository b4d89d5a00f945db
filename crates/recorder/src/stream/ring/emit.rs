//! The writer of event streams.

use super::link::LINK;
use super::{SETTLE_MS, Watch, attention, ctl, find_free, header, is_recorded, pid, wake};
use crate::sys;
use core::ops::ControlFlow;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;
use hindsight_events::event::selected;
use hindsight_events::producer;
use hindsight_events::ring::{self, Ctl, LEAST_ROOM, RING_BYTES, kind, state, wish};
use hindsight_events::{Encoder, Event, MAX_EVENT, Pen};

/// The most bytes that may be in a ring when an event is begun.
fn most() -> u64 {
    let room = header().map_or(0, |h| h.room.load(Relaxed) as usize);
    (room.clamp(LEAST_ROOM, RING_BYTES) - MAX_EVENT) as u64
}

/// Bytes of these that are reserved for writers that cannot block.
const SPARE: u64 = 512;

/// Bytes of a ring between two looks at how full it is.
const PART: u64 = RING_BYTES as u64 / 8;

/// The first bytes of a stream. Their pages are made present when they are touched: many streams
/// have no more.
const FIRST: u64 = 16 << 10;

/// The longest time between two looks whether the collector has signalled a thread, in microseconds.
const MOST_NAP_US: u64 = 3200;

/// Writes one event stream.
pub struct Emitter {
    ctl: Option<&'static Ctl>,
    /// Number of the ring.
    ring: usize,
    /// Address of the ring's data.
    data: *mut u8,
    /// Where the next event goes. Translated code uses it, too.
    pen: Pen,
    /// The ring's head at the last look at whether the collector sleeps.
    looked: u64,
    /// Bytes of the ring's data whose pages are present in this process.
    ready: u64,
    /// The ring's head at the last key frame.
    framed: u64,
    /// Bytes of common cells to which it has referred since then: they come to the recording as if the ring had carried them.
    referred: u64,
    /// So much has been written since then that a circular recording needs another key frame.
    long: bool,
    /// Nanoseconds for which this emitter has waited for room.
    waited: u64,
}

// SAFETY: the pointers lead into the control file, which is never unmapped. An emitter is the only
// producer of its ring, whichever thread holds it.
unsafe impl Send for Emitter {}

impl Emitter {
    /// An emitter that drops everything.
    pub fn silent() -> Emitter {
        Emitter {
            ctl: None,
            ring: 0,
            data: null_mut(),
            pen: Pen::default(),
            looked: 0,
            ready: 0,
            framed: 0,
            referred: 0,
            long: false,
            waited: 0,
        }
    }

    /// Continues the stream in ring `i`, which the caller owns.
    pub(super) fn of(i: usize) -> Option<Emitter> {
        let c = ctl(i)?;
        Some(Emitter {
            ctl: Some(c),
            ring: i,
            data: LINK.base.load(Relaxed).wrapping_add(ring::data_offset(i)),
            pen: Pen {
                head: c.head.as_ptr() as u64,
                ..Pen::default()
            },
            looked: c.head.load(Relaxed),
            ready: 0,
            framed: c.head.load(Relaxed),
            referred: 0,
            long: false,
            waited: 0,
        })
    }

    /// Takes a free ring for the calling thread. The emitter is silent when nothing is recorded.
    /// `None` if all rings stay taken.
    pub(super) fn claim(kind: u32, tid: i32) -> Option<Emitter> {
        if !is_recorded() {
            return Some(Emitter::silent());
        }
        let i = find_free()?;
        let c = ctl(i)?;
        c.kind.store(kind, Relaxed);
        c.image.store(LINK.image.load(Relaxed), Relaxed);
        c.parent.store(LINK.parent.load(Relaxed), Relaxed);
        c.pid.store(pid(), Relaxed);
        c.tid.store(tid, Relaxed);
        for n in [&c.position, &c.mispredictions, &c.translated, &c.flushes] {
            n.store(0, Relaxed);
        }
        c.exits.iter().for_each(|n| n.store(0, Relaxed));
        let command = if kind == kind::IMAGE {
            core::mem::take(&mut *LINK.command.lock())
        } else {
            &[]
        };
        c.set_command(command);
        c.wishes.store(0, Relaxed);
        c.lost_file.store(0, Relaxed);
        c.executed
            .store(LINK.executed.load(Relaxed) as u32, Relaxed);
        c.state.store(state::LIVE, Release);
        log!(Debug, "takes ring {i} for thread {tid}, kind {kind}");
        Emitter::of(i)
    }

    /// An emitter for the calling thread. `None` if all rings stay taken.
    pub fn thread() -> Option<Emitter> {
        Emitter::thread_of(sys::gettid())
    }

    /// An emitter for the thread `tid` of this process. `None` if all rings stay taken.
    pub fn thread_of(tid: i32) -> Option<Emitter> {
        Emitter::claim(kind::THREAD, tid)
    }

    /// Number of the ring. `None` if the emitter is silent.
    pub fn ring(&self) -> Option<usize> {
        self.ctl.map(|_| self.ring)
    }

    /// The ring's control page, for its counters. `None` if the emitter is silent.
    pub fn ctl(&self) -> Option<&'static Ctl> {
        self.ctl
    }

    /// Where the next event goes. Valid while the emitter stays at its address.
    pub fn pen(&mut self) -> *mut Pen {
        &raw mut self.pen
    }

    /// What encodes the next event.
    pub fn encoder(&self) -> Encoder {
        self.pen.encoder.clone()
    }

    /// Position of the last event.
    pub fn position(&self) -> u64 {
        self.pen.encoder.pos
    }

    /// What the collector asks for: bits of [`wish`].
    pub fn wishes(&self) -> u32 {
        self.ctl.map_or(0, |c| c.wishes.load(Relaxed))
    }

    /// Whether the collector asks for a key frame.
    pub fn wants_keyframe(&self) -> bool {
        self.wishes() & wish::KEYFRAME != 0
    }

    /// Says that what the collector asked for is done.
    pub fn grant(&self, wish: u32) {
        if let Some(c) = self.ctl {
            c.wishes.fetch_and(!wish, Release);
        }
    }

    /// Undertakes to set the mark that is asked for. False if the collector has taken it back.
    pub fn take_mark(&self) -> bool {
        self.ctl
            .is_some_and(|c| c.wishes.fetch_and(!wish::MARK, AcqRel) & wish::MARK != 0)
    }

    /// Waits while the collector is about to signal this thread, until it has done so. To be called behind the event of a
    /// system call of the program and before that call: the collector signals no thread of which it has seen that event.
    pub fn give_way(&self) {
        if self.wishes() & wish::WAIT != 0 {
            self.await_signal();
        }
    }

    #[cold]
    fn await_signal(&self) {
        let mut alive = Watch::new();
        let mut nap = 100;
        while self.wishes() & wish::WAIT != 0 {
            sys::sleep_us(nap);
            alive.check();
            // If thousands wait, their looks must not keep the collector from its own.
            nap = (nap * 2).min(MOST_NAP_US);
        }
        // If the signal has been sent, it waits by now, and comes at the end of this call.
        sys::sched_yield();
    }

    /// For how many nanoseconds it has waited for room.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Bytes after which the stream of a circular recording needs another key frame. The maximum if it needs none.
    pub fn interval(&self) -> u64 {
        match header().map_or(0, |h| h.interval.load(Relaxed)) {
            0 => u64::MAX,
            n => n,
        }
    }

    /// Whether that many bytes have been written since the last key frame.
    pub fn is_long(&self) -> bool {
        self.long
    }

    /// Notes that a key frame was written, or cannot be now.
    pub fn framed(&mut self) {
        let head = self.ctl.map_or(0, |c| c.head.load(Relaxed));
        (self.framed, self.referred, self.long) = (head, 0, false);
    }

    /// Whether the collector could not get the content of a file of which it was told.
    pub fn lost_file(&self) -> bool {
        self.ctl.is_some_and(|c| c.lost_file.load(Acquire) != 0)
    }

    /// Says that much comes at once from here on, or that this is over.
    pub fn burst(&mut self, on: bool) {
        if let Some(ctl) = self.ctl {
            ctl.burst.store(on as u32, Relaxed);
        }
    }

    /// Appends an event. Waits while the ring is full. Ends the process if the collector is gone.
    pub fn emit(&mut self, pos: u64, ev: &Event) {
        let Some(ctl) = self.ctl else { return };
        invariant!(
            pos >= self.pen.encoder.pos,
            "the events of a stream stand in the order of their positions",
            "{} comes behind {}: {ev:?}",
            pos,
            self.pen.encoder.pos
        );
        if self.pen.at >= self.pen.limit && !self.turn(ctl) {
            return self.wrap(ctl, pos, ev);
        }
        // SAFETY: `turn` set the limit so that `MAX_EVENT` bytes from any address below it are
        // free, and lie in the ring's data. The collector does not read behind `head`.
        let out = unsafe { core::slice::from_raw_parts_mut(self.pen.at as *mut u8, MAX_EVENT) };
        let n = self.pen.encoder.encode(pos, ev, out) as u64;
        self.pen.at += n;
        producer::publish(ctl, n);
    }

    /// Waits until the collector has done what the events so far ask for, [`SETTLE_MS`] at most.
    pub fn settle(&mut self) {
        let Some(ctl) = self.ctl else { return };
        let done = || ctl.taken.load(Acquire) == ctl.head.load(Relaxed);
        attention(self.ring);
        wake(true);
        // Usually it is done at once.
        for _ in 0..10 {
            if done() {
                return;
            }
            sys::sleep_us(50);
        }
        let mut alive = Watch::new();
        for _ in 0..SETTLE_MS {
            if done() {
                return;
            }
            attention(self.ring);
            wake(true);
            alive.check();
            sys::sleep_ms(1);
        }
    }

    /// Waits as long as this holds, for something that the collector does. Ends the process if the collector is gone.
    pub fn wait_while(&self, holds: impl Fn() -> bool) {
        let mut alive = Watch::new();
        while holds() {
            super::attend(self.ring);
            alive.check();
            sys::sleep_ms(1);
        }
    }

    /// Waits until there is room for a few short events, so they will not have to wait.
    pub fn reserve(&mut self) {
        let Some(ctl) = self.ctl else { return };
        let most = most() - SPARE;
        if producer::used(ctl) > most {
            self.wait(ctl, most);
        }
    }

    /// Whether a circular recording needs another key frame, with the ring's head here.
    fn is_due(&self, head: u64) -> bool {
        head - self.framed + self.referred >= self.interval()
    }

    /// Appends [`Event::Common`], which says that these lines changed to what the common cells hold.
    pub fn refer(&mut self, pos: u64, line: u64, masks: &[u8]) {
        self.emit(pos, &Event::Common { line, masks });
        self.referred += selected(masks) as u64;
        let head = self.ctl.map_or(0, |c| c.head.load(Relaxed));
        self.long |= self.is_due(head);
    }

    /// Finds room for an eighth of the ring, or less before the end of its data. Waits while there
    /// is none. False if the next event may reach the end of the data.
    #[cold]
    fn turn(&mut self, ctl: &Ctl) -> bool {
        let most = most();
        let head = ctl.head.load(Relaxed);
        if producer::used(ctl) > most {
            self.wait(ctl, most);
        }
        let used = producer::used(ctl);
        if head - self.looked >= PART {
            self.looked = head;
            if used >= RING_BYTES as u64 / 4 {
                attention(self.ring);
                wake(false);
            }
        }
        let at = head % RING_BYTES as u64;
        let room = ((RING_BYTES - MAX_EVENT) as u64 + 1).saturating_sub(at);
        self.pen.at = self.data as u64 + at;
        let free = (most - SPARE + 1).saturating_sub(used);
        let part = self.make_ready(at).min(self.interval());
        self.long = self.is_due(head);
        self.pen.limit = self.pen.at + room.min(free).min(part);
        room > 0
    }

    /// Makes the pages of one part of the ring present at once, instead of by a fault for each. The
    /// part begins at `at`. Returns its length in bytes.
    fn make_ready(&mut self, at: u64) -> u64 {
        if self.ready == 0 && at < FIRST {
            self.ready = FIRST;
            return FIRST - at;
        }
        let end = (at + PART).min(RING_BYTES as u64);
        let start = self.ready.max(at & !(sys::PAGE - 1));
        if start < end {
            sys::madvise_populate(self.data as u64 + start, end - start);
            self.ready = end;
        }
        PART
    }

    /// Appends an event near the end of the ring's data. The rest of it may stand at the beginning.
    #[cold]
    #[inline(never)]
    fn wrap(&mut self, ctl: &Ctl, pos: u64, ev: &Event) {
        let mut whole = [0; MAX_EVENT];
        let n = self.pen.encoder.encode(pos, ev, &mut whole);
        // SAFETY: `turn` has found room for MAX_EVENT bytes in this emitter's ring.
        unsafe { producer::put(ctl, self.data, &whole[..n]) };
    }

    /// Gives the ring up. Nothing is emitted after that.
    pub fn release(&mut self) {
        self.ctl = None;
        self.pen = Pen::default();
    }

    /// Continues behind the last whole event, if one was begun that nobody completes.
    pub(super) fn resume(&mut self) {
        (self.pen.at, self.pen.limit) = (0, 0);
    }

    /// Says that nothing follows in this stream.
    pub fn end(&mut self) {
        if let Some(ctl) = self.ctl {
            log!(Debug, "ends the stream of ring {}", self.ring);
            ctl.state.store(state::ENDED, Release);
            attention(self.ring);
            wake(true);
        }
    }

    #[cold]
    fn wait(&mut self, ctl: &Ctl, most: u64) {
        log!(Debug, "ring {} is full: waits for the collector", self.ring);
        let (mut alive, began) = (Watch::new(), sys::nanos());
        producer::wait(ctl, most, |space, seen| {
            attention(self.ring);
            wake(true);
            sys::futex_wait(space, seen, 100);
            alive.check();
            ControlFlow::Continue(())
        });
        self.waited += sys::nanos().saturating_sub(began);
    }
}

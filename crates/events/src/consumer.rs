//! The collector's side of a ring.
//!
//! The recorded program can write anything to this memory at any time. So no other part of the collector
//! reads a ring. This module has three rules:
//!
//! - It reads each word once and checks it.
//! - It keeps the collector's own state where the program cannot reach it.
//! - It copies bytes before anybody looks at them.

use crate::copied::stage;
use crate::ring::{
    COMMAND, Ctl, Header, PAGE, RING_BYTES, ctl_offset, data_offset, kind, state, wish,
};
use crate::shared::{AtomicU32, Byte, Ordering::*, copy_out, fence};
use alloc::vec::Vec;

/// The state of a ring (see [`state`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    Free,
    Claimed,
    Live,
    Ended,
    /// A value that no recorder writes.
    Nonsense,
}

impl Life {
    fn of(word: u32) -> Life {
        match word {
            state::FREE => Life::Free,
            state::CLAIMED => Life::Claimed,
            state::LIVE => Life::Live,
            state::ENDED => Life::Ended,
            _ => Life::Nonsense,
        }
    }

    /// Whether a stream began.
    pub fn has_begun(self) -> bool {
        matches!(self, Life::Live | Life::Ended)
    }
}

/// The producer, as the ring describes it when its stream begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    /// It carries the mappings and code of an image. Otherwise it carries the events of a thread.
    pub is_image: bool,
    pub image: u32,
    /// The image from which this one came, which is older; 0 if there is none.
    pub parent: u32,
    pub pid: i32,
    pub tid: i32,
    pub executed: bool,
    /// Of an image: its argument vector. Each argument ends with a zero byte.
    pub command: Vec<u8>,
}

/// What is counted of a producer. These numbers are only shown; nothing depends on them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub mispredictions: u64,
    pub translated: u64,
    pub flushes: u64,
    pub exits: [u64; 16],
    /// Bytes that came through the ring.
    pub carried: u64,
}

/// A key frame that a copy of the process makes (see [`crate::copied`]), as the ring says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// One of the values in [`stage`].
    pub stage: u32,
    /// The copy's process id. 0: not yet known.
    pub pid: i32,
    /// Device and inode of the file that was handed over.
    pub file: [u64; 2],
}

/// The indices of a ring are impossible: the program overwrote them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonsense;

/// The futex on which the producer of a ring waits for room; `None` if it does not wait. To be asked behind each change of
/// [`Ctl::tail`].
fn waiter(c: &Ctl) -> Option<&AtomicU32> {
    // Either the producer sees the new tail, or this thread that it waits (see `producer::wait`).
    fence(SeqCst);
    (c.waiting.load(Relaxed) != 0).then_some(&c.space)
}

/// Consumes all bytes of a ring that nobody has a [`Consumer`] for, without reading them. No key frame of a copy comes. Returns
/// the futex on which its producer waits, if it does.
pub fn let_go(c: &Ctl) -> Option<&AtomicU32> {
    let head = c.head.load(Acquire);
    c.tail.store(head, Release);
    c.taken.store(head, Release);
    c.wishes.fetch_and(!wish::WAIT, Release);
    c.copied.drop_awaited();
    waiter(c)
}

/// The consumer's side of one ring.
pub struct Consumer {
    ctl: *const Ctl,
    data: *mut Byte,
    /// Bytes consumed. The collector trusts only this number; [`Ctl::tail`] tells it to the producer.
    tail: u64,
}

// SAFETY: all fields of Ctl are atomics, and the data is only copied.
unsafe impl Send for Consumer {}

impl Consumer {
    /// # Safety
    /// - `base` is the start of a mapping of a whole control file, which outlives the consumer.
    /// - The file has more than `i` rings.
    /// - There is one consumer for each ring.
    pub unsafe fn new(base: *mut u8, i: usize) -> Consumer {
        // SAFETY: both offsets lie within the mapping.
        unsafe {
            Consumer {
                ctl: base.add(ctl_offset(i)).cast(),
                data: base.add(data_offset(i)).cast(),
                tail: 0,
            }
        }
    }

    /// A ring of its own.
    ///
    /// # Safety
    /// Both live longer than the consumer, and this is the only one.
    #[cfg(all(test, loom))]
    pub unsafe fn of(ctl: *const Ctl, data: *mut Byte) -> Consumer {
        Consumer { ctl, data, tail: 0 }
    }

    fn ctl(&self) -> &Ctl {
        // SAFETY: the contract of `new` keeps the pointer valid, and all fields are atomics.
        unsafe { &*self.ctl }
    }

    /// The state of the ring.
    pub fn life(&self) -> Life {
        Life::of(self.ctl().state.load(Acquire))
    }

    /// The producer. A parent image must be older than its child; otherwise `parent` is 0.
    pub fn who(&self) -> Who {
        let c = self.ctl();
        let is_image = c.kind.load(Relaxed) == kind::IMAGE;
        let (image, parent) = (c.image.load(Relaxed), c.parent.load(Relaxed));
        let len = (c.command_len.load(Acquire) as usize).min(COMMAND);
        let len = if is_image { len } else { 0 };
        Who {
            is_image,
            image,
            parent: if parent < image { parent } else { 0 },
            pid: c.pid.load(Relaxed),
            tid: c.tid.load(Relaxed),
            executed: is_image && c.executed.load(Relaxed) != 0,
            command: c.command[..len].iter().map(|b| b.load(Relaxed)).collect(),
        }
    }

    fn carries(&self, what: u32, image: u32) -> bool {
        let c = self.ctl();
        self.life().has_begun()
            && (c.kind.load(Relaxed) == kind::IMAGE) == (what == kind::IMAGE)
            && c.image.load(Relaxed) == image
    }

    /// Whether the ring says that it carries the mappings and code of `image`.
    pub fn is_image(&self, image: u32) -> bool {
        self.carries(kind::IMAGE, image)
    }

    /// Whether the ring says that it carries a thread of `image`.
    pub fn is_thread(&self, image: u32) -> bool {
        self.carries(kind::THREAD, image)
    }

    /// What the producer has counted.
    pub fn counts(&self) -> Counts {
        let c = self.ctl();
        let mut exits = [0; 16];
        for (to, from) in exits.iter_mut().zip(&c.exits) {
            *to = from.load(Relaxed);
        }
        Counts {
            mispredictions: c.mispredictions.load(Relaxed),
            translated: c.translated.load(Relaxed),
            flushes: c.flushes.load(Relaxed),
            exits,
            carried: self.tail,
        }
    }

    /// Tells the producer that the collector could not get the content of a mapped file.
    pub fn lose_file(&self) {
        self.ctl().lost_file.store(1, Release);
    }

    /// Whether the producer announces a burst of data.
    pub fn bursts(&self) -> bool {
        self.ctl().burst.load(Relaxed) != 0
    }

    /// The futex on which a producer waits for room; `None` if it does not wait.
    pub fn waiter(&self) -> Option<&AtomicU32> {
        waiter(self.ctl())
    }

    /// Asks the thread for a key frame.
    pub fn want_keyframe(&self) {
        self.ctl().wishes.fetch_or(wish::KEYFRAME, Relaxed);
    }

    /// Asks the thread for a state point, if it is in the quiet regime.
    pub fn want_state(&self) {
        self.ctl().wishes.fetch_or(wish::STATE, Relaxed);
    }

    /// Asks the thread to set the mark in [`Header::asked`].
    pub fn want_mark(&self) {
        self.ctl().wishes.fetch_or(wish::MARK, Release);
    }

    /// Does not want that any more. False if the thread does it already, or was not asked.
    pub fn take_mark_back(&self) -> bool {
        self.ctl().wishes.fetch_and(!wish::MARK, AcqRel) & wish::MARK != 0
    }

    /// Asks the thread for an event where it stands.
    pub fn want_position(&self) {
        self.ctl().wishes.fetch_or(wish::POSITION, Release);
    }

    /// Whether the thread has not yet done so.
    pub fn wants_position(&self) -> bool {
        self.ctl().wishes.load(Acquire) & wish::POSITION != 0
    }

    /// Asks the thread to begin no system call of the program until [`Consumer::let_call`].
    pub fn hold_calls(&self) {
        self.ctl().wishes.fetch_or(wish::WAIT, SeqCst);
    }

    /// Lets the thread begin system calls again.
    pub fn let_call(&self) {
        self.ctl().wishes.fetch_and(!wish::WAIT, Release);
    }

    /// Position of the thread when it last left translated code, as it says.
    pub fn position(&self) -> u64 {
        self.ctl().position.load(Relaxed)
    }

    /// Does not want that any more.
    pub fn forget_position(&self) {
        self.ctl().wishes.fetch_and(!wish::POSITION, Relaxed);
    }

    /// Consumes all unread bytes and returns their number. Copies them to the end of `to`, if there is a
    /// `to`. Hands `release` the pages of the ring that neither side uses at the moment.
    pub fn pull(
        &mut self,
        to: Option<&mut Vec<u8>>,
        mut release: impl FnMut(*mut Byte, usize),
    ) -> Result<usize, Nonsense> {
        let (tail, ctl) = (self.tail, self.ctl());
        let head = ctl.head.load(Acquire);
        let n = head.wrapping_sub(tail) as usize;
        if n > RING_BYTES || ctl.tail.load(Relaxed) != tail {
            self.skip();
            return Err(Nonsense);
        }
        let start = tail as usize % RING_BYTES;
        let first = n.min(RING_BYTES - start);
        if let Some(to) = to {
            self.copy(start, first, to);
            self.copy(0, n - first, to);
        }
        for (from, to) in [(start, start + first), (0, n - first)] {
            // The producer may be writing behind the head. In a nearly full ring it may also write just
            // before the tail.
            let from = if n <= RING_BYTES / 2 {
                from / PAGE * PAGE
            } else {
                from.next_multiple_of(PAGE)
            };
            let to = to / PAGE * PAGE;
            if from < to {
                release(self.data.wrapping_add(from), to - from);
            }
        }
        self.tail = head;
        self.ctl().tail.store(head, Release);
        Ok(n)
    }

    /// Copies `len` bytes from offset `from` of the ring's data to the end of `to`.
    fn copy(&self, from: usize, len: usize, to: &mut Vec<u8>) {
        assert!(from <= RING_BYTES && len <= RING_BYTES - from);
        // SAFETY: the source lies in the ring's data, which is mapped.
        unsafe { copy_out(self.data.add(from).cast_const(), len, to) };
    }

    /// Marks all bytes as read without reading them.
    pub fn skip(&mut self) {
        self.tail = self.ctl().head.load(Acquire);
        self.ctl().tail.store(self.tail, Release);
    }

    /// How many of the last bytes that were consumed come behind a key frame that a copy makes. `None`: it belongs nowhere
    /// in them.
    pub fn behind_copy(&self, consumed: usize) -> Option<usize> {
        let c = &self.ctl().copied;
        let awaited = matches!(c.stage(), stage::AWAITED | stage::HANDED | stage::FAILED);
        let behind = self.tail.wrapping_sub(c.at.load(Relaxed));
        (awaited && behind <= consumed as u64).then_some(behind as usize)
    }

    /// The key frame that a copy makes.
    pub fn copied(&self) -> Copy {
        let c = &self.ctl().copied;
        Copy {
            stage: c.stage(),
            pid: c.pid.load(Relaxed),
            file: [0, 1].map(|i| c.file[i].load(Relaxed)),
        }
    }

    /// Tells the thread that the key frame is in its stream, or that none comes there.
    pub fn answer_copy(&self, placed: bool) {
        let answer = if placed {
            stage::PLACED
        } else {
            stage::DROPPED
        };
        self.ctl().copied.stage.store(answer, Release);
    }

    /// Tells the producer that the collector did what the pulled events asked for.
    pub fn settle(&self) {
        self.ctl().taken.store(self.tail, Release);
    }

    /// The ring's data. The collector gives its memory back while no producer holds the ring.
    pub fn data(&self) -> *mut Byte {
        self.data
    }

    /// Makes ring `i` free for the next producer.
    pub fn free(&mut self, i: usize, header: &Header) {
        let c = self.ctl();
        for n in [&c.position, &c.mispredictions, &c.translated, &c.flushes] {
            n.store(0, Relaxed);
        }
        c.exits.iter().for_each(|e| e.store(0, Relaxed));
        for n in [&c.pid, &c.tid, &c.copied.pid] {
            n.store(0, Relaxed);
        }
        for n in [&c.copied.at, &c.copied.file[0], &c.copied.file[1]] {
            n.store(0, Relaxed);
        }
        for n in [
            &c.kind,
            &c.image,
            &c.parent,
            &c.waiting,
            &c.wishes,
            &c.executed,
            &c.burst,
            &c.lost_file,
            &c.command_len,
            &c.copied.stage,
        ] {
            n.store(0, Relaxed);
        }
        // The next producer starts at offset 0, where memory is already allocated.
        for n in [&c.head, &c.tail, &c.taken] {
            n.store(0, Relaxed);
        }
        header.free(i, c);
        self.tail = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use crate::ring::file_len;

    /// The memory of a control file with one ring.
    fn memory() -> Vec<u64> {
        std::vec![0; file_len(1) / 8]
    }

    #[test]
    fn whatever_stands_in_a_ring_is_copied_or_refused() {
        let mut m = memory();
        // SAFETY: `m` is long enough and aligned, and this is the only consumer.
        let mut c = unsafe { Consumer::new(m.as_mut_ptr().cast(), 0) };
        let mut seed = 7u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            seed >> 20
        };
        let (mut good, mut bad) = (0, 0);
        // Miri takes a thousand times as long.
        let rounds = if cfg!(miri) { 200 } else { 20_000 };
        for round in 0..rounds {
            let ctl = c.ctl();
            let head = match random() % 4 {
                0 => u64::MAX - random() % 4,
                1 => random() << (random() % 40),
                _ => c.tail.wrapping_add(random() % 3000),
            };
            ctl.head.store(head, Relaxed);
            if random() % 8 == 0 {
                ctl.tail.store(random(), Relaxed);
            }
            for w in [&ctl.state, &ctl.kind, &ctl.image, &ctl.command_len] {
                w.store(random() as u32, Relaxed);
            }
            let (tail, was) = (c.tail, c.ctl().tail.load(Relaxed));
            let mut out = Vec::new();
            match c.pull(Some(&mut out), |_, len| assert_eq!(len % PAGE, 0)) {
                Ok(n) => {
                    good += 1;
                    assert!(n == out.len() && n <= RING_BYTES && tail == was);
                }
                Err(Nonsense) => {
                    bad += 1;
                    assert!(out.is_empty());
                }
            }
            assert_eq!(c.tail, head, "round {round}: the producer may go on");
            assert_eq!(c.ctl().tail.load(Relaxed), head);
            let who = c.who();
            assert!(who.command.len() <= COMMAND && (who.parent < who.image || who.parent == 0));
        }
        assert!(good > rounds / 20 && bad > rounds / 20, "{good}, {bad}");
    }
}

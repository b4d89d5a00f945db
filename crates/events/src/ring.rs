//! The memory that a recorded process and its collector share.
//!
//! It is one sparse memory file with these parts:
//!
//! 1. a [`Header`],
//! 2. [`STRIPES`] lock words for atomic operations,
//! 3. a control page for each of [`RINGS`] rings,
//! 4. the recorder's executable image,
//! 5. the data of [`Header::rings`] rings, [`RING_BYTES`] each (a power of two),
//! 6. the [shared cache](crate::shared_cache) of translated code that program images share, unless a limit forbids it,
//! 7. the [common cells](commons) of each program image, unless a limit forbids them.
//!
//! Only pages that are used take memory. A ring carries whole events back to back. Its `head` and `tail`
//! count bytes since a producer took the ring and never wrap.

use crate::asked::Asked;
use crate::copied::Copied;
use crate::shared::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use crate::unborn::Names;

/// "HSCTL" and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HSCTL\0\0\x0e");

/// Most rings in one control file. Each carries the events of one thread, or of one program image as a whole
/// (see [`kind`]).
pub const RINGS: usize = if cfg!(all(test, loom)) { 64 } else { 16384 };

/// Bytes of data of one ring.
pub const RING_BYTES: usize = if cfg!(all(test, loom)) { 8 } else { 1 << 20 };

/// Smallest value of [`Header::room`].
pub const LEAST_ROOM: usize = RING_BYTES / 16;

/// Page size of the layout.
pub const PAGE: usize = 4096;

/// Bytes before the lock words.
const HEADER_BYTES: usize = 2 * PAGE;

/// Number of lock words for atomic operations: one for each [`GRANULE`] of a page. The offset in a page is
/// the same wherever the page is mapped, so all processes find the same lock.
pub const STRIPES: usize = PAGE / GRANULE;

/// Bytes that share a lock word. No aligned operation accesses more than one granule.
pub const GRANULE: usize = 16;

/// Offset of the first [`Stripe`].
pub const STRIPES_OFFSET: usize = HEADER_BYTES;

/// Bytes before the first control page.
const CTLS: usize = STRIPES_OFFSET + STRIPES * size_of::<Stripe>();

/// Offset of the recorder's executable image, as it was before it ran. Programs that are executed start from
/// it.
pub const IMAGE: usize = CTLS + RINGS * PAGE;

/// Room for that image, in bytes.
pub const IMAGE_BYTES: usize = 8 << 20;

/// Bytes before the data of the first ring.
const DATA: usize = IMAGE + IMAGE_BYTES;

/// Size in bytes of a control file with `rings` rings and without a shared cache. That begins at this offset.
pub const fn file_len(rings: usize) -> usize {
    DATA + rings * RING_BYTES
}

/// Bytes of the longest layout: with all rings and a shared cache. What comes behind that is not mapped as a whole.
/// More than fits the address space of a machine with 32 bits, where nothing is recorded.
pub const LAYOUT: u64 =
    DATA as u64 + RINGS as u64 * RING_BYTES as u64 + crate::shared_cache::LEN as u64;

/// Cells that the threads of an image have in common, behind everything else. A control file has all of these parts or none.
pub mod commons {
    use super::LAYOUT;

    /// Bytes of each part: those of a thread's window.
    pub const BYTES: u64 = 1 << 32;

    /// Bytes of a block of cells. A block is there as a whole, or not yet.
    pub const BLOCK: u64 = 64 << 10;

    /// Images that have a part.
    const IMAGES: u32 = 4096;

    const BEGIN: u64 = LAYOUT.next_multiple_of(BYTES);

    /// Size in bytes of a control file that has these parts.
    pub const END: u64 = BEGIN + IMAGES as u64 * BYTES;

    /// Where in the file the part of image `image` begins. `None`: it has none.
    pub const fn offset(image: u32) -> Option<u64> {
        match image {
            1..=IMAGES => Some(BEGIN + (image - 1) as u64 * BYTES),
            _ => None,
        }
    }
}

/// How many rings fit a control file of `len` bytes, at most [`RINGS`].
pub const fn rings_in(len: u64) -> usize {
    let n = len.saturating_sub(DATA as u64) / RING_BYTES as u64;
    if n < RINGS as u64 { n as usize } else { RINGS }
}

/// Offset of the control page of ring `i`.
pub const fn ctl_offset(i: usize) -> usize {
    CTLS + i * PAGE
}

/// Offset of the data of ring `i`.
pub const fn data_offset(i: usize) -> usize {
    DATA + i * RING_BYTES
}

/// Number of the stripe of guest address `a`.
pub const fn stripe_of(a: u64) -> usize {
    a as usize / GRANULE % STRIPES
}

/// A lock for the atomic operations on some bytes. It has a cache line of its own.
#[repr(C, align(64))]
pub struct Stripe {
    /// Number of the ring of the thread that holds the lock, plus one; 0 if the lock is free.
    pub owner: AtomicU32,
}

/// A set of rings, one bit each.
pub type RingSet = [AtomicU64; RINGS / 64];

/// The first pages of the control file.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct Header {
    /// [`MAGIC`]; set by the collector.
    pub magic: AtomicU64,
    /// The process that reads the rings.
    pub collector_pid: AtomicI32,
    /// The recorded process; set by the recorder when it begins.
    pub guest_pid: AtomicI32,
    /// The collector increments it a few times a second while it lives.
    pub heartbeat: AtomicU32,
    /// Futex: a recorder increments it and wakes the collector to get its attention.
    pub wake: AtomicU32,
    /// Nonzero while the collector sleeps on `wake`.
    pub sleeping: AtomicU32,
    /// An errno, set by the collector when it can no longer write the trace. The recorder continues, and the
    /// collector keeps draining the rings.
    pub failed: AtomicU32,
    /// The collector's descriptor of the control file, for images that begin with `execve`.
    pub collector_fd: AtomicI32,
    /// Number for the next program image; the collector sets it to 1.
    pub next_image: AtomicU32,
    /// A recorder that has waited long for a [`Stripe`] increments it: the owner may be gone.
    pub stuck: AtomicU32,
    /// A recorder increments it before a call that may write to another process's memory.
    pub meddling: AtomicU32,
    /// Number of namespaces of process ids, besides the collector's, in which processes were recorded.
    pub namespaces: AtomicU32,
    /// [`ending`] signals that the recorder in the process [`Header::guest_pid`] has received and the program has not.
    pub untaken: AtomicU32,
    /// With `--fill-fresh`: number of programs that have begun.
    pub filled: AtomicU32,
    /// With `--fill-fresh`: number of those in which a function was found by which they get memory.
    pub allocating: AtomicU32,
    _pad: [u32; 10],
    /// The next order number; the collector sets it to 1.
    pub sequence: AtomicU64,
    /// A bit for each rule (see [`crate::select`]) that matched a module or a function.
    pub matched: AtomicU64,
    /// A bit for each rule that took effect: its function was entered, or its module's code was executed.
    pub reached: AtomicU64,
    /// Rings in this file; set by the collector.
    pub rings: AtomicU32,
    /// Bytes that each ring may hold at present, from [`LEAST_ROOM`] to [`RING_BYTES`]. The collector sets
    /// it, and lowers it when many rings would take much memory.
    pub room: AtomicU32,
    /// Bytes at [`IMAGE`].
    pub image_len: AtomicU32,
    /// Number of processes that are about to be made and have no ring yet: see [`crate::unborn`].
    pub unborn: AtomicU32,
    /// The process that the collector is to leave. Whoever asks stores its id in place of 0. The collector
    /// answers with [`DETACHED`] or [`NOT_DETACHED`].
    pub detach: AtomicI32,
    /// The same for a process that a recorded process is about to trace.
    pub traced: AtomicI32,
    /// One of the values in [`unprivileged`].
    pub unprivileged: AtomicU32,
    /// With `--chaos`: when the recording began, in microseconds of a monotonic clock.
    pub chaos_since: AtomicU64,
    /// With `--chaos`: how long threads of all processes have slept since then, in microseconds.
    pub chaos_slept: AtomicU64,
    /// Bytes of a ring after which its thread needs another key frame, so that a circular recording keeps something. 0: no
    /// number is too large. The collector sets it.
    pub interval: AtomicU64,
    /// Rings that are taken. The collector looks only at these. For producers it is a hint: the ring's
    /// [`Ctl::state`] decides.
    pub live: RingSet,
    /// Rings that want the collector's attention now.
    pub dirty: RingSet,
    /// The processes of [`Header::unborn`] whose ids are known.
    pub names: Names,
    /// How recorded processes hand over files.
    pub files: FileBox,
    /// The collector's descriptor of the file of translated code that an earlier recording has left, the file's
    /// inode and its length. Set before the program begins. Length 0: there is none.
    pub kept: [AtomicU64; 3],
    /// A mark that somebody outside asks for.
    pub asked: Asked,
    /// Bytes of [common cells](commons) in the file. Recorders add to it, and the collector subtracts what it gives back.
    pub commons: AtomicU64,
}

/// A socket of the collector, which sets it up. Recorded processes send it descriptors of files that they map
/// (`SCM_RIGHTS`). So the collector reads the very files that they have, even after those are renamed or
/// deleted.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct FileBox {
    /// The socket's name is a zero byte and these bytes. All zero: there is no socket.
    pub name: [AtomicU64; 2],
    /// Each message holds this token. A sender that does not know it is not a recorded process.
    pub token: [AtomicU64; 2],
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

impl Header {
    /// Takes a free ring for the calling producer. Its state is [`state::CLAIMED`] afterwards. `ctl` gives
    /// the control page of a ring. `None`: all rings are taken.
    pub fn claim<'c>(&self, ctl: impl Fn(usize) -> &'c Ctl) -> Option<usize> {
        let rings = self.rings.load(Relaxed) as usize;
        for (w, word) in self.live.iter().enumerate() {
            let mut free = !word.load(Relaxed);
            while free != 0 {
                let i = w * 64 + free.trailing_zeros() as usize;
                if i >= rings {
                    return None;
                }
                if self.claim_one(i, ctl(i)) {
                    return Some(i);
                }
                free &= free - 1;
            }
        }
        None
    }

    /// Takes ring `i` if it is free, and says whether it did.
    pub fn claim_one(&self, i: usize, ctl: &Ctl) -> bool {
        let taken = ctl
            .state
            .compare_exchange(state::FREE, state::CLAIMED, AcqRel, Relaxed)
            .is_ok();
        if taken {
            self.live[i / 64].fetch_or(1 << (i % 64), AcqRel);
        }
        taken
    }

    /// For the collector: makes ring `i` free for the next producer.
    pub fn free(&self, i: usize, ctl: &Ctl) {
        // The bit goes first. A producer that takes the ring after the second store sets it again.
        self.live[i / 64].fetch_and(!(1 << (i % 64)), AcqRel);
        ctl.state.store(state::FREE, Release);
    }

    /// Asks for the collector's attention to ring `i`.
    pub fn request_attention(&self, i: usize) {
        self.dirty[i / 64].fetch_or(1 << (i % 64), AcqRel);
    }
}

/// The name of process `pid` of namespace `namespace`. Namespace 0 is the collector's. The others are counted
/// from 1 as in [`Header::namespaces`]. The same id may occur in two namespaces, so names of other namespaces
/// are negative and set apart.
pub fn name_in(namespace: u32, pid: i32) -> i32 {
    match namespace {
        0 => pid,
        n => -(((n - 1) % NAMESPACES) as i32 * APART + pid),
    }
}

/// Whether a process with this name is in namespace `namespace`.
pub fn is_named_in(namespace: u32, name: i32) -> bool {
    match namespace {
        0 => name > 0,
        n => name < 0 && (name / -APART) as u32 == (n - 1) % NAMESPACES,
    }
}

/// Larger than any process id. [`NAMESPACES`] times this fits 32 bits.
const APART: i32 = 10_000_000;
const NAMESPACES: u32 = 200;

/// Answer in [`Header::detach`]: the process continues without the recorder.
pub const DETACHED: i32 = -1;

/// Answer in [`Header::detach`]: the recorder could not leave the process.
pub const NOT_DETACHED: i32 = -2;

/// The bit in [`Header::untaken`] of a signal that asks for an end; `None` for others.
pub fn ending(signo: i32) -> Option<u32> {
    const SIGHUP: i32 = 1;
    const SIGINT: i32 = 2;
    const SIGTERM: i32 = 15;
    matches!(signo, SIGHUP | SIGINT | SIGTERM).then(|| 1 << signo)
}

/// Whether a process is about to give up rights that the user has, or did so.
pub mod unprivileged {
    /// The process said so.
    pub const SAID: u32 = 1;
    /// The collector has taken note.
    pub const NOTED: u32 = 2;
}

/// What the collector asks of a thread, with one bit each.
pub mod wish {
    /// A key frame, as soon as possible.
    pub const KEYFRAME: u32 = 1;
    /// An event at its position, as soon as possible. A thread that only computes has no events otherwise.
    pub const POSITION: u32 = 2;
    /// To begin no system call of the program meanwhile: the collector is about to signal the thread, and the signal
    /// must not come in a call, which it might end. The collector clears this one itself.
    pub const WAIT: u32 = 4;
    /// To restate its memory as soon as possible. Only a thread of the quiet regime does that.
    pub const STATE: u32 = 8;
    /// To set the mark in [`super::Header::asked`]. Whoever clears this one sets the mark: the thread, or the collector for it.
    pub const MARK: u32 = 16;
}

/// States of a ring.
pub mod state {
    pub const FREE: u32 = 0;
    /// A producer took it and is still filling in the rest of the control page.
    pub const CLAIMED: u32 = 3;
    pub const LIVE: u32 = 1;
    /// The producer wrote its last event.
    pub const ENDED: u32 = 2;
}

/// What a ring carries.
pub mod kind {
    /// The events of one thread.
    pub const THREAD: u32 = 0;
    /// Mappings and code of one program image: what `execve` or `fork` made.
    pub const IMAGE: u32 = 1;
}

/// Control page of one ring.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct Ctl {
    /// Bytes produced.
    pub head: AtomicU64,
    _pad0: [u64; 7],
    /// Bytes consumed.
    pub tail: AtomicU64,
    /// Futex: the collector increments it after it consumed bytes while `waiting` was set.
    pub space: AtomicU32,
    /// The producer sets it while it waits for room.
    pub waiting: AtomicU32,
    _pad1: [u64; 6],
    /// One of the values in [`state`].
    pub state: AtomicU32,
    /// One of the values in [`kind`].
    pub kind: AtomicU32,
    /// Number of the program image that the events belong to; the first is 1.
    pub image: AtomicU32,
    /// The image from which this one came by `fork` or `execve`; 0 for the first.
    pub parent: AtomicU32,
    /// Process id of the producer. It is negative if the collector is in another namespace of ids and has no
    /// name for the process (see [`name_in`]).
    pub pid: AtomicI32,
    /// Thread id of the producer.
    pub tid: AtomicI32,
    /// Position of the thread when it last left translated code.
    pub position: AtomicU64,
    /// Number of mispredictions.
    pub mispredictions: AtomicU64,
    /// Guest instructions translated.
    pub translated: AtomicU64,
    /// How often the translation cache was emptied.
    pub flushes: AtomicU64,
    /// Bits of [`wish`]. The collector sets them, and the thread clears each but [`wish::WAIT`] when it has done what was
    /// asked, and [`wish::MARK`] before that.
    pub wishes: AtomicU32,
    /// Nonzero: the image came by `execve`. Zero: by `fork`.
    pub executed: AtomicU32,
    /// Bytes that were consumed and whose requests the collector has carried out.
    pub taken: AtomicU64,
    /// How often translated code was left, by cause. For profiling; the recorder defines the causes.
    pub exits: [AtomicU64; 16],
    /// Of an image that came by `execve`: length of [`Ctl::command`] in bytes.
    pub command_len: AtomicU32,
    /// Nonzero: the producer announces a burst. The collector then first takes the bytes out and works on
    /// them later. So the producer does not wait for that work.
    pub burst: AtomicU32,
    /// The collector sets it when it could not get the content of a mapped file.
    pub lost_file: AtomicU32,
    /// A key frame that a copy of the process makes.
    pub copied: Copied,
    /// The argument vector. Each argument ends with a zero byte. Cut to fit.
    pub command: [AtomicU8; COMMAND],
}

/// Longest argument vector in a control page, in bytes.
pub const COMMAND: usize = if cfg!(all(test, loom)) { 2 } else { 2048 };

impl Ctl {
    /// Sets the argument vector.
    pub fn set_command(&self, command: &[u8]) {
        let n = command.len().min(COMMAND);
        for (to, from) in self.command.iter().zip(&command[..n]) {
            to.store(*from, Relaxed);
        }
        self.command_len.store(n as u32, Release);
    }
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Ctl>() <= PAGE);

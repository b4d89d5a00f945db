//! The memory that a recorded process and its collector share.
//!
//! One sparse memory file: a [`Header`], then [`STRIPES`] lock words for atomic operations, then one
//! control page for each of [`RINGS`] rings, then the recorder's executable image, then the data of as
//! many rings as [`Header::rings`] says ([`RING_BYTES`] each, a power of two), then, where no limit stands
//! against it, the [shelf](crate::shelf) of translated code that program images share. Only what is
//! touched takes memory. A ring carries whole events back to back; `head` and `tail` count bytes since the ring was
//! taken and never wrap.

use crate::unborn::Names;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

/// "HSCTL" and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HSCTL\0\0\x08");

/// Most rings in one control file. Each carries the events of one thread, or of one program image as
/// a whole (see [`kind`]).
pub const RINGS: usize = 16384;

/// Bytes of data of one ring.
pub const RING_BYTES: usize = 1 << 20;

/// Least value of [`Header::room`].
pub const LEAST_ROOM: usize = 64 << 10;

/// Page size of the layout.
pub const PAGE: usize = 4096;

/// Bytes before the lock words.
const HEADER_BYTES: usize = 2 * PAGE;

/// Lock words for atomic operations: one for each [`GRANULE`] of a page. Since the offset in a page is
/// the same wherever the page is mapped, so is the lock, in all processes.
pub const STRIPES: usize = PAGE / GRANULE;

/// Bytes that share a lock word. No aligned operation touches more than one granule.
pub const GRANULE: usize = 16;

/// Offset of the first [`Stripe`].
pub const STRIPES_OFFSET: usize = HEADER_BYTES;

/// Bytes before the first control page.
const CTLS: usize = STRIPES_OFFSET + STRIPES * size_of::<Stripe>();

/// Offset of the recorder's executable image as it was before it ran, for programs that are executed.
pub const IMAGE: usize = CTLS + RINGS * PAGE;

/// Room for that.
pub const IMAGE_BYTES: usize = 8 << 20;

/// Bytes before the data of the first ring.
const DATA: usize = IMAGE + IMAGE_BYTES;

/// Size of a control file with `rings` rings and no shelf; with one, that begins here.
pub const fn file_len(rings: usize) -> usize {
    DATA + rings * RING_BYTES
}

/// The most rings, up to [`RINGS`], that fit a control file of `len` bytes.
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

/// A lock for the atomic operations on some bytes, on a cache line of its own.
#[repr(C, align(64))]
pub struct Stripe {
    /// Number of the ring of the thread that holds it, plus one; 0: free.
    pub owner: AtomicU32,
}

/// A set of rings, one bit each.
pub type Set = [AtomicU64; RINGS / 64];

/// First pages of the control file.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`]; set by the collector.
    pub magic: AtomicU64,
    /// Process that reads the rings.
    pub collector_pid: AtomicI32,
    /// Process that is recorded; set by the recorder when it begins.
    pub guest_pid: AtomicI32,
    /// Incremented by the collector a few times a second as long as it lives.
    pub heartbeat: AtomicU32,
    /// Futex: the recorder increments it and wakes when it wants the collector's attention.
    pub wake: AtomicU32,
    /// Nonzero while the collector sleeps on `wake`.
    pub sleeping: AtomicU32,
    /// Set by the collector when it can no longer write the trace: an errno. The recorder goes
    /// on; the collector keeps draining the rings.
    pub failed: AtomicU32,
    /// Descriptor of the control file in the collector, for images that begin by `execve`.
    pub collector_fd: AtomicI32,
    /// Number for the next program image; the collector sets it to 1.
    pub next_image: AtomicU32,
    /// Incremented by a recorder that has waited long for a [`Stripe`]: its owner may be gone.
    pub stuck: AtomicU32,
    /// Incremented by a recorder before a call that may write to the memory of other processes.
    pub meddling: AtomicU32,
    /// Namespaces of process ids, other than the collector's, in which there have been recorded processes.
    pub namespaces: AtomicU32,
    _pad: [u32; 13],
    /// Number for the next sequencing event; the collector sets it to 1.
    pub sequence: AtomicU64,
    /// A bit for each rule (see [`crate::select`]) that has matched a module or a function.
    pub matched: AtomicU64,
    /// A bit for each rule whose function was entered, or whose module's code was executed.
    pub reached: AtomicU64,
    /// Rings in this file; set by the collector.
    pub rings: AtomicU32,
    /// Bytes that each ring may hold at present; set by the collector, [`LEAST_ROOM`] at least and
    /// [`RING_BYTES`] at most. Less where many rings would take much memory.
    pub room: AtomicU32,
    /// Bytes at [`IMAGE`].
    pub image_len: AtomicU32,
    /// Processes that are about to be made and have no ring yet: see [`crate::unborn`].
    pub unborn: AtomicU32,
    /// Process that the collector is asked to leave, by whoever stores its id in place of 0; the
    /// collector answers with [`DETACHED`] or [`NOT_DETACHED`].
    pub detach: AtomicI32,
    /// The same for a process that a recorded one is about to trace.
    pub traced: AtomicI32,
    /// [`confined`].
    pub confined: AtomicU32,
    /// With `--chaos`: when the recording began, in microseconds of a clock that only runs forward, and how long threads
    /// of all processes have slept since.
    pub chaos_since: AtomicU64,
    pub chaos_slept: AtomicU64,
    /// Rings that are taken: the collector looks only at these. A hint for producers; the ring's
    /// [`Ctl::state`] decides.
    pub live: Set,
    /// Rings that want the collector's attention now.
    pub dirty: Set,
    /// Those of [`Header::unborn`] of which more is known.
    pub names: Names,
    /// Where files are handed over.
    pub files: FileBox,
}

/// A socket of the collector's to which recorded processes send descriptors of files that they map
/// (`SCM_RIGHTS`), so that it reads what they have, whatever becomes of the name. Set by the collector.
#[repr(C)]
pub struct FileBox {
    /// Its name is a zero byte and these. Zeros: there is none.
    pub name: [AtomicU64; 2],
    /// What a message holds: who does not know it is not recorded.
    pub token: [AtomicU64; 2],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

impl Header {
    /// Takes a free ring for the calling producer, whose state is then [`state::CLAIMED`]. `ctl` gives
    /// the control page of a ring. `None`: all are taken.
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

    /// Takes ring `i`, if it is free.
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

    /// Collector: lets the next producer have ring `i`.
    pub fn free(&self, i: usize, ctl: &Ctl) {
        // In this order: a producer that takes the ring sets the bit again.
        self.live[i / 64].fetch_and(!(1 << (i % 64)), AcqRel);
        ctl.state.store(state::FREE, Release);
    }

    /// Says that ring `i` wants the collector's attention.
    pub fn mark(&self, i: usize) {
        self.dirty[i / 64].fetch_or(1 << (i % 64), AcqRel);
    }
}

/// What process `pid` of namespace `namespace` is called: 0 is the collector's, the others are counted from 1, as
/// [`Header::namespaces`] does. The ids in two of them may be the same.
pub fn name_in(namespace: u32, pid: i32) -> i32 {
    match namespace {
        0 => pid,
        n => -(((n - 1) % NAMESPACES) as i32 * APART + pid),
    }
}

/// Whether a process of that name is in namespace `namespace`.
pub fn is_named_in(namespace: u32, name: i32) -> bool {
    match namespace {
        0 => name > 0,
        n => name < 0 && (name / -APART) as u32 == (n - 1) % NAMESPACES,
    }
}

/// More than any process id, and short of 32 bits for as many namespaces.
const APART: i32 = 10_000_000;
const NAMESPACES: u32 = 200;

/// Answer in [`Header::detach`]: the process goes on by itself.
pub const DETACHED: i32 = -1;

/// Answer in [`Header::detach`]: the process could not be left.
pub const NOT_DETACHED: i32 = -2;

/// Whether a process is about to give up, or has given up, rights that the user has.
pub mod confined {
    /// Said by the process.
    pub const SAID: u32 = 1;
    /// The collector has taken note.
    pub const NOTED: u32 = 2;
}

/// What the collector wants of a thread; one bit each.
pub mod wish {
    /// A key frame, as soon as it can.
    pub const KEYFRAME: u32 = 1;
    /// An event where it stands, as soon as it can: one that only computes has none otherwise.
    pub const PLACE: u32 = 2;
}

/// Life of a ring.
pub mod state {
    pub const FREE: u32 = 0;
    /// Taken by a producer that still fills in the rest of the control page.
    pub const CLAIMED: u32 = 3;
    pub const LIVE: u32 = 1;
    /// The producer has written its last event.
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
pub struct Ctl {
    /// Bytes produced.
    pub head: AtomicU64,
    _pad0: [u64; 7],
    /// Bytes consumed.
    pub tail: AtomicU64,
    /// Futex: the collector increments it after consuming when `waiting` is set.
    pub space: AtomicU32,
    /// Set by the producer while it waits for space.
    pub waiting: AtomicU32,
    _pad1: [u64; 6],
    /// [`state`].
    pub state: AtomicU32,
    /// [`kind`].
    pub kind: AtomicU32,
    /// Number of the program image the events belong to; 1 is the first.
    pub image: AtomicU32,
    /// The image from which this one came by `fork` or `execve`; 0 for the first.
    pub parent: AtomicU32,
    /// Process id of the producer; negative if the collector is in another namespace of ids and
    /// has no name for the process (see [`name_in`]).
    pub pid: AtomicI32,
    /// Thread id of the producer.
    pub tid: AtomicI32,
    /// Position of the thread when it last left translated code.
    pub position: AtomicU64,
    /// Reads that differed from the prediction.
    pub surprises: AtomicU64,
    /// Guest instructions translated.
    pub translated: AtomicU64,
    /// Times the code cache was emptied.
    pub flushes: AtomicU64,
    /// [`wish`]es: set by the collector, and cleared by the thread when it has done what is wished.
    pub wishes: AtomicU32,
    /// Nonzero: the image came by `execve`, not `fork`.
    pub executed: AtomicU32,
    /// Bytes consumed, and whatever they asked for is done.
    pub taken: AtomicU64,
    /// Times translated code was left, by cause, for profiling (see the recorder).
    pub exits: [AtomicU64; 16],
    /// Of an image that came by `execve`: bytes of [`Ctl::command`].
    pub command_len: AtomicU32,
    /// Nonzero: much comes at once. The collector takes it before it does anything with it, so that the producer
    /// does not wait for that.
    pub burst: AtomicU32,
    /// Set by the collector when it could not have the content of a file that is in memory.
    pub lost_file: AtomicU32,
    /// Its argument vector, each argument with a terminating zero; cut to fit.
    pub command: [AtomicU8; COMMAND],
}

/// Longest argument vector of a control page.
pub const COMMAND: usize = 2048;

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

const _: () = assert!(size_of::<Ctl>() <= PAGE);

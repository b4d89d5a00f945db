//! Memory for translated code. It is mapped twice: the mapping that is executed cannot be written,
//! the one that is written cannot be executed.
//!
//! Both mappings have the same pages, so a child of `fork` has them, too. After that, neither
//! process may change them:
//!
//! - Whoever is about to write a piece first maps a copy of it at both addresses. Threads that run
//!   there meanwhile find the same code before and after the single system call that replaces it.
//! - Pieces in which there was nothing yet stay with the parent. The child maps fresh ones before
//!   it writes anything.
//!
//! So a child that soon executes another program costs little, and no process waits for another.
//!
//! Each copy is a mapping of its own, of which the kernel allows a limited number. When a part of
//! the cache begins anew, copies in it are given up for fresh memory. So a program that goes on
//! forking and making code has at most as many as its present code has pieces.
//!
//! All functions here are called by the owner of the cache's lock.

use crate::line;
use crate::sys::{self, arena, fail, headroom};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::errno::ENOMEM;
use linux_raw_sys::general::*;

/// Bytes of a piece: as many are copied at a time.
const PIECE: u64 = 16 << 10;

/// Bytes of the whole memory.
pub const LEN: u64 = super::SIZE * super::CHUNKS as u64;

const PIECES: usize = (LEN / PIECE) as usize;

const _: () = assert!(super::SIZE.is_multiple_of(64 * PIECE), "see `renew`");

/// A bit for each piece.
type Pieces = [AtomicU64; PIECES.div_ceil(64)];

/// The memory, and who may have it. The owner of the cache's lock changes it. The child of a `fork` has a copy.
struct CodeMemory {
    /// Pieces that hold something.
    used: Pieces,
    /// Pieces that other processes may have, too.
    shared: Pieces,
    /// Pieces that are mappings of their own.
    copied: Pieces,
    /// Address at which the memory is executed, address at which it is written, and that of a piece's room for copies.
    /// Set once, before any code is translated.
    places: [AtomicU64; 3],
}

static MEMORY: CodeMemory = CodeMemory {
    used: [const { AtomicU64::new(0) }; PIECES.div_ceil(64)],
    shared: [const { AtomicU64::new(0) }; PIECES.div_ceil(64)],
    copied: [const { AtomicU64::new(0) }; PIECES.div_ceil(64)],
    places: [const { AtomicU64::new(0) }; 3],
};

const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
const READ_EXEC: u32 = PROT_READ | PROT_EXEC;
const FRESH: u32 = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;

fn places() -> [u64; 3] {
    [0, 1, 2].map(|i| MEMORY.places[i].load(Relaxed))
}

/// Maps the memory. Returns the address at which it is executed.
pub fn map() -> sys::Result<u64> {
    let reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let run = arena::map(LEN, READ_EXEC, FRESH, -1, 0)?;
    let write = arena::map(LEN, PROT_NONE, reserved, -1, 0)?;
    let room = arena::map(PIECE, PROT_NONE, reserved, -1, 0)?;
    sys::duplicate_shared(run, LEN, write)?;
    sys::mprotect(write, LEN, READ_WRITE)?;
    for (to, place) in MEMORY.places.iter().zip([run, write, room]) {
        to.store(place, Relaxed);
    }
    Ok(run)
}

fn die(what: &str, e: i32) -> ! {
    let hint = match e as u32 {
        ENOMEM => {
            ": there is none, or the process has as many mappings as it may have (vm.max_map_count)"
        }
        _ => "",
    };
    fail::die(
        fail::STATUS,
        &line!("cannot {what} memory for translated code (error {e}){hint}"),
    )
}

/// Makes pages present that are sure to be written. `at` is their address for execution.
pub fn populate(at: u64, len: u64) {
    let [run, write, _] = places();
    sys::madvise_populate(at - run + write, len);
}

/// Where to write the `len` bytes that are executed at `at`. From here on they belong to this
/// process alone.
pub fn writable(at: u64, len: u64) -> *mut u8 {
    let [run, write, _] = places();
    if len == 0 {
        // An empty range may be behind the last piece.
        return (at - run + write) as *mut u8;
    }
    invariant!(
        at >= run && at - run <= LEN - len,
        "translated code is written into the cache only",
        "{len} bytes at {at:#x}"
    );
    let (first, last) = ((at - run) / PIECE, (at - run + len - 1) / PIECE);
    for piece in first..=last {
        let (word, bit) = (piece as usize / 64, 1 << (piece % 64));
        if MEMORY.shared[word].load(Relaxed) & bit != 0 {
            copy(piece);
            MEMORY.copied[word].fetch_or(bit, Relaxed);
            MEMORY.shared[word].fetch_and(!bit, Relaxed);
        }
        if MEMORY.used[word].load(Relaxed) & bit == 0 {
            MEMORY.used[word].fetch_or(bit, Relaxed);
        }
    }
    (at - run + write) as *mut u8
}

/// Maps a copy of a piece in its place.
fn copy(piece: u64) {
    let [run, write, room] = places();
    let (run, write) = (run + piece * PIECE, write + piece * PIECE);
    log!(
        Debug,
        "copies {PIECE} bytes of code at {run:#x}, which another process has too"
    );
    // A program can ask that memory which was not executable never becomes so. So the copy is
    // mapped executable at first.
    let done = headroom::needed(|| {
        sys::mmap(room, PIECE, READ_EXEC, FRESH | MAP_FIXED, -1, 0)?;
        sys::madvise_dontdump(room, PIECE);
        sys::duplicate_shared(room, PIECE, write)?;
        sys::mprotect(write, PIECE, READ_WRITE)?;
        sys::madvise_populate(write, PIECE);
        // SAFETY: `run` is a mapped piece that can be read, and `write` is the fresh piece, which
        // nobody else uses.
        unsafe {
            core::ptr::copy_nonoverlapping(run as *const u8, write as *mut u8, PIECE as usize);
        }
        sys::move_mapping(room, PIECE, run)
    });
    if let Err(e) = done {
        die("copy", e);
    }
}

/// Called before new code is written to `len` bytes that are executed at `at`. Nobody executes them
/// any more. Both are multiples of 64 pieces. If pieces there were copied, or would be, the memory
/// becomes fresh and one mapping again.
pub fn renew(at: u64, len: u64) {
    const ROW: u64 = 64 * PIECE;
    let at = at - places()[0];
    let rows = (at / ROW) as usize..((at + len) / ROW) as usize;
    let apart = |k: usize| MEMORY.shared[k].load(Relaxed) | MEMORY.copied[k].load(Relaxed) != 0;
    if !rows.clone().any(apart) {
        return;
    }
    log!(Debug, "maps {len} bytes of code memory anew");
    if let Err(e) = headroom::needed(|| fresh(at, len)) {
        die("map", e);
    }
    for pieces in [&MEMORY.used, &MEMORY.shared, &MEMORY.copied] {
        pieces[rows.clone()]
            .iter()
            .for_each(|row| row.store(0, Relaxed));
    }
}

/// Called before a child is made that has the same pages. What they hold does not change from here
/// on. The caller holds the cache until the child has been made.
pub fn share() {
    for (shared, used) in MEMORY.shared.iter().zip(&MEMORY.used) {
        let used = used.load(Relaxed);
        if used != 0 {
            shared.fetch_or(used, Relaxed);
        }
    }
}

/// Called in a child that has a copy of the memory. Pieces that are not used yet stay with the
/// parent.
pub fn leave() {
    let mut from = 0;
    while from < PIECES {
        let end = next(from, true);
        if from < end
            && let Err(e) =
                headroom::needed(|| fresh(from as u64 * PIECE, (end - from) as u64 * PIECE))
        {
            die("map", e);
        }
        from = next(end, false);
    }
}

/// The first piece from `from` on that is in use, or that is not. [`PIECES`] if there is none.
fn next(mut from: usize, used: bool) -> usize {
    while from < PIECES {
        let word = MEMORY.used[from / 64].load(Relaxed);
        let found = if used { word } else { !word };
        let wanted = found >> (from % 64);
        if wanted != 0 {
            return (from + wanted.trailing_zeros() as usize).min(PIECES);
        }
        from = (from / 64 + 1) * 64;
    }
    PIECES
}

/// Maps fresh memory where nothing is that is needed.
fn fresh(at: u64, len: u64) -> sys::Result<()> {
    let [run, write, _] = places();
    sys::mmap(run + at, len, READ_EXEC, FRESH | MAP_FIXED, -1, 0)?;
    sys::madvise_dontdump(run + at, len);
    sys::duplicate_shared(run + at, len, write + at)?;
    sys::mprotect(write + at, len, READ_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Tests share the memory.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Mappings of the first `len` bytes that are executed.
    fn mappings(len: u64) -> usize {
        let run = places()[0];
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = |m: &str| u64::from_str_radix(m.split('-').next().unwrap(), 16).unwrap();
        maps.lines()
            .filter(|m| (run..run + len).contains(&start(m)))
            .count()
    }

    /// A process that forks again and again does not get more mappings each time it begins a part
    /// of the cache anew, and new code goes where it is executed.
    #[test]
    #[cfg_attr(miri, ignore = "maps memory by system calls")]
    fn a_part_that_begins_anew_is_one_mapping() {
        let _alone = ALONE.lock().unwrap();
        MEMORY.used.iter().for_each(|row| row.store(0, Relaxed));
        let run = map().unwrap();
        let len = super::super::SIZE;
        for round in 1..=3u8 {
            // Two generations of forks, with code in each other piece.
            for _ in 0..2 {
                for piece in (0..200).step_by(2) {
                    // SAFETY: the memory is mapped, and belongs to this test.
                    unsafe { writable(run + piece * PIECE, 1).write(round) };
                }
                share();
            }
            assert!(mappings(len) >= 200, "{}", mappings(len));
            renew(run, len);
            assert!(mappings(len) <= 2, "{}", mappings(len));
            // SAFETY: as above.
            unsafe {
                assert_eq!((run as *const u8).read(), 0, "the memory is fresh");
                writable(run + 5, 1).write(round);
                assert_eq!(((run + 5) as *const u8).read(), round);
            }
        }
        // What nobody else has stays as it is.
        // SAFETY: as above.
        unsafe { writable(run + len, 1).write(7) };
        renew(run + len, len);
        // SAFETY: as above.
        assert_eq!(unsafe { ((run + len) as *const u8).read() }, 7);
    }

    /// Runs of used and unused pieces, across words.
    #[test]
    fn runs_of_pieces() {
        let _alone = ALONE.lock().unwrap();
        MEMORY.used.iter().for_each(|row| row.store(0, Relaxed));
        for used in [0usize, 5, 6, 62, 63, 64, 65, 127, 200, PIECES - 1] {
            MEMORY.used[used / 64].fetch_or(1 << (used % 64), Relaxed);
        }
        let (mut at, mut runs) = (0, alloc::vec::Vec::new());
        while at < PIECES {
            let end = next(at, true);
            runs.push((at, end));
            at = next(end, false);
        }
        let wanted = [
            (0, 0),
            (1, 5),
            (7, 62),
            (66, 127),
            (128, 200),
            (201, PIECES - 1),
        ];
        assert_eq!(runs, wanted);
        assert_eq!(next(PIECES, true), PIECES);
    }
}

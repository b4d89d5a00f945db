//! The producer's side of the memory that is shared with the collector.

mod emit;
mod kept;
mod link;
mod watch;

use crate::line;
use crate::stream::descriptor;
use crate::sys::fail::{self, STATUS};
use crate::sys::{self, PROT_READ, PROT_WRITE, arena, stop};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
pub use emit::Emitter;
use hindsight_events::config::children;
use hindsight_events::ring::{self, Ctl, Header, STRIPES_OFFSET, Stripe, kind, state};
use hindsight_events::shared_cache::{self, SharedCache};
use hindsight_events::unborn::Unborn;
use hindsight_events::{EndKind, Event};
use link::LINK;
use linux_raw_sys::general::MAP_SHARED;
pub use watch::Watch;

/// The process id, as the collector is told it.
fn pid() -> i32 {
    ring::name_in(namespace(), sys::getpid())
}

/// The recording's number of this namespace of process ids. 0: the collector's namespace.
pub fn namespace() -> u32 {
    LINK.namespace.load(Relaxed)
}

/// Whether the collector is in another namespace of process ids.
pub fn foreign() -> bool {
    namespace() != 0
}

/// For how many milliseconds [`hold_file`] tries.
const HOLD_MS: u32 = 100;

/// Seconds that a thread waits for a free ring when all are in use.
const PATIENCE: u64 = 20;

/// The header of the control file. `None` when nothing is recorded.
pub fn header() -> Option<&'static Header> {
    let base = LINK.base.load(Acquire);
    // SAFETY: if it is not null, it is the address of the mapped control file, which is never
    // unmapped. The header consists of atomics.
    (!base.is_null()).then(|| unsafe { &*base.cast::<Header>() })
}

/// Name and token of the collector's socket for files.
pub type FileBoxName = [[u64; 2]; 2];

/// Name and token of the collector's socket for files (see [`ring::FileBox`]), if it has one.
pub fn file_box() -> Option<FileBoxName> {
    let files = &header()?.files;
    let [name, token] = [&files.name, &files.token].map(|w| [0, 1].map(|i| w[i].load(Relaxed)));
    (name != [0, 0] && is_recorded()).then_some([name, token])
}

/// Makes the collector look at what was sent to it.
pub fn nudge() {
    wake(true);
}

/// Address of the control page of ring `i`.
fn ctl_at(i: usize) -> *const Ctl {
    LINK.base
        .load(Acquire)
        .wrapping_add(ring::ctl_offset(i))
        .cast()
}

fn ctl(i: usize) -> Option<&'static Ctl> {
    // SAFETY: the control file is mapped and has a control page for each ring, which consists of
    // atomics. Callers pass numbers of rings of this file.
    header().map(|_| unsafe { &*ctl_at(i) })
}

/// Maps the control file for the rest of the process's life, and keeps its descriptor out of the
/// program's sight. Begins a new image. It came from the image `parent`, 0 if it is the first, by
/// an `execve` of the thread whose ring is `ring`. `command` holds the program's arguments.
pub fn open(fd: i32, parent: u32, ring: i32, command: &'static [u8]) {
    *LINK.command.lock() = command;
    let (number, len) = sys::fstat(fd).map_or((0, 0), |s| (s.st_ino, s.st_size as u64));
    let mapped = len.min(ring::LAYOUT);
    let base = match arena::map(mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) {
        Ok(b) => b as *mut u8,
        Err(e) => fail::die(
            STATUS,
            &line!("cannot map the memory shared with the collector (error {e})"),
        ),
    };
    LINK.file[0].store(number, Relaxed);
    LINK.file[1].store(len, Relaxed);
    hold_file(fd);
    descriptor::hide(fd);
    LINK.base.store(base, Release);
    let Some(h) = header() else { return };
    if h.magic.load(Acquire) != ring::MAGIC {
        fail::die(
            STATUS,
            &line!("recorder and collector are of different versions"),
        );
    }
    // The first image begins before the program runs, so the header still holds what the collector
    // wrote.
    let config = crate::sys::config::get();
    let [pid, fd] = match parent {
        0 => [&h.collector_pid, &h.collector_fd].map(|n| n.load(Relaxed)),
        _ => config.collector,
    };
    LINK.collector[0].store(pid, Relaxed);
    LINK.collector[1].store(fd, Relaxed);
    LINK.namespace.store(config.namespace, Relaxed);
    kept::map(h);
    h.namespaces.fetch_max(namespace(), Relaxed);
    if parent == 0 {
        h.guest_pid.store(sys::getpid(), Release);
    } else {
        succeed(parent, ring);
    }
    if crate::sys::config::get().plain != 0 {
        LINK.silent.store(true, Relaxed);
        // What this process executes comes from the last image that was recorded.
        return LINK.image.store(parent, Relaxed);
    }
    LINK.executed.store(parent != 0, Relaxed);
    begin_image(parent);
}

/// Locks the control file. So the collector can see as long as this process, or a copy of it, has
/// the file. Now and then the collector itself locks the file for a moment, to find that out.
fn hold_file(fd: i32) {
    for _ in 0..HOLD_MS {
        if sys::lock_shared(fd) {
            return;
        }
        sys::sleep_ms(1);
    }
}

/// Ends the streams of the program that this one has replaced. That program could not do it, since
/// it goes on if `execve` fails.
fn succeed(parent: u32, last: i32) {
    let pid = pid();
    // Others in the replaced program's memory go on there, and its image stream tells of their
    // code.
    let is_shared = live().any(|(_, c)| {
        c.image.load(Relaxed) == parent
            && c.pid.load(Relaxed) != pid
            && c.state.load(Acquire) == state::LIVE
    });
    for (i, c) in live() {
        if c.image.load(Relaxed) != parent
            || is_shared && c.kind.load(Relaxed) == kind::IMAGE
            || c.pid.load(Relaxed) != pid
            || c.state.load(Acquire) != state::LIVE
        {
            continue;
        }
        if i as i32 == last
            && let Some(mut e) = Emitter::of(i)
        {
            // The last event was the system call, so the position is the same. A new encoder gives
            // the same bytes.
            e.emit(
                0,
                &Event::End {
                    kind: EndKind::Exec,
                    code: 0,
                    message: if crate::sys::config::get().plain != 0 {
                        b"its new program is not one of those to record (--children); it goes on unrecorded"
                    } else {
                        b""
                    },
                },
            );
            e.release();
        }
        c.state.store(state::ENDED, Release);
        attention(i);
    }
    wake(true);
}

/// The rings that are taken.
fn live() -> impl Iterator<Item = (usize, &'static Ctl)> {
    let words = header().map_or(&[][..], |h| &h.live[..]);
    words.iter().enumerate().flat_map(|(w, word)| {
        let mut set = word.load(Acquire);
        core::iter::from_fn(move || {
            let i = w * 64 + set.trailing_zeros() as usize;
            (set != 0).then(|| set &= set - 1)?;
            Some((i, ctl(i)?))
        })
    })
}

/// Gives the process a new image number.
fn begin_image(parent: u32) {
    if let Some(h) = header() {
        LINK.parent.store(parent, Relaxed);
        LINK.image.store(h.next_image.fetch_add(1, AcqRel), Relaxed);
        log!(Info, "image {} begins, which came from {parent}", image());
    }
}

/// Number of this program image.
pub fn image() -> u32 {
    LINK.image.load(Relaxed)
}

/// Called in the child of a `fork`: a new image with streams of its own begins. `follow` is false
/// if the child is not to be recorded.
pub fn forked(follow: bool) {
    if let Some(mut e) = LINK.process.lock().take() {
        e.release();
    }
    if sys::getppid() == 0 {
        // The parent is outside of this namespace, and so is the collector.
        let number = header().map_or(0, |h| h.namespaces.fetch_add(1, Relaxed));
        LINK.namespace.store(number + 1, Relaxed);
    }
    LINK.executed.store(false, Relaxed);
    if follow {
        begin_image(image());
    } else if crate::sys::config::get().children == children::MATCHING {
        LINK.silent.store(true, Relaxed);
    } else {
        LINK.base.store(null_mut(), Release);
        descriptor::close();
    }
}

/// Called in a copy of this process that makes a key frame for it: the copy has no streams.
pub fn become_copy() {
    LINK.silent.store(true, Relaxed);
    if let Some(mut e) = LINK.process.lock().take() {
        e.release();
    }
}

/// Whether this process is recorded.
pub fn is_recorded() -> bool {
    header().is_some() && !LINK.silent.load(Relaxed)
}

/// Keeps the process stream from changing while the process is copied.
pub fn hold() -> impl Sized {
    LINK.process.lock()
}

/// Sets a word of the header to `said`, unless it is `noted`, and waits until the collector has
/// changed it to `noted`. Waits for [`SETTLE_MS`] at most.
pub fn tell(word: impl Fn(&Header) -> &AtomicU32, said: u32, noted: u32) {
    let Some(h) = header() else { return };
    let word = word(h);
    let mut alive = Watch::new();
    for _ in 0..SETTLE_MS {
        if word.load(Acquire) == noted {
            return;
        }
        word.store(said, Release);
        wake(true);
        alive.check();
        sys::sleep_ms(1);
    }
}

/// Says that a process is about to be made which will have a ring. The collector waits for it.
pub fn expect_process() -> Option<Unborn> {
    // Without a collector each child would end with a message, and the parent would make ever more
    // of them.
    watch::insist();
    header().map(Header::expect)
}

/// Says that this process has been made, with the id `pid`.
pub fn made_process(unborn: Option<Unborn>, pid: u64) {
    if let (Some(h), Some(u), false) = (header(), unborn, foreign()) {
        h.name(u, pid as i32);
    }
}

/// Says that this process has its ring, or could not be made.
pub fn expected_process(unborn: Option<Unborn>) {
    if let (Some(h), Some(u)) = (header(), unborn) {
        h.born(u);
    }
}

/// Whether ring `i` carries thread `tid` of this image.
pub fn carries(i: usize, tid: i32) -> bool {
    ctl(i).is_some_and(|c| {
        c.state.load(Acquire) == state::LIVE
            && c.kind.load(Relaxed) == kind::THREAD
            && (c.image.load(Relaxed), c.tid.load(Relaxed)) == (image(), tid)
    })
}

/// Whether a descriptor is that of the control file.
pub fn is_control(fd: i32) -> bool {
    let known = [0, 1].map(|i| LINK.file[i].load(Relaxed));
    sys::fstat(fd).is_ok_and(|s| [s.st_ino, s.st_size as u64] == known)
}

/// Whether the control file has a part for each image's common cells.
pub fn has_commons() -> bool {
    LINK.file[1].load(Relaxed) == ring::commons::END
}

/// The collector's process id, and its descriptor of the control file.
pub fn collector() -> [i32; 2] {
    [0, 1].map(|i| LINK.collector[i].load(Relaxed))
}

/// The counter of order numbers, and the first of the locks for atomic operations. `None` when
/// nothing is recorded.
pub fn order() -> Option<(&'static AtomicU64, *const Stripe)> {
    let stripes = LINK.base.load(Acquire).wrapping_add(STRIPES_OFFSET);
    header().map(|h| (&h.sequence, stripes.cast_const().cast()))
}

/// The recorder's executable image, as it was before it ran.
pub fn recorder() -> Option<&'static [u8]> {
    let len = (header()?.image_len.load(Relaxed) as usize).min(ring::IMAGE_BYTES);
    // SAFETY: these bytes lie in the mapped control file, which is never unmapped. Nobody changes
    // them after the first image began.
    Some(unsafe { core::slice::from_raw_parts(LINK.base.load(Acquire).add(ring::IMAGE), len) })
}

/// The translations that all images of the recording share. `None` if this process is not recorded.
pub fn shared_cache() -> Option<SharedCache<'static>> {
    let at = ring::file_len(header()?.rings.load(Relaxed) as usize);
    if !is_recorded() {
        // A process that is not recorded has translations of another kind.
        return None;
    }
    if LINK.file[1].load(Relaxed) < (at + shared_cache::LEN) as u64 {
        return None;
    }
    // SAFETY: the file is long enough, as was just checked, and stays mapped. This part of it is
    // used through `SharedCache` only.
    let shared = unsafe { SharedCache::new(LINK.base.load(Acquire).add(at)) };
    Some(shared.with_kept(kept::bytes()))
}

/// Draws the next order number. 0 when nothing is recorded.
pub fn next_sequence() -> u64 {
    header().map_or(0, |h| h.sequence.fetch_add(1, AcqRel))
}

/// The next order number that somebody will draw, or an earlier one.
pub fn coming_sequence() -> u64 {
    header().map_or(0, |h| h.sequence.load(Acquire))
}

/// Tells the command line that rule `i` has found what it names. `reached`: it has also been
/// executed.
pub fn note_rule(i: usize, reached: bool) {
    let Some(h) = header() else { return };
    let bit = 1 << (i & 63);
    for word in [&h.matched, &h.reached]
        .into_iter()
        .take(1 + reached as usize)
    {
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }
}

/// Tells the command line that a program has begun whose fresh memory is filled.
pub fn note_filled() {
    if let Some(h) = header() {
        h.filled.fetch_add(1, Relaxed);
    }
}

/// Tells it that a function was found by which that program gets memory.
pub fn note_allocating() {
    if let Some(h) = header() {
        h.allocating.fetch_add(1, Relaxed);
    }
}

/// Says whether a signal that asks for an end waits for the program. Signal handlers call this,
/// too.
pub fn note_signal(signo: i32, waits: bool) {
    let (Some(h), Some(bit)) = (header(), ring::ending(signo)) else {
        return;
    };
    if h.guest_pid.load(Relaxed) == sys::getpid() {
        match waits {
            true => h.untaken.fetch_or(bit, Relaxed),
            false => h.untaken.fetch_and(!bit, Relaxed),
        };
    }
}

/// Says that this process may write to the memory of others. Returns what [`meddling`] was before.
pub fn meddle() -> u32 {
    header().map_or(0, |h| h.meddling.fetch_add(1, AcqRel))
}

/// A number that changes when a recorded process may write to the memory of others.
pub fn meddling() -> u32 {
    header().map_or(0, |h| h.meddling.load(Acquire))
}

/// Asks the collector to take locks from threads that are gone or stopped. `alive` belongs to one
/// wait of the caller.
pub fn complain(alive: &mut Option<Watch>) {
    if let Some(h) = header() {
        log!(
            Debug,
            "asks the collector to take locks from those who are gone"
        );
        h.stuck.fetch_add(1, AcqRel);
        wake(true);
        alive.get_or_insert_with(Watch::new).check();
    }
}

/// The recorded process that thread `tid` belongs to, if it has memory of its own.
pub fn other_process(tid: i32) -> Option<i32> {
    let c = thread(tid)?;
    let pid = c.pid.load(Relaxed);
    (c.image.load(Relaxed) != image() && pid > 0).then_some(pid)
}

/// The control page of the ring of thread `tid`, if that thread is recorded and in the same
/// namespace of ids.
pub fn thread(tid: i32) -> Option<&'static Ctl> {
    let of = |c: &Ctl| {
        c.state.load(Acquire) == state::LIVE
            && c.kind.load(Relaxed) == kind::THREAD
            && c.tid.load(Relaxed) == tid
            && ring::is_named_in(namespace(), c.pid.load(Relaxed))
    };
    live().map(|(_, c)| c).find(|c| of(c))
}

/// Whether a process is about to have a ring that has none yet.
pub fn is_birth_near() -> bool {
    header().is_some_and(|h| h.unborn.load(Acquire) > 0)
}

/// Makes the collector leave a recorded process, and waits until it has tried. Waits for
/// [`PATIENCE`] at most, since that process may be waiting for this one.
pub fn leave(pid: i32) {
    let Some(h) = header() else { return };
    let began = sys::seconds();
    let mut alive = Watch::new();
    let mut asked = false;
    // If this process has to be left itself, it must not wait for the collector.
    while !stop::is_requested() {
        let now = h.traced.load(Acquire);
        if asked && now != pid {
            return;
        }
        if sys::seconds() - began > PATIENCE {
            let what = line!(
                "process {pid} cannot be detached yet (a thread of it cannot stop); its tracer sees the recorder in it"
            );
            log!(Warn, "process {pid} cannot be detached yet");
            return crate::sys::line::say(what.as_bytes());
        }
        asked |= now <= 0 && h.traced.compare_exchange(now, pid, AcqRel, Relaxed).is_ok();
        alive.check();
        sys::sleep_ms(1);
    }
}

/// For how many milliseconds [`Emitter::settle`] waits at most.
const SETTLE_MS: u32 = 5000;

/// Takes a free ring, and waits for one if all are taken. Sets only its state.
fn find_free() -> Option<usize> {
    // Without a collector the process would go on until a ring is full.
    watch::insist();
    let mut began = sys::seconds();
    let mut alive = Watch::new();
    loop {
        // SAFETY: the control file is mapped, and `claim` asks only for rings that this file has. A
        // control page consists of atomics.
        if let Some(i) = header()?.claim(|i| unsafe { &*ctl_at(i) }) {
            return Some(i);
        }
        if sys::seconds() - began > PATIENCE {
            // While there are rings that the collector has to give back, it is only slow.
            let ended = |(_, c): (usize, &Ctl)| c.state.load(Acquire) == state::ENDED;
            if !live().any(ended) {
                return None;
            }
            began = sys::seconds();
        }
        wake(true);
        sys::sleep_ms(1);
        // Only the collector makes rings free again.
        alive.check();
    }
}

/// Appends an event to the process stream.
pub fn emit_process(ev: &Event) {
    let mut p = LINK.process.lock();
    p.get_or_insert_with(|| {
        Emitter::claim(kind::IMAGE, sys::gettid()).unwrap_or_else(Emitter::silent)
    })
    .emit(0, ev);
}

/// Says that the process stream is complete.
pub fn end_process() {
    if let Some(e) = LINK.process.lock().as_mut() {
        e.end();
    }
}

/// Makes the collector look at ring `i`.
pub fn attend(i: usize) {
    attention(i);
    wake(true);
}

/// Says that ring `i` wants the collector's attention.
fn attention(i: usize) {
    if let Some(h) = header() {
        h.request_attention(i);
    }
}

/// Wakes the collector if it sleeps, or in any case if `always`.
fn wake(always: bool) {
    if let Some(h) = header()
        && (always || h.sleeping.load(Relaxed) != 0)
    {
        h.wake.fetch_add(1, AcqRel);
        sys::futex_wake(&h.wake);
    }
}

/// Marks all streams of this process as ended, where no events can be written any more.
pub fn abandon() {
    let pid = pid();
    for (i, c) in live() {
        if c.pid.load(Relaxed) == pid && c.image.load(Relaxed) == image() {
            let _ = c
                .state
                .compare_exchange(state::LIVE, state::ENDED, AcqRel, Relaxed);
            attention(i);
        }
    }
    wake(true);
}

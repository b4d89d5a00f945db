//! The quiet regime. As long as two conditions hold, reads need not be checked:
//!
//! - Nothing but the program's only thread and the kernel can change the program's memory.
//! - All that the kernel changes is known.
//!
//! The program then runs plain code. What the kernel wrote is recorded when a call returns.
//!
//! Replay plays both regimes alike, on its window. In the quiet regime its cells are the program's
//! memory, so no two pages may share cells (see [`crate::memory::placement`]). The vDSO reads what
//! the kernel changes at any time. So its code is checked all the same.
//!
//! Now and then a key frame restates what memory holds (see [`mod@restate`]), and replay can begin
//! there.
//!
//! There is one way out, into the checked regime, with a key frame. The window is emptied, and what
//! memory holds shows when it is read.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

mod budget;
mod copy;
mod frame;
pub mod markers;
mod others;
mod pages;
mod restate;

pub use copy::never as never_copy;
use hindsight_isa::regs::{RAX, RSP};
pub use others::{announce, forked};
use others::{changes_files, open_flags, opens_for_writing};
pub use restate::{end_copy, restate, state_point};

use crate::memory::maps::{Region, regions};
use crate::memory::{backing, page_sharing, placement};
use crate::stream::ring;
use crate::sys::quiet::{MAX_MAPPING, Reason};
use crate::sys::range::AtomicRange;
use crate::sys::{self, PAGE, config, guard};
use crate::thread::{Thread, clone, threads};
use alloc::vec::Vec;
use core::ops::Range;
use hindsight_events::Event;
use hindsight_events::event::{MAX_BYTES, digest};
use hindsight_syscalls as syscalls;
use linux_raw_sys::general::*;

/// Bytes. What the kernel writes at a time is mostly shorter.
const SHORT: usize = 256;
/// Bytes that are recorded at a time of what the kernel wrote in a call of a checked thread.
const PIECE: usize = 4096;
/// The fewest instructions between two digests of the registers at system calls. If something was
/// not recorded that should have been, it has to show soon.
const CHECK_EVERY: u64 = 50_000;
/// The same for digests of output, on average.
const PASSED_EVERY: u64 = 1000;
/// How many digests of output may come at once: all output of a short program shows.
const PASSED_AT_ONCE: u64 = 64;

/// Start and end of the vDSO.
static VDSO: AtomicRange = AtomicRange::new();

/// Begins the quiet regime behind the first key frame: records all memory that the program has.
/// `written` is what the loader wrote besides.
pub fn begin(t: &mut Thread, written: &[Range<u64>]) {
    log!(Info, "the quiet regime begins");
    invariant!(
        threads::is_alone(),
        "the only thread of its memory becomes quiet"
    );
    regions().sort_cells();
    let list: Vec<Region> = regions().all().copied().collect();
    t.event(&Event::Regime {
        quiet: true,
        reason: b"",
    });
    t.regime.quiet = true;
    t.regime.meddling = ring::meddling();
    restate::begin(t);
    t.regime.leaves_after = config::get().quiet_for;
    if let Some(why) = backing::inherited() {
        return leave(t, why);
    }
    for r in &list {
        let (start, len) = (r.start, r.end - r.start);
        let holds = r.prot != 0 || r.flags & MAP_ANONYMOUS == 0;
        if holds && placement::collides(start, len) {
            return leave(
                t,
                "two mappings of the program have addresses with the same low 32 bits from the beginning",
            );
        }
        let path: Vec<u8> = regions().path(r).to_vec();
        match &path[..] {
            b"[stack]" => {
                let sp = t.ctx.gpr[RSP] & !(PAGE - 1);
                tell(t, sp.max(start), r.end - sp.max(start));
            }
            b"[vdso]" => {
                VDSO.set(start..r.end);
                tell(t, start, len);
            }
            p if p.starts_with(b"[") || r.flags & MAP_ANONYMOUS != 0 => {}
            _ => {
                if let Err(why) = tell_file(t, start, len, r.offset, None, &path) {
                    return leave(t, why);
                }
            }
        }
    }
    for w in written {
        tell(t, w.start, w.end - w.start);
    }
}

/// Records what memory holds at `addr..addr+len`, as far as it can be read. Does nothing in the
/// checked regime.
pub fn tell(t: &mut Thread, addr: u64, len: u64) {
    if !t.regime.quiet {
        return;
    }
    if len <= SHORT as u64 {
        // Most ranges are short, and clearing a large buffer costs more than all the rest.
        let mut buf = [0; SHORT];
        let bytes = &mut buf[..len as usize];
        if guard::read(addr, bytes).is_ok() {
            return t.event(&Event::Memory { addr, bytes });
        }
    }
    let mut buf = [0; MAX_BYTES];
    let end = addr.saturating_add(len);
    let mut at = addr;
    while at < end {
        // In pieces that end with a page, where a later page cannot be read.
        let mut n = (end - at).min(MAX_BYTES as u64) as usize;
        if guard::read(at, &mut buf[..n]).is_err() {
            n = n.min((PAGE - at % PAGE) as usize);
            if guard::read(at, &mut buf[..n]).is_err() {
                return;
            }
        }
        t.event(&Event::Memory {
            addr: at,
            bytes: &buf[..n],
        });
        at += n as u64;
    }
}

/// As [`tell`], at the position behind the instruction at hand, for what replay does not repeat of
/// it.
pub fn tell_behind(t: &mut Thread, addr: u64, len: u64) {
    t.pos += 1;
    tell(t, addr, len);
    t.pos -= 1;
}

/// Records that a file is in memory at `addr`. `fd` is the file, if it is open. The error says why
/// the regime has to end.
fn tell_file(
    t: &mut Thread,
    addr: u64,
    len: u64,
    offset: u64,
    fd: Option<i32>,
    path: &[u8],
) -> Result<(), Reason> {
    let held = match fd {
        Some(fd) => backing::map(fd, path)?,
        None => backing::known(path)?,
    };
    if !held.handed {
        return tell_content(t, addr, len, offset, held.file.size);
    }
    t.event(&of_file(addr, len, offset, &held.file, path));
    t.regime.files_told = true;
    if let (true, Some(fd)) = (held.new && held.file.is_fresh(), fd) {
        t.emit.settle();
        if t.emit.lost_file() || !backing::is_still(fd, &held.file) {
            return Err(CHANGED);
        }
    }
    Ok(())
}

/// Says that the file `f` is in memory at `addr`.
fn of_file<'a>(addr: u64, len: u64, offset: u64, f: &backing::File, path: &'a [u8]) -> Event<'a> {
    Event::File {
        addr,
        len,
        offset,
        device: f.id.0,
        inode: f.id.1,
        size: f.size,
        modified: f.modified,
        path,
    }
}

/// Records memory that is a part of a file of `size` bytes which the collector cannot have. Nothing
/// has written to that memory yet.
fn tell_content(t: &mut Thread, addr: u64, len: u64, offset: u64, size: u64) -> Result<(), Reason> {
    const MOST: u64 = 16 << 20;
    let len = len.min(size.saturating_sub(offset).next_multiple_of(PAGE));
    let readable = |r: &Region| r.prot & PROT_READ != 0 && r.end >= addr + len;
    if len > MOST || !regions().find(addr).is_some_and(readable) {
        return Err("the collector cannot read a mapped file");
    }
    tell(t, addr, len);
    Ok(())
}

/// Records the content of a new mapping, or ends the regime soon.
pub fn mapped(t: &mut Thread, addr: u64, len: u64, prot: u32, flags: u32, fd: i32, offset: u64) {
    if !t.regime.quiet {
        return;
    }
    if let Err(why) = content(t, addr, len, prot, flags, fd, offset) {
        t.regime.end_soon(why);
    }
}

fn content(
    t: &mut Thread,
    addr: u64,
    len: u64,
    prot: u32,
    flags: u32,
    fd: i32,
    offset: u64,
) -> Result<(), Reason> {
    if len > MAX_MAPPING {
        return Err("the program maps a very large range");
    }
    // Memory that cannot be accessed has no content, unless it is a file's.
    let holds = prot != 0 || flags & MAP_ANONYMOUS == 0;
    if holds && placement::collides(addr, len) {
        return Err("two mappings have addresses with the same low 32 bits");
    }
    if flags & MAP_GROWSDOWN != 0 {
        return Err("the program makes a mapping that grows (MAP_GROWSDOWN)");
    }
    if flags & MAP_HUGETLB != 0 {
        return Err("the program maps huge pages");
    }
    if flags & MAP_TYPE == MAP_DROPPABLE {
        return Err("the program maps memory that the kernel may drop (MAP_DROPPABLE)");
    }
    if flags & MAP_ANONYMOUS != 0 {
        // `zero_window` has recorded its content.
        return match flags & MAP_TYPE == MAP_PRIVATE {
            true => Ok(()),
            false => Err("the program maps memory that others can share"),
        };
    }
    let found = regions().find(addr).copied();
    let Some(r) = found else {
        return Err("the content of a new mapping is not known");
    };
    let path: Vec<u8> = regions().path(&r).to_vec();
    // A shared mapping of the system's files that is only read is as good as a private one.
    let of_system = backing::is_of_system(&path);
    if flags & MAP_TYPE != MAP_PRIVATE && (prot & PROT_WRITE != 0 || !of_system) {
        return Err("the program maps a file that others can change");
    }
    if sys::is_writable(fd) {
        return Err("the program maps a file that it has open for writing");
    }
    tell_file(t, addr, len, offset, Some(fd), &path)
}

/// Ends the regime as soon as the thread stands between two instructions.
pub fn leave_soon(t: &mut Thread, why: Reason) {
    if t.regime.quiet {
        t.regime.end_soon(why);
    }
}

/// Notes that memory has become accessible.
pub fn accessible(t: &mut Thread, addr: u64, len: u64) {
    if t.regime.quiet && placement::collides(addr, len) {
        t.regime
            .end_soon("two mappings have addresses with the same low 32 bits");
    }
}

/// Notes that memory that may hold something is inaccessible for now.
pub fn inaccessible(t: &mut Thread, addr: u64, len: u64) {
    if t.regime.quiet && !placement::hold(addr, len) {
        leave_soon(t, "the program makes very many mappings inaccessible");
    }
}

/// Notes that the pages of this range are as they were when they were mapped (`madvise` with
/// `advice`).
pub fn discarded(t: &mut Thread, addr: u64, len: u64, advice: u32) {
    if !t.regime.quiet {
        return changed(t, addr, len);
    }
    let list: Vec<Region> = regions().overlapping(addr, len).copied().collect();
    for r in list {
        let (start, end) = (r.start.max(addr), r.end.min(addr + len));
        if r.is_shared() || advice == MADV_REMOVE {
            t.regime.end_soon("the program discards shared memory");
        } else if r.flags & MAP_ANONYMOUS != 0 {
            t.zero_window(start, end - start);
        } else {
            let path = regions().path(&r).to_vec();
            let offset = r.offset + (start - r.start);
            if let Err(why) = tell_file(t, start, end - start, offset, None, &path) {
                t.regime.end_soon(why);
            }
        }
    }
}

/// Called before a system call, before its event is written. Ends the regime if the call makes
/// somebody who can change the memory, or shares it.
pub fn before_call(t: &mut Thread, nr: u32, a: &[u64; 6]) {
    if !t.regime.quiet {
        return;
    }
    if t.pos >= t.regime.next_check {
        t.regime.next_check = t.pos + CHECK_EVERY;
        let cpu = t.cpu().digest();
        t.event(&Event::Digest { cpu, vec: 0 });
    }
    if copy::shows(nr, a) {
        end_copy();
    }
    // The collector reads files by name, so it has to do that before the program can change or
    // remove them.
    if t.regime.files_told && changes_files(nr, a) {
        t.emit.settle();
        t.regime.files_told = false;
    }
    let why = match nr {
        __NR_clone | __NR_clone3 | __NR_vfork if clone::shares_memory(nr, a) => {
            "a second thread begins, or a child in the same memory"
        }
        __NR_clone | __NR_clone3 | __NR_fork | __NR_vfork => return others::before_fork(t),
        __NR_shmat => "the program attaches memory that others share (shmat)",
        _ if syscalls::overwrites_its_buffers(nr, a, &Real) => {
            "a system call may overwrite the array that says where it writes"
        }
        __NR_exit | __NR_exit_group => return end(t),
        _ => return,
    };
    leave(t, why);
}

/// Bytes of a `struct mmsghdr`.
const MMSGHDR: u64 = 64;
/// Why the regime ends if a file in memory was changed.
const CHANGED: Reason = "a file changed while the program had it mapped";

struct Real;

impl syscalls::Memory for Real {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        guard::read(addr, buf).is_ok()
    }

    fn takes(&self, addr: u64, len: u64) -> bool {
        // Pages behind the end of a mapped file cannot be written, so only anonymous memory counts.
        let plain = |r: &Region| r.prot & PROT_WRITE != 0 && r.flags & MAP_ANONYMOUS != 0;
        let mut at = addr;
        for r in regions().overlapping(addr, len) {
            if r.start > at || !plain(r) {
                return false;
            }
            at = r.end;
        }
        at >= addr.saturating_add(len)
    }
}

/// Called after a system call. Records what the kernel wrote, and ends the regime if that is not
/// known.
pub fn after_call(t: &mut Thread, nr: u32, a: &[u64; 6]) {
    if !t.regime.quiet {
        return changed_by(t, nr, a);
    }
    let ret = t.ctx.gpr[RAX] as i64;
    let untold = config::get().untold == nr as u64 + 1;
    let class = syscalls::outputs(nr, a, ret, &Real, &mut |r| {
        if !untold {
            tell(t, r.addr, r.len);
        }
    });
    if ret > 0
        && t.pos >= t.regime.next_passed
        && matches!(nr, __NR_write | __NR_pwrite64 | __NR_sendto)
    {
        passed(t, a[1], ret as u64);
    }
    if let Some(why) = aftermath(nr, a, ret) {
        leave_soon(t, why);
    }
    if class == syscalls::Class::Unknown {
        t.regime.end_soon(
            "the program made a system call of which it is not known what memory it writes",
        );
    }
    others::meddled(t);
    if let Some(why) = t.regime.take_end() {
        leave(t, why);
    }
    if class == syscalls::Class::Unknown {
        unknown(t);
    }
}

/// A call may have written anything. The kernel may go on writing, even while memory is mapped
/// anew.
fn unknown(t: &mut Thread) {
    changed(t, 0, u64::MAX);
    page_sharing::never(t);
}

/// Called after a system call of a checked thread. Records which memory the kernel may have
/// written, and what stands there now, up to `Config::data_limit` bytes.
fn changed_by(t: &mut Thread, nr: u32, a: &[u64; 6]) {
    if t.is_plain() {
        return;
    }
    let ret = t.ctx.gpr[RAX] as i64;
    let untold = config::get().untold == nr as u64 + 1;
    let mut left = config::get().data_limit;
    let class = syscalls::outputs(nr, a, ret, &Real, &mut |r| {
        changed(t, r.addr, r.len);
        if !untold {
            left -= show(t, r.addr, r.len.min(left));
        }
    });
    if class == syscalls::Class::Unknown || clone::lent_memory(nr, a) {
        unknown(t);
    }
}

/// Records what memory holds at `addr..addr+len`, as far as it can be read, and brings its cells up
/// to date. So what the program reads there later is predicted. Returns how many bytes these were.
///
/// Other threads may have changed the memory since the kernel wrote it. They are not ordered with
/// that, and what they wrote is in their own streams.
fn show(t: &mut Thread, addr: u64, len: u64) -> u64 {
    if len <= SHORT as u64 {
        return show_in(t, addr, &mut [0; SHORT][..len as usize]) as u64;
    }
    let (mut buf, mut done) = ([0; PIECE], 0);
    while done < len {
        let piece = &mut buf[..(len - done).min(PIECE as u64) as usize];
        match show_in(t, addr.wrapping_add(done), piece) {
            n if n == piece.len() => done += n as u64,
            n => return done + n as u64,
        }
    }
    done
}

fn show_in(t: &mut Thread, addr: u64, buf: &mut [u8]) -> usize {
    let mut n = buf.len();
    if guard::read(addr, buf).is_err() {
        // If not all pages can be read, the first one alone.
        n = n.min((PAGE - addr % PAGE) as usize);
        if guard::read(addr, &mut buf[..n]).is_err() {
            return 0;
        }
    }
    if n != 0 {
        t.put(addr, &buf[..n]);
    }
    n
}

/// Records that what was known of this memory may not hold any more. Does nothing in the quiet
/// regime, where events say what memory holds.
pub fn changed(t: &mut Thread, addr: u64, len: u64) {
    if !t.regime.quiet && !t.is_plain() && len != 0 {
        t.event(&Event::Changed { addr, len });
    }
}

/// Records a digest of what the program has given to the kernel. Replay compares it with what the
/// program gives then.
#[cold]
fn passed(t: &mut Thread, addr: u64, len: u64) {
    let earliest = t.pos.saturating_sub(PASSED_AT_ONCE * PASSED_EVERY);
    t.regime.next_passed = t.regime.next_passed.max(earliest) + PASSED_EVERY;
    let len = len.min(MAX_BYTES as u64);
    let mut buf = [0; MAX_BYTES];
    let bytes = &mut buf[..len as usize];
    if guard::read(addr, bytes).is_ok() {
        let digest = digest(bytes);
        t.event(&Event::Passed { addr, len, digest });
    }
}

/// What follows from a call that returned `ret`, besides what it wrote: why the regime has to end,
/// if it has to.
fn aftermath(nr: u32, a: &[u64; 6], ret: i64) -> Option<Reason> {
    if ret < 0 {
        return None;
    }
    match nr {
        // With `O_DIRECT` the device writes more than is read, up to the end of a block.
        __NR_fcntl if a[1] as u32 == F_SETFL && a[2] as u32 & O_DIRECT != 0 => {
            Some(backing::DIRECT)
        }
        __NR_open | __NR_openat | __NR_openat2
            if open_flags(nr, a).is_some_and(|f| f & O_DIRECT != 0) =>
        {
            Some(backing::DIRECT)
        }
        __NR_open | __NR_openat | __NR_openat2 | __NR_creat if opens_for_writing(nr, a) => {
            backing::opened(ret as i32)
        }
        __NR_truncate => backing::resized(a[0]),
        __NR_recvmsg => backing::received(a[1]),
        __NR_recvmmsg => (0..ret as u64).find_map(|i| backing::received(a[1] + MMSGHDR * i)),
        __NR_munmap => backing::changed(false).then_some(CHANGED),
        // A child that has ended may have changed files.
        __NR_wait4 | __NR_waitid => backing::changed(true).then_some(CHANGED),
        __NR_setrlimit | __NR_prlimit64 if placement::stack_collides() => {
            Some("the stack may grow to addresses whose low 32 bits other memory has")
        }
        _ => None,
    }
}

/// Ends the regime. The thread stands between two instructions, and is checked from here on.
pub fn leave(t: &mut Thread, why: Reason) {
    if !t.regime.quiet {
        return;
    }
    (t.regime.quiet, t.regime.in_vdso) = (false, false);
    let why = if backing::changed(true) { CHANGED } else { why };
    log!(Info, "the quiet regime ends: {why}");
    t.event(&Event::Regime {
        quiet: false,
        reason: why.as_bytes(),
    });
    restate::forget();
    t.begin_checked();
    if why == CHANGED {
        changed(t, 0, u64::MAX);
    }
}

/// Called before the program ends.
fn end(t: &mut Thread) {
    // Whoever waits for the end may change the files, or unmount them.
    if t.regime.files_told && backing::watched() {
        t.emit.settle();
    }
    if t.regime.quiet && backing::changed(true) {
        t.event(&Event::Regime {
            quiet: false,
            reason: CHANGED.as_bytes(),
        });
    }
}

/// Called when the thread is about to execute the instruction at `pc`, before
/// [`crate::code::select::arrive`].
pub fn arrive(t: &mut Thread, pc: u64) {
    if t.regime.quiet {
        if t.regime.leaves_after != 0 {
            t.regime.leaves_after -= 1;
            if t.regime.leaves_after == 0 {
                leave_soon(t, "--leave-quiet-after asked for it");
            }
        }
        others::meddled(t);
        if let Some(why) = t.regime.take_end() {
            return leave(t, why);
        }
        t.regime.in_vdso = VDSO.contains(pc);
    }
}

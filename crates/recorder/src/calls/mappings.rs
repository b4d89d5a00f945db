//! System calls that change what is mapped.
//!
//! Each brings [`crate::memory::maps`] up to date and drops translations of code that may have
//! changed. Where memory is fresh, it clears the cells.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

mod brk;

use crate::code::mapping;
use crate::code::sequence;
use crate::memory::maps::{Region, fresh_object, kernel_mappings, named_object, regions};
use crate::memory::{limits, page_sharing, placement, regime};
use crate::sys::{self, PAGE, arena, headroom, pages, result};
use crate::thread::Thread;
use crate::thread::call::{Flow, errno, returned};
use crate::thread::pass::pass;
use hindsight_events::Event;
use hindsight_syscalls::{MAPS, has};
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// Performs the call if it is one of these, otherwise returns `None`. The inner `None`: a signal
/// has to be delivered first.
pub fn perform(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<Option<Flow>> {
    if !has(nr, MAPS) {
        t.mapped_file.forget();
        return None;
    }
    headroom::program_maps();
    let _order = mapping::change();
    if t.regime.quiet {
        placement::look_at_limit();
    }
    if nr != __NR_brk {
        regions().follow_stack(a[0], a[1]);
    }
    let done = match nr {
        __NR_mmap => mmap(t, a),
        __NR_munmap => munmap(t, a),
        __NR_mprotect | __NR_pkey_mprotect => mprotect(t, nr, a),
        __NR_mremap => mremap(t, a),
        __NR_brk => {
            brk::perform(t, a[0]);
            Some(())
        }
        __NR_madvise => madvise(t, a),
        __NR_shmat => shmat(t, a),
        __NR_shmdt => shmdt(t, a),
        _ => return None,
    };
    sequence::attend(t);
    Some(done.map(|()| Flow::Next))
}

/// Drops translations of executable memory in this range, since they may be wrong from now on.
fn forget_code(t: &mut Thread, addr: u64, len: u64) {
    if regions().any_exec(addr, len) {
        t.invalidate_code(addr, len);
    }
}

/// Performs `mlockall(flags)` without locking anything. The program cannot see that, it only takes
/// time.
pub fn lock_all(flags: u64) -> u64 {
    let known = (MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) as u64;
    if flags & !known != 0 || flags & (MCL_CURRENT | MCL_FUTURE) as u64 == 0 {
        return errno(EINVAL);
    }
    0
}

/// Reserves a range that includes the recorder's part of the address space. That part is left out:
/// nobody gets there anyway.
fn reserve(t: &mut Thread, addr: u64, len: u64, flags: u32) {
    for (at, len) in arena::outside(addr, len) {
        if let Err(e) = sys::mmap(at, len, PROT_NONE, flags, -1, 0) {
            return returned(t, errno(e as u32));
        }
        forget_code(t, at, len);
        regions().add(at, len, PROT_NONE, flags, 0, b"");
    }
    returned(t, addr);
}

fn mmap(t: &mut Thread, a: &[u64; 6]) -> Option<()> {
    let [addr, len, prot, flags, fd, offset] = *a;
    let flags = flags as u32;
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if fixed && arena::overlaps(addr, len) {
        let whole =
            addr.is_multiple_of(PAGE) && addr < 1 << 47 && sys::pages(len) <= (1 << 47) - addr;
        let empty = prot as u32 == PROT_NONE && flags & MAP_ANONYMOUS != 0;
        if whole
            && empty
            && flags & MAP_FIXED != 0
            && !arena::outside(addr, sys::pages(len)).is_empty()
        {
            reserve(t, addr, sys::pages(len), flags);
            return Some(());
        }
        let e = if flags & MAP_FIXED_NOREPLACE != 0 {
            EEXIST
        } else {
            ENOMEM
        };
        returned(t, errno(e));
        return Some(());
    }
    let data = prot as u32 & PROT_WRITE != 0 && flags & MAP_TYPE == MAP_PRIVATE;
    let replaced = (flags & MAP_FIXED != 0).then_some(addr);
    if !limits::allow(t, sys::pages(len), replaced, data) {
        returned(t, errno(ENOMEM));
        return Some(());
    }
    let mut call = *a;
    if arena::overlaps(addr, len) {
        // The address is only a wish. The kernel has to choose another one.
        call[0] = 0;
    }
    let ret = match choose(t, &call) {
        Some(chosen) => match pass(t, __NR_mmap, &chosen)? {
            // Something is there that the list of mappings does not have.
            e if result(e).is_err() => pass(t, __NR_mmap, &call)?,
            at => at,
        },
        None => pass(t, __NR_mmap, &call)?,
    };
    returned(t, ret);
    if let Ok(at) = result(ret) {
        let len = sys::pages(len);
        let flags = match t.regime.quiet && flags & MAP_TYPE == MAP_DROPPABLE {
            true => make_undroppable(at, len, prot as u32),
            false => flags,
        };
        forget_code(t, at, len);
        let anonymous = flags & MAP_ANONYMOUS != 0;
        let (path, file) = match anonymous {
            true => (&[][..], None),
            false => t.mapped_file.look(fd as i32),
        };
        let object = match (flags & MAP_TYPE == MAP_PRIVATE, anonymous) {
            (true, _) => 0,
            (false, true) => fresh_object(),
            (false, false) => file.map_or(0, |(device, inode)| named_object(device, inode)),
        };
        regions().add_object(at..at + len, prot as u32, flags, offset, path, object);
        if anonymous || flags & MAP_TYPE == MAP_PRIVATE {
            t.zero_window(at, len);
        } else {
            regime::changed(t, at, len);
        }
        regime::mapped(t, at, len, prot as u32, flags, fd as i32, offset);
    }
    Some(())
}

/// Replaces fresh memory that the kernel may drop at any time. The new memory is kept, and is
/// otherwise treated alike. Returns its flags.
fn make_undroppable(at: u64, len: u64, prot: u32) -> u32 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if sys::mmap(at, len, prot, flags | MAP_FIXED, -1, 0).is_err() {
        return MAP_DROPPABLE | MAP_ANONYMOUS;
    }
    sys::madvise_wipe_on_fork(at, len);
    sys::madvise_dontdump(at, len);
    page_sharing::spare(at, len);
    flags
}

/// The call with an address that the recorder chose. `None`: the kernel has to choose.
fn choose(t: &Thread, call: &[u64; 6]) -> Option<[u64; 6]> {
    let [addr, len, prot, flags, fd, offset] = *call;
    // The kernel keeps room for what grows.
    let others = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | MAP_GROWSDOWN;
    let open = addr == 0 && flags as u32 & others == 0;
    if !open || !placement::chooses(t.regime.quiet) {
        return None;
    }
    let at = match flags as u32 & MAP_ANONYMOUS != 0 {
        true => placement::choose_fresh(len)?,
        false => placement::choose(len, PAGE)?,
    };
    let flags = flags | MAP_FIXED_NOREPLACE as u64;
    Some([at, len, prot, flags, fd, offset])
}

fn munmap(t: &mut Thread, a: &[u64; 6]) -> Option<()> {
    let [addr, len, ..] = *a;
    let aligned = addr.is_multiple_of(PAGE) && len != 0 && addr.saturating_add(len) < 1 << 47;
    if aligned && arena::overlaps(addr, len) {
        // The program has nothing there.
        returned(t, 0);
        for (at, len) in arena::outside(addr, sys::pages(len)) {
            if sys::munmap(at, len).is_ok() {
                forget_code(t, at, len);
                regions().remove(at, len);
                t.zero_window(at, len);
            }
        }
        return Some(());
    }
    let ret = pass(t, __NR_munmap, a)?;
    returned(t, ret);
    if ret == 0 {
        forget_code(t, addr, len);
        regions().remove(addr, len);
        t.zero_window(addr, sys::pages(len));
    }
    Some(())
}

fn mprotect(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<()> {
    let [addr, len, prot, ..] = *a;
    if arena::overlaps(addr, len) {
        returned(t, errno(ENOMEM));
        return Some(());
    }
    let ret = pass(t, nr, a)?;
    returned(t, ret);
    let (mut addr, mut len) = (addr, sys::pages(len));
    if ret != 0 && ret != errno(EINVAL) {
        // The kernel has changed all that comes before the address at which it failed.
        for m in kernel_mappings(addr, len) {
            if regions().is_protected_otherwise(&m) {
                protected(t, m.start, m.end - m.start, m.prot);
            }
        }
    }
    if ret != 0 || len == 0 {
        return Some(());
    }
    if prot as u32 & PROT_GROWSDOWN != 0 {
        regions().refresh_stack();
    }
    if prot as u32 & PROT_GROWSDOWN != 0
        && let Some(start) = regions().find(addr).map(|r| r.start)
    {
        len += addr - start;
        addr = start;
    }
    let prot = prot as u32 & (PROT_READ | PROT_WRITE | PROT_EXEC);
    protected(t, addr, len, prot);
    Some(())
}

/// Notes that the protection of whole pages has changed.
fn protected(t: &mut Thread, addr: u64, len: u64, prot: u32) {
    if prot & PROT_EXEC != 0 || regions().any_exec(addr, len) {
        t.invalidate_code(addr, len);
    }
    regions().protect(addr, len, prot);
    match prot {
        PROT_NONE => regime::inaccessible(t, addr, len),
        _ => regime::accessible(t, addr, len),
    }
}

fn mremap(t: &mut Thread, a: &[u64; 6]) -> Option<()> {
    let [old, old_len, new_len, flags, target, _] = *a;
    let fixed = flags as u32 & MREMAP_FIXED != 0;
    if arena::overlaps(old, old_len) || (fixed && arena::overlaps(target, new_len)) {
        returned(t, errno(ENOMEM));
        return Some(());
    }
    let more = sys::pages(new_len).saturating_sub(sys::pages(old_len));
    let data = regions()
        .find(old)
        .is_some_and(|r| r.prot & PROT_WRITE != 0 && !r.is_shared());
    if more > 0 && !limits::allow(t, more, None, data) {
        returned(t, errno(ENOMEM));
        return Some(());
    }
    let mut ret = resize(t, a)?;
    if ret == errno(EFAULT) && page_sharing::whole(t, old, old_len) {
        ret = resize(t, a)?;
    }
    returned(t, ret);
    let Ok(at) = result(ret) else { return Some(()) };
    let (old_len, new_len) = (sys::pages(old_len), sys::pages(new_len));
    forget_code(t, old, old_len);
    forget_code(t, at, new_len);
    let keep = old_len == 0 || flags as u32 & MREMAP_DONTUNMAP != 0;
    let several = regions().overlapping(old, old_len).count() > 1;
    if at == old && new_len < old_len {
        regions().remove(at + new_len, old_len - new_len);
        t.zero_window(at + new_len, old_len - new_len);
        return Some(());
    }
    regions().moved(old, old_len, at, new_len, keep);
    if at == old {
        t.zero_window(at + old_len, new_len - old_len);
    } else if t.regime.quiet && placement::collides(old, old_len) {
        regime::leave_soon(
            t,
            "the program moves memory to an address whose low 32 bits another mapping has",
        );
    } else if t.regime.quiet {
        let len = old_len.min(new_len);
        t.event(&Event::Move {
            from: old,
            to: at,
            len,
        });
        t.zero_window(old + len, old_len - len);
        t.zero_window(at + len, new_len - len);
    } else {
        t.zero_window(old, old_len);
        t.zero_window(at, new_len);
    }
    let anonymous = regions()
        .find(at)
        .is_some_and(|r| r.flags & MAP_ANONYMOUS != 0);
    if keep || several || !anonymous {
        regime::leave_soon(
            t,
            "mremap copies a mapping, moves several, or moves one of a file",
        );
    }
    regime::accessible(t, at, new_len);
    Some(())
}

/// Performs `mremap`. The recorder chooses the new address where the program leaves it open.
fn resize(t: &mut Thread, a: &[u64; 6]) -> Option<u64> {
    let [old, old_len, new_len, flags, _, _] = *a;
    let open = flags as u32 == MREMAP_MAYMOVE && old_len != 0;
    if !open || !placement::chooses(t.regime.quiet) {
        return pass(t, __NR_mremap, a);
    }
    // The addresses behind the mapping may be free and yet have low bits that others have, too.
    let more = pages(new_len).saturating_sub(pages(old_len));
    if more == 0 || !placement::collides(old.saturating_add(pages(old_len)), more) {
        let ret = pass(t, __NR_mremap, &[old, old_len, new_len, 0, 0, 0])?;
        if result(ret) != Err(ENOMEM as i32) {
            return Some(ret);
        }
    }
    let Some(at) = placement::choose_fresh(new_len) else {
        return pass(t, __NR_mremap, a);
    };
    // `mremap` cannot be told to replace nothing. So the range is taken first.
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if sys::mmap(at, sys::pages(new_len), 0, flags, -1, 0).is_err() {
        return pass(t, __NR_mremap, a);
    }
    let flags = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
    let ret = pass(t, __NR_mremap, &[old, old_len, new_len, flags, at, 0]);
    if ret.is_none_or(|r| result(r).is_err()) {
        let _ = sys::munmap(at, sys::pages(new_len));
    }
    ret
}

fn madvise(t: &mut Thread, a: &[u64; 6]) -> Option<()> {
    let [addr, len, advice, ..] = *a;
    if arena::overlaps(addr, len) {
        returned(t, errno(ENOMEM));
        return Some(());
    }
    let advice = advice as u32;
    let mut call = *a;
    // With `MADV_FREE` nobody could know when the kernel takes the pages. For files the kernel does
    // not do that.
    let anonymous = |r: &Region| r.flags & MAP_ANONYMOUS != 0;
    if t.regime.quiet && advice == MADV_FREE && regions().overlapping(addr, len).all(anonymous) {
        call[2] = MADV_DONTNEED as u64;
    }
    let ret = pass(t, __NR_madvise, &call)?;
    returned(t, ret);
    if matches!(advice, MADV_DONTFORK | MADV_WIPEONFORK) {
        regime::never_copy();
    }
    let discards = matches!(
        advice,
        MADV_DONTNEED | MADV_REMOVE | MADV_DONTNEED_LOCKED | MADV_GUARD_INSTALL | MADV_FREE
    );
    // The kernel has discarded what is mapped, although a part of the range is not.
    let done = ret == 0 || ret == errno(ENOMEM);
    if discards && done && addr.is_multiple_of(PAGE) {
        if advice != MADV_FREE {
            forget_code(t, addr, sys::pages(len));
        }
        regime::discarded(t, addr, sys::pages(len), advice);
    } else if discards && addr.is_multiple_of(PAGE) {
        // Of locked or special memory the kernel discards nothing, but it does of what comes
        // before.
        forget_code(t, addr, sys::pages(len));
        regime::changed(t, addr, sys::pages(len));
        regime::leave_soon(
            t,
            "madvise failed after it had discarded an unknown part of the memory",
        );
    }
    Some(())
}

fn shmat(t: &mut Thread, a: &[u64; 6]) -> Option<()> {
    const SHM_RDONLY: u64 = 0o10000;
    const SHM_EXEC: u64 = 0o100000;
    let ret = pass(t, __NR_shmat, a)?;
    returned(t, ret);
    if let Ok(at) = result(ret) {
        let len = kernel_mappings(at, 1).first().map_or(PAGE, |m| m.end - at);
        let write = if a[2] & SHM_RDONLY != 0 {
            0
        } else {
            PROT_WRITE
        };
        let exec = if a[2] & SHM_EXEC != 0 { PROT_EXEC } else { 0 };
        forget_code(t, at, len);
        let flags = MAP_SHARED | MAP_ANONYMOUS;
        // No file system has device 0, so this number is no file's.
        let object = named_object(0, a[0]);
        let prot = PROT_READ | write | exec;
        regions().add_object(at..at + len, prot, flags, 0, b"[shm]", object);
        regime::changed(t, at, len);
    }
    Some(())
}

fn shmdt(t: &mut Thread, a: &[u64; 6]) -> Option<()> {
    let region: Option<Region> = regions().find(a[0]).copied();
    let ret = pass(t, __NR_shmdt, a)?;
    returned(t, ret);
    if let (0, Some(r)) = (ret, region) {
        forget_code(t, r.start, r.end - r.start);
        regions().remove(r.start, r.end - r.start);
        t.zero_window(r.start, r.end - r.start);
    }
    Some(())
}

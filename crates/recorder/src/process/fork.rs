//! Children that are copies of this process, and the end of a process.

use crate::code::{cache, sequence};
use crate::line;
use crate::memory::{commons, maps, regime};
use crate::process::exec;
use crate::signals::{actions, delivery, sharers};
use crate::stream::ring::{self, Emitter};
use crate::sys::{self, config, fail, guard, many, program};
use crate::thread::call::{Flow, args, errno};
use crate::thread::{Thread, clone, end, pass, threads};
use hindsight_events::EndKind;
use hindsight_events::config::children;
use hindsight_events::unborn::Unborn;
use hindsight_isa::regs::{R11, RAX, RCX, RSP};
use hindsight_isa::state::RFLAGS_MASK;
use linux_raw_sys::errno::{EAGAIN, EFAULT, EINVAL};
use linux_raw_sys::general::*;

/// What the child is to be.
struct Request {
    nr: u32,
    args: [u64; 6],
    flags: u64,
    /// The child's stack pointer. 0: the same as the parent's.
    sp: u64,
    tls: u64,
    /// The argument block of `clone3`.
    block: [u64; 32],
}

/// Reads the arguments, and removes from them what the child will do itself.
fn request(nr: u32, a: &[u64; 6]) -> Result<Request, u32> {
    let mut r = Request {
        nr,
        args: *a,
        flags: 0,
        sp: 0,
        tls: 0,
        block: [0; 32],
    };
    if nr == __NR_clone {
        (r.flags, r.sp, r.tls) = (a[0], a[1], a[4]);
        // The child goes on using its copy of the recorder's stack.
        r.args[1] = 0;
    } else if nr == __NR_clone3 {
        let size = a[1];
        if !(64..=256).contains(&size) {
            return Err(EINVAL);
        }
        let mut bytes = [0; 256];
        guard::read(a[0], &mut bytes[..size as usize]).map_err(|_| EFAULT)?;
        for (w, b) in r.block.iter_mut().zip(bytes.as_chunks().0) {
            *w = u64::from_le_bytes(*b);
        }
        (r.flags, r.tls) = (r.block[0], r.block[7]);
        let (stack, len) = (r.block[5], r.block[6]);
        if stack != 0 && len != 0 {
            r.sp = stack.wrapping_add(len);
            (r.block[5], r.block[6]) = (0, 0);
        }
        // The child does this itself: the kernel would clear the recorder's handlers, too.
        r.block[0] &= !clone::CLEAR_SIGHAND;
    }
    Ok(r)
}

/// Performs a `fork`, or a `clone` or `clone3` whose child has a copy of the memory. `None`: a
/// signal has to be delivered first. In the child, all registers are set.
pub fn fork(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<(u64, Flow)> {
    let mut r = match request(nr, a) {
        Ok(r) => r,
        Err(e) => return Some((errno(e), Flow::Next)),
    };
    if nr == __NR_clone3 {
        r.args[0] = r.block.as_ptr() as u64;
    }
    many::matters();
    sequence::attend(t);
    t.sequence_always();
    let _ = sys::set_signal_mask(!0);
    if pass::waiting(t) {
        return None;
    }
    let follow = follows(t);
    let unborn = match follow {
        true => ring::expect_process(),
        false => {
            maps::regions().disown();
            None
        }
    };
    let ret = copy(t, &r);
    match sys::result(ret) {
        Ok(0) => {}
        Ok(pid) => ring::made_process(unborn, pid),
        Err(_) => ring::expected_process(unborn),
    }
    if ret == 0 {
        begin(t, &r, unborn);
        pass::unblock(t);
        return Some((0, Flow::Jump));
    }
    log!(Info, "made a copy of this process: {}", ret as i64);
    pass::unblock(t);
    Some((ret, Flow::Next))
}

/// Whether the children of a thread are recorded.
fn follows(t: &Thread) -> bool {
    let wanted = match config::get().children {
        children::FOLLOW => true,
        children::MATCHING => ring::is_recorded() && exec::matches(&program::loaded()),
        _ => false,
    };
    wanted && !t.task.is_silent
}

/// Makes the call while no other thread changes what the child has to find consistent.
fn copy(t: &Thread, r: &Request) -> u64 {
    let held = sharers::hold(t);
    cache::memory::share();
    // SAFETY: the child has a copy of this stack, and `request` made sure that `r` names no other.
    let mut ret = unsafe { sys::raw(r.nr, r.args) };
    if ret == errno(EAGAIN) && regime::end_copy() {
        // The copy that makes a key frame counted for the limit on processes.
        // SAFETY: as above.
        ret = unsafe { sys::raw(r.nr, r.args) };
    }
    drop(held);
    ret
}

/// What the child does first.
fn begin(t: &mut Thread, r: &Request, unborn: Option<Unborn>) {
    cache::memory::leave();
    threads::alone(t);
    let follow = follows(t);
    t.task.is_silent = !follow;
    log!(
        Info,
        "process {} begins as a copy{}",
        sys::getpid(),
        if follow { "" } else { ", unrecorded" }
    );
    ring::forked(follow);
    commons::forked();
    let emit = Emitter::thread();
    if emit.is_none() {
        fail::die(
            fail::STATUS,
            &line!("too many threads are recorded: no ring is left for a new process"),
        )
    }
    ring::expected_process(unborn);
    if let Err(e) = t.forked(emit.unwrap_or_else(Emitter::silent)) {
        fail::die(
            fail::STATUS,
            &line!("cannot map memory in a new process (error {e})"),
        );
    }
    t.task.borrows = false;
    t.emulated.dispatch = None;
    regime::forked(t);
    maps::regions().tell();
    cache::cache().inherit();
    delivery::forked(t);
    actions::begin_process(t);
    if r.nr == __NR_clone3 && r.flags & clone::CLEAR_SIGHAND != 0 {
        actions::clear_handlers(t);
    }
    let next = t.ctx.rip + 2;
    (t.ctx.gpr[RAX], t.ctx.gpr[RCX]) = (0, next);
    t.ctx.gpr[R11] = t.ctx.rflags & RFLAGS_MASK | 0x202 | t.signals.stepping.flag();
    t.ctx.rip = next;
    if r.sp != 0 {
        t.ctx.gpr[RSP] = r.sp;
    }
    if r.flags & CLONE_SETTLS as u64 != 0 {
        t.ctx.fs_base = r.tls;
    }
    t.sequence_always();
    t.begin();
    if r.flags & CLONE_CHILD_SETTID as u64 != 0 {
        let id = if r.nr == __NR_clone3 {
            r.block[2]
        } else {
            r.args[3]
        };
        regime::changed(t, id, 4);
    }
}

/// Performs `exit_group`, or the `exit` of the last thread.
pub fn exit(t: &mut Thread) -> ! {
    let status = args(t)[0] as i32;
    log!(Info, "the process ends with {status}");
    sys::set_signal_mask(!0);
    cache::cache().give_sets();
    end::finish(t, EndKind::Exit, status as u32 & 0xff, b"");
    sharers::leave(t, || sys::exit_group(status))
}

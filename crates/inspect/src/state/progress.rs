//! Calls in which threads are at an instant. They begin again, so they must not have done anything yet.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::ProcessState;
use super::calls::ERRORS;
use crate::Result;
use hindsight_syscalls::abi::*;
use hindsight_timeline::regs::{RAX, SYSCALL_ARGUMENTS};
use hindsight_timeline::{
    Cursor, Filter, Happening, Kind, KindOf, Position, ThreadId, Timeline, syscall_name,
};

/// Calls that take something away from what others read, too.
const TAKING: [u64; 9] = [
    __NR_read,
    __NR_readv,
    __NR_preadv2,
    __NR_recvfrom,
    __NR_recvmsg,
    __NR_recvmmsg,
    __NR_accept,
    __NR_accept4,
    __NR_futex,
];
/// Other calls that only wait, and calls that may be made twice.
const WAITING: [u64; 18] = [
    __NR_nanosleep,
    __NR_clock_nanosleep,
    __NR_pause,
    __NR_poll,
    __NR_ppoll,
    __NR_select,
    __NR_pselect6,
    __NR_epoll_wait,
    __NR_epoll_pwait,
    __NR_epoll_pwait2,
    __NR_pread64,
    __NR_preadv,
    __NR_wait4,
    __NR_waitid,
    __NR_rt_sigsuspend,
    __NR_fsync,
    __NR_fdatasync,
    __NR_sched_yield,
];

/// A call in which a thread is.
#[derive(Clone, Debug)]
pub struct InCall {
    pub thread: ThreadId,
    pub tid: i32,
    /// The instructions that the thread has completed before the call, and where that is.
    pub count: u64,
    pub position: Position,
    pub number: u64,
    pub args: [u64; 6],
}

impl InCall {
    /// The call in which a thread is that is not the cursor's. The cursor then stands before the call.
    pub fn of(
        cursor: &mut Cursor,
        (thread, tid): (ThreadId, i32),
        here: Position,
    ) -> Result<Option<InCall>> {
        let timeline = cursor.timeline().clone();
        let done = timeline.count_at(thread, here)?;
        let Some(count) = timeline
            .returned_at(thread, here)?
            .filter(|n| Some(*n) != done)
        else {
            return Ok(None);
        };
        cursor.seek_count(thread, count)?;
        let r = cursor.registers()?;
        Ok(Some(InCall {
            thread,
            tid,
            count,
            position: cursor.position()?,
            number: r.gpr[RAX],
            args: SYSCALL_ARGUMENTS.map(|n| r.gpr[n]),
        }))
    }

    /// Whether it only waits, as far as its arguments say.
    fn only_waits(&self) -> bool {
        match self.number {
            __NR_futex => is_wait(&self.args),
            n => TAKING.contains(&n) || WAITING.contains(&n),
        }
    }
}

/// Whether a `futex` call waits and does nothing else.
fn is_wait(args: &[u64; 6]) -> bool {
    const OPERATION: u64 = 0x7f;
    [FUTEX_WAIT as u64, FUTEX_WAIT_BITSET as u64].contains(&(args[1] & OPERATION))
}

/// Says which of these calls cannot begin again. The cursor stands at the instant.
pub fn check(cursor: &mut Cursor, calls: &[InCall], state: &mut ProcessState) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let timeline = cursor.timeline().clone();
    let here = cursor.position()?;
    let all = timeline.events(&Filter {
        image: Some(cursor.image()),
        kinds: vec![KindOf::Syscall],
        syscalls: TAKING.into_iter().chain(WAITING).collect(),
        ..Filter::default()
    })?;
    for call in calls {
        let why = match call.only_waits() {
            false => Some("may be half done"),
            true => why_not(&timeline, cursor, (call, here), &all, state)?,
        };
        if let Some(why) = why {
            state.refused.push(format!(
                "thread {} is in `{}`, which {why}, so it cannot begin again; take another place",
                call.tid,
                syscall_name(call.number)
            ));
        }
    }
    Ok(())
}

/// Why a call that waits cannot begin again, although it had not returned.
fn why_not(
    timeline: &Timeline,
    cursor: &mut Cursor,
    (call, here): (&InCall, Position),
    all: &[Happening],
    state: &ProcessState,
) -> Result<Option<&'static str>> {
    /// A signal interrupted it: the program sees the first of these, the kernel the others.
    const INTERRUPTED: [i64; 6] = [-4, -512, -513, -514, -515, -516];
    let own = all
        .iter()
        .find(|h| (h.thread, h.count) == (call.thread, call.count));
    let result = own.and_then(outcome);
    if result.is_some_and(|r| INTERRUPTED.contains(&(r as i64))) {
        return Ok(Some("a signal interrupted that may have been sent before"));
    }
    if !TAKING.contains(&call.number) || result.is_none_or(|r| r >= ERRORS) {
        return Ok(None);
    }
    // What others have done while the call was in progress.
    let mut meanwhile = Vec::new();
    for h in all
        .iter()
        .filter(|h| h.thread != call.thread && h.position < here)
    {
        let returned = timeline.position(h.thread, h.count + 1)?;
        if returned > call.position && outcome(h).is_some_and(|r| r < ERRORS) {
            meanwhile.push((h, returned <= here));
        }
    }
    if call.number == __NR_futex {
        return Ok(
            may_be_woken(cursor, call, &meanwhile)?.then_some("another thread may have ended")
        );
    }
    let open = |fd: u64| {
        let of = state.descriptors.iter().find(|d| d.0 as u64 == fd);
        of.map(|d| d.1)
    };
    let takes = |h: &Happening| {
        let others = TAKING.iter().filter(|n| **n != __NR_futex);
        let mut others = others.filter_map(|n| arguments(h, *n));
        others.any(|a| a[0] == call.args[0] || open(a[0]) == open(call.args[0]))
    };
    let taken = meanwhile.iter().any(|(h, _)| takes(h));
    Ok(taken.then_some("may have got what comes before that which another thread has read since"))
}

/// Whether others may have woken the thread that waits in this call. They have also done `meanwhile` and it has returned, or not. A
/// thread that finds its word as it was would wait again. Of those that were woken, some wait no more.
fn may_be_woken(
    cursor: &mut Cursor,
    call: &InCall,
    meanwhile: &[(&Happening, bool)],
) -> Result<bool> {
    let word = cursor.known_memory(call.args[0], 4)?.whole();
    if word.is_some_and(|w| w != (call.args[2] as u32).to_le_bytes()) {
        return Ok(false);
    }
    let (mut woken, mut gone) = (0u64, 0u64);
    for (h, returned) in meanwhile {
        let Some(a) = arguments(h, __NR_futex).filter(|a| a[0] == call.args[0]) else {
            continue;
        };
        match is_wait(&a) {
            false => woken = woken.saturating_add(outcome(h).unwrap_or(0)),
            // It has waited only while this one did, so who woke it is among those above.
            true if *returned && h.position > call.position => gone += 1,
            true => {}
        }
    }
    Ok(woken > gone)
}

/// What a call returned.
fn outcome(h: &Happening) -> Option<u64> {
    match h.kind {
        Kind::Syscall { result, .. } => result,
        _ => None,
    }
}

/// The arguments of a call, if it is this one.
fn arguments(h: &Happening, number: u64) -> Option<[u64; 6]> {
    match h.kind {
        Kind::Syscall {
            number: n, args, ..
        } if n == number => Some(args),
        _ => None,
    }
}

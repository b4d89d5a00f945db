//! Setting a mark in a recording from outside (see [`hindsight_events::asked`]): asking for it, and taking a thread out of the
//! system call in which it waits.

use crate::detach;
use crate::error::{MarkError, ReachError, Result};
use crate::recorder_binary;
use crate::shared::Shared;
use hindsight_collector::Control;
use hindsight_events::asked::{Asked, stage};
use hindsight_isa::mark::NAME_MAX;
use hindsight_remote::{Restart, Status, Stop, Thread};
use std::fs;
use std::io;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Time between two looks at what has become of a question.
const LOOK: Duration = Duration::from_millis(5);

/// Longest time without an answer. The process that records answers much earlier, unless a large state point takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that waits for good stops within much less.
const STOP: Duration = Duration::from_millis(200);

/// A mark that was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marked {
    /// The number of its thread in the recording.
    pub thread: u32,
    /// The number that the kernel gave that thread.
    pub tid: i32,
    /// How many instructions the thread had completed there.
    pub instructions: u64,
}

/// Sets a mark in the recording to which a process belongs, where one of its threads is. `pid` is a recorded process or thread, or
/// a process that records: then its program gets the mark. With `state`, all memory is recorded there.
///
/// Returns when the mark is in the recording.
///
/// # Errors
/// The process is not recorded, or cannot be reached; no state point can be made of it, or none where it waits. Then the text
/// says whether the mark is set.
pub fn mark(pid: i32, name: &[u8], state: bool) -> Result<Marked> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(MarkError::Name(name.len()).into());
    }
    let shared = Shared::of(pid)?;
    let header = shared.header();
    let recorder = header.collector_pid.load(Relaxed);
    let records = pid == recorder || Status::of_process(recorder).is_ok_and(|s| s.parent == pid);
    let asked = Question::take(&header.asked)?;
    asked.0.ask(if records { 0 } else { pid }, name, state);
    let since = Instant::now();
    loop {
        std::thread::sleep(LOOK);
        match asked.0.stage() {
            stage::DONE => {
                return Ok(Marked {
                    thread: asked.0.thread.load(Relaxed),
                    tid: asked.0.tid.load(Relaxed),
                    instructions: asked.0.where_set().unwrap_or_default(),
                });
            }
            stage::REFUSED => {
                let why = String::from_utf8_lossy(&asked.0.why.read()).into_owned();
                return Err(MarkError::Refused { pid, why }.into());
            }
            _ if !is_there(recorder) => return Err(ReachError::RecorderGone(recorder).into()),
            _ if since.elapsed() > PATIENCE => return Err(MarkError::Silent(recorder).into()),
            _ => {}
        }
    }
}

/// The box, which is given back in the end.
struct Question<'q>(&'q Asked);

impl Question<'_> {
    fn take(asked: &Asked) -> Result<Question<'_>> {
        let own = std::process::id() as i32;
        let former = asked.asker();
        // Who has it may have been killed.
        if former != 0 && former != own && is_there(former) || !asked.take(own, former) {
            return Err(MarkError::Busy(former).into());
        }
        Ok(Question(asked))
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

fn is_there(pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

/// Takes a thread out of its system call, if the collector wants that.
pub(crate) fn serve(control: &Control) {
    let asked = &control.header().asked;
    if asked.stage() != stage::TAKE_OUT {
        return;
    }
    let tid = asked.tid.load(Relaxed);
    let its = control.producers().into_iter();
    let pid = its.filter(|p| p.tid == tid).map(|p| p.pid).next();
    // A program can write any number there.
    if let Some(pid) = pid.filter(|pid| detach::is_ours(control, *pid)) {
        // If it does not succeed, the collector tries again, and says so in the end.
        let _ = take_out(pid, tid);
    }
    asked.turn(stage::ASKED);
}

/// Has a thread make its system call anew, if it waits in one of which the program cannot see that. Before that it comes to
/// the recorder.
fn take_out(pid: i32, tid: i32) -> Result<()> {
    if !waits_for_good(pid, tid) {
        return Ok(());
    }
    let [call, cancel] =
        recorder_binary::symbols(["hindsight_stub_syscall", "hindsight_stub_cancel"])?;
    let thread = Thread::seize(pid, tid)?;
    thread.interrupt();
    let since = Instant::now();
    loop {
        match thread.poll() {
            Stop::Interrupted | Stop::Halted => break,
            Stop::Signal(s) => thread.go_on(s),
            Stop::Call => thread.go_on(0),
            Stop::Gone => return Ok(()),
            // As long as it is traced, it stops at the next opportunity. So it is not left alone here.
            Stop::Running if since.elapsed() > STOP => std::thread::sleep(LOOK),
            Stop::Running => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    let moved = cancel_call(&thread, pid, (call + 2, cancel));
    thread.release();
    Ok(moved?)
}

/// The thread is stopped. Has it go on as if it had not begun the call in which it was, if it would begin it anew.
fn cancel_call(thread: &Thread, pid: i32, (behind, cancel): (u64, u64)) -> io::Result<()> {
    let mut r = thread.regs()?;
    let again = matches!(Restart::of(&r), Restart::Same(_) | Restart::Block(_));
    // A signal that is due decides by itself how the call ends.
    if r.rip == behind && again && Status::of_thread(pid, thread.tid())?.deliverable() == 0 {
        (r.rip, r.orig_rax) = (cancel, u64::MAX);
        thread.set_regs(&r)?;
    }
    Ok(())
}

/// Whether a thread waits in a system call that has no limit of time and has done nothing so far. So it is the same if it is
/// made anew.
fn waits_for_good(pid: i32, tid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    let mut words = text.split_whitespace();
    let nr = words.next().and_then(|w| w.parse().ok());
    let mut a = [0; 6];
    for to in &mut a {
        let word = words.next().and_then(|w| w.strip_prefix("0x"));
        let Some(value) = word.and_then(|w| u64::from_str_radix(w, 16).ok()) else {
            return false;
        };
        *to = value;
    }
    nr.is_some_and(|nr| is_endless(nr, &a))
}

/// See [`waits_for_good`].
fn is_endless(nr: i64, a: &[u64; 6]) -> bool {
    /// `FUTEX_WAIT`, and `FUTEX_WAIT_BITSET`, whose time is an instant.
    const WAIT: u64 = libc::FUTEX_WAIT as u64;
    const WAIT_UNTIL: u64 = libc::FUTEX_WAIT_BITSET as u64;
    match nr {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_flock
        | libc::SYS_pause => true,
        libc::SYS_recvfrom => a[3] & libc::MSG_WAITALL as u64 == 0,
        libc::SYS_recvmsg => a[2] & libc::MSG_WAITALL as u64 == 0,
        libc::SYS_poll => (a[2] as i32) < 0,
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (a[3] as i32) < 0,
        libc::SYS_epoll_pwait2 => a[3] == 0,
        libc::SYS_select | libc::SYS_pselect6 => a[4] == 0,
        libc::SYS_ppoll => a[2] == 0,
        libc::SYS_clock_nanosleep => a[1] & libc::TIMER_ABSTIME as u64 != 0,
        libc::SYS_futex => match a[1] & libc::FUTEX_CMD_MASK as u64 {
            WAIT => a[3] == 0,
            WAIT_UNTIL => true,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_without_a_limit_of_time_are_made_anew() {
        let with = |i: usize, value: i64| {
            let mut a = [1; 6];
            a[i] = value as u64;
            a
        };
        let private = libc::FUTEX_PRIVATE_FLAG as i64;
        for (nr, a) in [
            (libc::SYS_read, [0; 6]),
            (libc::SYS_poll, with(2, -1)),
            (libc::SYS_epoll_wait, with(3, 0xffff_ffff)),
            (libc::SYS_select, with(4, 0)),
            (libc::SYS_futex, [1, private as u64, 2, 0, 0, 0]),
            (libc::SYS_futex, with(1, 9 | private | 256)),
            (libc::SYS_clock_nanosleep, with(1, 1)),
        ] {
            assert!(is_endless(nr, &a), "{nr} {a:?}");
        }
        for (nr, a) in [
            (libc::SYS_write, [0; 6]),
            (libc::SYS_nanosleep, [0; 6]),
            (libc::SYS_poll, with(2, 1000)),
            (libc::SYS_epoll_wait, with(3, 5)),
            (libc::SYS_select, with(4, 0x1000)),
            (libc::SYS_futex, [1, private as u64, 2, 0x1000, 0, 0]),
            (libc::SYS_futex, with(1, 1)),
            (libc::SYS_clock_nanosleep, with(1, 0)),
            (libc::SYS_recvfrom, with(3, libc::MSG_WAITALL as i64)),
            (-1, [0; 6]),
        ] {
            assert!(!is_endless(nr, &a), "{nr} {a:?}");
        }
    }
}

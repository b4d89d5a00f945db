//! Stops the program where the recorded one failed (`--until-failure-point`).
//!
//! What is certain is the last call that the recorded program made before it failed. The program stops when it has made that one.
//! From there on the recording says nothing of what corresponds to what.

use super::threads::State;
use super::{Done, Error, Rerun};
use crate::plan::failure::last_before;
use crate::report::{Divergence, Side};
use crate::wire::End;
use hindsight_remote::Thread;
use libc::SIGSTOP;

/// A program that stands where the recorded one failed. Nobody traces it any more, and it goes on when it gets SIGCONT. Its
/// system calls fail then.
#[derive(Debug)]
pub struct Stopped {
    /// Its process.
    pub pid: i32,
    /// The recorded call behind which it stands.
    pub behind: Side,
    /// Where the recorded program failed, if that was by a signal.
    pub failed_at: Option<String>,
    /// How many calls matched.
    pub matched: u64,
    /// The first call before that did not match.
    pub divergence: Option<Divergence>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

impl Stopped {
    /// Ends the process.
    pub fn kill(&self) {
        Thread::of_child(self.pid).kill();
    }
}

/// The call behind which the program is to stop.
#[derive(Clone, Copy)]
pub struct Point {
    pid: i32,
    slot: usize,
    /// The thread that has come there, and stops.
    reached: Option<Thread>,
}

impl Rerun<'_> {
    /// Fails if the program is to stop where the recorded one failed, and that one did not.
    pub fn check_failure(&self) -> Result<(), Error> {
        let end = self.recorded_last().map_or(End::Unknown, |i| i.end);
        match end {
            End::Signal(_) => Ok(()),
            End::Status(n) if n != 0 => Ok(()),
            _ => Err(Error::Limit(format!(
                "the recorded program did not fail ({end}), so there is no failure to go to"
            ))),
        }
    }

    /// A call agrees with a recorded one. If that is the last one before the failure, the program stops behind it.
    pub fn comes_to(&mut self, pid: i32, slot: usize) -> Done {
        if !self.options.until_failure {
            return Ok(());
        }
        if self.point.is_none() {
            self.point = self.find_point(pid)?;
        }
        let thread = self.process(pid).task.thread;
        if let Some(p) = &mut self.point
            && (p.pid, p.slot) == (pid, slot)
        {
            p.reached = Some(thread);
            thread.queue(SIGSTOP);
        }
        Ok(())
    }

    /// Whether this is the thread that has come to the point, which stops by a signal. Others of the process may have been stopped
    /// for another reason.
    pub fn is_at_point(&self, thread: Thread) -> bool {
        self.point.is_some_and(|p| p.reached == Some(thread))
    }

    /// The call behind which a process is to stop, if it is the one that failed.
    fn find_point(&mut self, pid: i32) -> Done<Option<Point>> {
        let Some(failed) = self.recorded_last() else {
            return Ok(None);
        };
        let (number, end) = (failed.number, failed.end);
        let lane = match failed.ended_by {
            t if t == failed.thread => 0,
            t => t,
        };
        if self.process(pid).image.number != number {
            return Ok(None);
        }
        while !self.process(pid).script.is_loaded() {
            self.load(pid)?;
        }
        match last_before(&self.process(pid).script, lane, end) {
            Some(slot) => Ok(Some(Point {
                pid,
                slot,
                reached: None,
            })),
            None => {
                let why = "the thread that failed made no call before that";
                Err(Error::Limit(why.into()).into())
            }
        }
    }

    /// The process is left alone where it stands. All others are ended.
    pub fn leave_at_point(mut self, pid: i32) -> Result<Stopped, Error> {
        for (other, p) in &self.processes {
            if *other != pid {
                p.task.thread.kill();
            }
        }
        for tid in &self.early {
            Thread::of_child(*tid).kill();
        }
        let stopped = self.tell_point(pid).and_then(|s| {
            self.release(pid)?;
            Ok(s)
        });
        if stopped.is_err() {
            Thread::of_child(pid).kill();
        }
        stopped
    }

    fn tell_point(&mut self, pid: i32) -> Result<Stopped, Error> {
        let slot = self.point.map_or(0, |p| p.slot);
        let behind = self.recorded(pid, slot)?;
        let failed = self.recorded_last().map(|i| (i.end, i.ended_by));
        let failed_at = match failed {
            Some((end, thread)) => self.failed_at(end, Some(thread))?,
            None => None,
        };
        Ok(Stopped {
            pid,
            behind,
            failed_at,
            matched: self.tally.matched,
            divergence: self.tally.divergence.take(),
            notes: std::mem::take(&mut self.tally.notes),
        })
    }

    /// Traces the process no more. It executes nothing before it stops: each thread has a signal for that.
    fn release(&mut self, pid: i32) -> Result<(), Error> {
        let p = self.process(pid);
        let others: Vec<Thread> = (p.others.iter())
            .filter(|t| t.state != State::Gone)
            .map(|t| t.thread)
            .collect();
        for t in &others {
            if !t.stands() {
                let why = "another thread of the program is in a system call, so it cannot be left where it stands";
                return Err(Error::Limit(why.into()));
            }
            // A call that it is about to make would be made for real. It makes it anew, when it is let go.
            let mut r = t.regs()?;
            if r.orig_rax as i64 >= 0 {
                (r.rax, r.orig_rax) = (r.orig_rax, u64::MAX);
                r.rip = r.rip.wrapping_sub(2);
                t.set_regs(&r)?;
            }
        }
        let all = [p.task.thread].into_iter().chain(others);
        let all: Vec<Thread> = all.collect();
        all.iter().for_each(|t| t.queue(SIGSTOP));
        all.iter().for_each(Thread::release);
        Ok(())
    }
}

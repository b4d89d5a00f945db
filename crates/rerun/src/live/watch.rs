//! Waits for processes, and notices those that do not go on. What counts is processor time and sleep, not the time on the
//! wall: on a busy machine all takes longer, and the answer is the same.

use super::{Done, Finish, Rerun, Trouble};
use hindsight_remote::{Halt, next_halt_within};
use std::time::Duration;

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// So many looks in a row a process sleeps where nothing more is expected of it.
const SLEEP: u32 = 40;
/// The same where all processes sleep, in the middle of the run.
const STUCK: u32 = 200;
/// Processor time that a process may use without a call where nothing more is expected of it, in ticks of 10 ms.
const COMPUTES: u64 = 200;
/// It may use one more for so many instructions of the recorded program there. Each machine does many more in that time.
const PER_TICK: u64 = 5_000_000;

/// How long a process has made no call.
#[derive(Clone, Copy, Default, Debug)]
pub struct Quiet {
    /// Processor time that it had used when it was looked at first.
    since: Option<u64>,
    /// Processor time that it has used since.
    computed: u64,
    /// How often it slept when it was looked at, in a row.
    slept: u32,
}

impl Quiet {
    /// It was looked at.
    fn look(&mut self, sleeps: bool, ticks: u64) {
        let since = *self.since.get_or_insert(ticks);
        self.computed = ticks.saturating_sub(since);
        self.slept = match sleeps {
            true => self.slept.saturating_add(1),
            false => 0,
        };
    }

    /// Whether it has computed for long, if the recorded program made so many instructions there.
    pub fn is_long(&self, recorded: u64) -> bool {
        self.computed >= COMPUTES.saturating_add(recorded / PER_TICK)
    }

    /// Whether it goes on no more, if the recorded program made so many instructions there.
    fn is_over(&self, recorded: u64) -> bool {
        self.slept >= SLEEP || self.is_long(recorded)
    }
}

impl Rerun<'_> {
    /// Waits for something to happen. `None`: processes were looked at in the meantime.
    pub fn next(&mut self) -> Done<Option<(i32, Halt)>> {
        if let Some(halt) = next_halt_within(LOOK)? {
            return Ok(Some(halt));
        }
        for p in self.processes.values_mut() {
            if let Some((sleeps, ticks)) = p.task.thread.activity() {
                p.quiet.look(sleeps, ticks);
            }
        }
        self.send_overdue();
        self.interrupt_long();
        if self.ended.is_some() {
            self.end_quiet();
        } else if self.processes.values().all(|p| p.quiet.slept >= STUCK) {
            let why = "all its processes wait for something that does not come";
            return Err(Trouble::Finish(Finish::TooFar(why.into())));
        }
        Ok(None)
    }

    /// Sends the signals that ended the recorded processes to those that have made no call since.
    fn send_overdue(&mut self) {
        let mut notes = Vec::new();
        for p in self.processes.values_mut() {
            let Some((n, _)) = p.overdue.filter(|o| p.quiet.is_over(o.1)) else {
                continue;
            };
            p.overdue = None;
            p.task.expected.push(n);
            p.task.thread.queue(n);
            notes.push(format!(
                "process {} made no more calls, like the recorded one: it got the signal that ended that one ({})",
                p.pid,
                crate::signal_name(n)
            ));
        }
        notes.into_iter().for_each(|n| self.note(n));
    }

    /// Ends processes that are left behind and do not go on. The first one has ended.
    fn end_quiet(&mut self) {
        let over = |p: &&super::Process| p.quiet.is_over(0) && p.overdue.is_none();
        let list: Vec<i32> = (self.processes.iter().filter(|(_, p)| over(p)))
            .map(|(pid, _)| *pid)
            .collect();
        list.into_iter()
            .for_each(|pid| self.end_left(pid, "it made no more calls"));
    }

    /// Ends a process that is left behind.
    pub fn end_left(&mut self, pid: i32, why: &str) {
        let Some(p) = self.processes.get(&pid) else {
            return;
        };
        p.task.thread.kill();
        let seen = p.pid;
        if !self.left.insert(pid) {
            return;
        }
        self.tally.killed += 1;
        self.note(format!(
            "process {seen} still ran when the program was over, and was ended: {why}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_and_sleep_count_and_waiting_for_the_processor_does_not() {
        let mut q = Quiet::default();
        // It waits for a processor, for as long as that takes.
        (0..10_000).for_each(|_| q.look(false, 500));
        assert!(!q.is_over(0));
        q.look(false, 500 + COMPUTES);
        assert!(q.is_over(0));
        // The recorded program computed for long, too.
        assert!(!q.is_over(PER_TICK * 5));
        let mut q = Quiet::default();
        (0..SLEEP - 1).for_each(|_| q.look(true, 1));
        q.look(false, 1);
        assert!(!q.is_over(0));
        (0..SLEEP).for_each(|_| q.look(true, 1));
        assert!(q.is_over(0));
    }
}

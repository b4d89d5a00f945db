//! Signals that ask for a program's end, and that it does not take.
//!
//! A program that has a handler decides for itself how long its end takes. One that ignores such a signal, has it blocked, or
//! whose recorder does not come to deliver it does not react at all.

use crate::sys::process;
use hindsight_events::ring::{Header, ending};
use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What becomes of such a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Taken,
    Waits,
    /// The program could have had it for long.
    Overdue,
}

/// Processor time in which a recorder that is in order comes to deliver a signal.
const WORK: Duration = Duration::from_millis(200);

/// Time in which a program notices a signal.
pub const OVERDUE: Duration = Duration::from_millis(1250);

/// A signal that the program was sent.
pub struct Sent {
    program: i32,
    signal: i32,
    when: Instant,
    /// Looks in a row that did not find it waiting. One may come between the kernel, which does not have it any more, and
    /// the recorder, which does not have it yet.
    missed: u32,
    /// The program ignored it already then. A handler that has taken it may have it ignored later.
    ignored: bool,
    /// The program's processor time until then.
    before: Duration,
}

impl Sent {
    /// Which signal it is.
    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// It has just been sent.
    pub fn new(program: i32, signal: i32) -> Sent {
        Sent {
            program,
            signal,
            when: Instant::now(),
            missed: 0,
            ignored: status(program).is_some_and(|s| has(&s, "SigIgn:", signal)),
            before: cpu(program).unwrap_or_default(),
        }
    }

    /// Looks what has become of it; to be called a few times a second.
    pub fn look(&mut self, header: &Header) -> Fate {
        let (waits, ready) = self.state(header);
        self.missed = if waits { 0 } else { self.missed + 1 };
        if self.missed > 1 {
            Fate::Taken
        } else if waits && ready && self.when.elapsed() > OVERDUE {
            Fate::Overdue
        } else {
            Fate::Waits
        }
    }

    /// Whether the program has not had it, and whether it could.
    fn state(&self, header: &Header) -> (bool, bool) {
        const TAKEN: (bool, bool) = (false, true);
        // HUP is ignored by those who are to live on.
        if !matches!(self.signal, libc::SIGINT | libc::SIGTERM) {
            return TAKEN;
        }
        let Some(status) = status(self.program) else {
            return TAKEN;
        };
        // Whoever is stopped, or is dead already, takes nothing.
        let able = field(&status, "State:").is_some_and(|s| !s.starts_with(['T', 't', 'Z', 'X']));
        let has = |name: &str| has(&status, name, self.signal);
        let held = ending(self.signal).is_some_and(|b| header.untaken.load(Relaxed) & b != 0);
        let ignored = self.ignored && has("SigIgn:");
        let waits = ignored || has("ShdPnd:") || has("SigPnd:") || held;
        (waits, waits && able && (ignored || self.had_time()))
    }

    /// Whether the program got processors since then, or wants none.
    fn had_time(&self) -> bool {
        let used = cpu(self.program).unwrap_or_default();
        used.saturating_sub(self.before) > WORK || process::threads_in(self.program, b'R') == 0
    }
}

/// What the kernel says of a process.
fn status(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    let mut lines = status.lines();
    lines.find_map(|l| l.strip_prefix(name)).map(str::trim)
}

/// Whether a set of signals has one.
fn has(status: &str, set: &str, signal: i32) -> bool {
    let set = field(status, set).and_then(|s| u64::from_str_radix(s, 16).ok());
    set.is_some_and(|s| s >> (signal - 1) & 1 != 0)
}

/// Processor time of all threads of a process.
fn cpu(pid: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields behind the name, which may hold anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // The kernel says times in hundredths of a second to all programs.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found() {
        let before = cpu(process::own_id()).unwrap();
        while process::own_cpu() < before + Duration::from_millis(60) {}
        let now = cpu(process::own_id()).unwrap();
        assert!(now > before, "{now:?}");
        // In whole ticks, and what was used meanwhile.
        assert!(
            now <= process::own_cpu() + Duration::from_millis(20),
            "{now:?}"
        );
    }
}

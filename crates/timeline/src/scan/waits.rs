//! What a process learned about the ends of its children.

use super::{Raw, Scan};

const WAIT4: u64 = 61;
const WAITID: u64 = 247;
/// Offsets in the `siginfo_t` of a child: what happened, its process id, and the signal or exit status.
const CODE: usize = 8;
const PID: usize = 16;
const STATUS: usize = 24;
const CLD_KILLED: u32 = 2;
const CLD_DUMPED: u32 = 3;

/// What the kernel wrote.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    /// A status, in the form of `wait4`.
    Status(u32),
    /// Code, process id and status.
    Info(u32, u32, u32),
}

/// A wait that found a child that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waited {
    /// The number of instructions completed before the system call.
    pub count: u64,
    pub pid: i32,
    /// The signal that killed it. `None`: it ended by itself.
    pub signal: Option<u32>,
}

impl Scan {
    /// Takes note of memory that is given, if it is what a wait tells of a child. That is the present system call, or
    /// the one that has just ended.
    pub(super) fn report(&mut self, pos: u64, addr: u64, bytes: &[u8]) {
        let Some((p, Raw::Syscall { number, args, .. })) = self.events.last() else {
            return;
        };
        let word = |at: usize| {
            let word = bytes.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*word))
        };
        let report = match *number {
            _ if *p != pos && p + 1 != pos => None,
            WAIT4 if addr == args[1] => word(0).map(Report::Status),
            WAITID if addr == args[2] => match (word(CODE), word(PID), word(STATUS)) {
                (Some(code), Some(pid), Some(status)) => Some(Report::Info(code, pid, status)),
                _ => None,
            },
            _ => None,
        };
        if let Some(r) = report {
            self.reports.push((self.events.len() - 1, r));
        }
    }

    /// The waits that found children that have ended.
    pub fn waited(&self) -> impl Iterator<Item = Waited> + '_ {
        self.reports.iter().filter_map(|(event, report)| {
            let (count, Raw::Syscall { result, .. }) = self.events[*event] else {
                return None;
            };
            let result = result? as i64;
            let (pid, signal) = match *report {
                // A child that was stopped, or goes on, has not ended.
                Report::Status(s) if result > 0 => match s & 0x7f {
                    0 => (result as i32, None),
                    0x7f => return None,
                    n => (result as i32, Some(n)),
                },
                Report::Info(code, pid, status) if result == 0 => match code {
                    1 => (pid as i32, None),
                    CLD_KILLED | CLD_DUMPED => (pid as i32, Some(status)),
                    _ => return None,
                },
                _ => return None,
            };
            Some(Waited { count, pid, signal })
        })
    }
}

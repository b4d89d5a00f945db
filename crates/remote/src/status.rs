//! What `/proc` says about a process or a thread.

use std::fs;
use std::io;

/// The fields of `/proc/PID/status` that matter here.
#[derive(Clone, Default, Debug)]
pub struct Status {
    pub name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X` or `I`.
    pub state: char,
    /// The process that traces it; 0 if there is none.
    pub tracer: i32,
    /// The process to which the thread belongs.
    pub process: i32,
    pub parent: i32,
    /// The real user id.
    pub user: u32,
    /// 0: its system calls are not filtered.
    pub seccomp: u32,
    /// Number of ids: one in this namespace, and one in each namespace below it.
    pub namespaces: usize,
    pub no_memory: bool,
    /// Peak resident memory, in KiB.
    pub peak_kib: u64,
    /// Signals that are pending for the thread or the process.
    pub pending: u64,
    pub blocked: u64,
    pub ignored: u64,
    pub caught: u64,
    /// Features like control-flow enforcement, for example `shstk`.
    pub features: String,
}

impl Status {
    /// The status of a process.
    pub fn of_process(pid: i32) -> io::Result<Status> {
        Ok(parse(&fs::read(format!("/proc/{pid}/status"))?))
    }

    /// The status of a thread.
    pub fn of_thread(pid: i32, tid: i32) -> io::Result<Status> {
        Ok(parse(&fs::read(format!("/proc/{pid}/task/{tid}/status"))?))
    }

    /// Whether it has ended and only waits for its parent.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Signals for which a handler is about to run.
    pub fn deliverable(&self) -> u64 {
        self.pending & self.caught & !self.blocked & !self.ignored
    }
}

fn parse(text: &[u8]) -> Status {
    let text = String::from_utf8_lossy(text);
    let mut s = Status {
        no_memory: true,
        ..Status::default()
    };
    for (key, value) in text.lines().filter_map(|l| l.split_once(':')) {
        let value = value.trim();
        let first = value.split_whitespace().next().unwrap_or("");
        let set = || u64::from_str_radix(first, 16).unwrap_or(0);
        match key {
            "Name" => s.name = value.into(),
            "State" => s.state = first.chars().next().unwrap_or('X'),
            "TracerPid" => s.tracer = first.parse().unwrap_or(0),
            "Tgid" => s.process = first.parse().unwrap_or(0),
            "PPid" => s.parent = first.parse().unwrap_or(0),
            "Uid" => s.user = first.parse().unwrap_or(0),
            "Seccomp" => s.seccomp = first.parse().unwrap_or(0),
            "NSpid" => s.namespaces = value.split_whitespace().count(),
            "VmSize" => s.no_memory = false,
            "VmHWM" => s.peak_kib = first.parse().unwrap_or(0),
            "SigPnd" | "ShdPnd" => s.pending |= set(),
            "SigBlk" => s.blocked = set(),
            "SigIgn" => s.ignored = set(),
            "SigCgt" => s.caught = set(),
            "x86_Thread_features" => s.features = value.into(),
            _ => {}
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_status_is_read() {
        let s = Status::of_process(std::process::id() as i32).unwrap();
        assert!(!s.no_memory && !s.has_ended() && s.namespaces >= 1);
        assert!(!s.name.is_empty());
    }

    #[test]
    fn fields_are_found() {
        let s = parse(b"Name:\ta b\nState:\tZ (zombie)\nTracerPid:\t7\nUid:\t1\t2\t3\t4\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000000204\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000206\n");
        assert_eq!((s.name.as_str(), s.tracer, s.user), ("a b", 7, 1));
        assert!(s.has_ended() && s.no_memory);
        assert_eq!(s.deliverable(), 0x202);
    }
}

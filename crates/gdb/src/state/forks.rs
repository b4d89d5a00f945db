//! Processes that a process makes, and which of it the client wants to be told.

use hindsight_timeline::ThreadId;

/// System calls that make processes: clone, fork, vfork, clone3.
pub const FORKS: [u64; 4] = [CLONE, FORK, VFORK, CLONE3];
pub const CLONE: u64 = 56;
pub const FORK: u64 = 57;
pub const VFORK: u64 = 58;
pub const CLONE3: u64 = 435;
pub const CLONE_VFORK: u64 = 0x4000;
pub const CLONE_THREAD: u64 = 0x1_0000;

/// What the client wants to be told of.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wanted {
    pub forks: bool,
    pub vforks: bool,
    pub execs: bool,
    /// It tells processes apart, in the names of threads.
    pub processes: bool,
}

impl Wanted {
    /// As the client says in `qSupported`.
    pub fn of(packet: &[u8]) -> Wanted {
        let says = |feature: &[u8]| packet.windows(feature.len()).any(|w| w == feature);
        Wanted {
            processes: says(b"multiprocess+"),
            forks: says(b";fork-events+"),
            vforks: says(b";vfork-events+"),
            execs: says(b";exec-events+"),
        }
    }
}

/// A process that a thread makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    pub thread: ThreadId,
    /// Instructions that it has completed when gdb is told: when the call is over, or begins if it waits for the new
    /// process.
    pub count: u64,
    /// What the client calls the new process, and the one that makes it.
    pub pid: u64,
    pub by: u64,
    pub vfork: bool,
    /// The new process's first thread, if it was recorded.
    pub child: Option<ThreadId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_told_apart() {
        let w = Wanted::of(b"$qSupported:multiprocess+;vfork-events+;exec-events+#00");
        assert!(!w.forks && w.vforks && w.execs && w.processes);
        let w = Wanted::of(b"$qSupported:swbreak+;fork-events+#00");
        assert!(w.forks && !w.vforks && !w.execs && !w.processes);
    }
}

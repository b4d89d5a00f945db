//! Takes locks of atomic operations from threads that cannot give them back.

use crate::{Control, alive};
use hindsight_trace::Taken;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// A thread that holds a lock for this long without running counts as stopped.
const STOPPED: Duration = Duration::from_millis(20);

/// The same for threads of which it is not known whether they run.
const UNKNOWN: Duration = Duration::from_secs(2);

/// A lock may have the same owner at each look for this long, while the owner runs and does other
/// things. Then the owner does not have it at all: the program has overwritten the lock.
const IMPOSSIBLE: Duration = Duration::from_secs(5);

/// Longest time between such looks.
const GAP: Duration = Duration::from_millis(500);

/// A lock for which others wait.
#[derive(Clone, Copy)]
struct Held {
    /// Number of the owner's ring, plus 1.
    owner: u32,
    /// Head of the owner's ring.
    head: u64,
    /// Since when the head is there.
    since: Instant,
    /// The first look at which it had this owner.
    first: Instant,
    /// The last such look.
    last: Instant,
}

/// Locks for which others wait.
#[derive(Default)]
pub struct Locks {
    complaints: u32,
    held: HashMap<usize, Held>,
    /// Locks that were taken from threads which may go on.
    taken: HashSet<usize>,
}

impl Locks {
    /// Takes all locks from the thread of ring `i`, which is gone.
    pub fn release(control: &Control, i: usize) {
        for s in control.stripes() {
            let _ = s.owner.compare_exchange(i as u32 + 1, 0, AcqRel, Relaxed);
        }
    }

    /// If a recorder waits for a lock, looks whether each lock's owner can give it back, and takes
    /// the lock if not. Returns the locks that were taken for the first time from somebody who may
    /// go on.
    pub fn look(&mut self, control: &Control) -> Vec<Taken> {
        let mut taken = Vec::new();
        let header = control.header();
        let complaints = header.stuck.load(Acquire);
        if complaints == self.complaints {
            return taken;
        }
        self.complaints = complaints;
        let now = Instant::now();
        for (i, s) in control.stripes().iter().enumerate() {
            let owner = s.owner.load(Acquire);
            if owner == 0 {
                self.held.remove(&i);
                continue;
            }
            if owner as usize > control.rings() {
                // No ring has this number, so the program wrote it.
                control.note_damage();
                let _ = s.owner.compare_exchange(owner, 0, AcqRel, Relaxed);
                continue;
            }
            let ctl = control.ctl(owner as usize - 1);
            let (pid, tid) = (ctl.pid.load(Relaxed), ctl.tid.load(Relaxed));
            let head = ctl.head.load(Relaxed);
            let new = Held {
                owner,
                head,
                since: now,
                first: now,
                last: now,
            };
            let held = self.held.entry(i).or_insert(new);
            if held.owner != owner || now - held.last > GAP {
                *held = new;
            } else if held.head != head {
                (held.head, held.since) = (head, now);
            }
            held.last = now;
            let gone = pid >= 0 && !alive::thread(pid, tid);
            let patience = if pid >= 0 { STOPPED } else { UNKNOWN };
            let stopped = now - held.since >= patience && (pid < 0 || !alive::running(pid, tid))
                || now - held.first >= IMPOSSIBLE;
            // Whoever takes the lock next draws this number or a later one.
            let number = header.sequence.load(Acquire);
            if (gone || stopped) && s.owner.compare_exchange(owner, 0, AcqRel, Relaxed).is_ok() {
                self.held.remove(&i);
                if !gone && self.taken.insert(i) {
                    taken.push(Taken {
                        lock: i as u32,
                        number,
                    });
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_events::ring::state;

    fn held_by(control: &Control, pid: i32) {
        let ctl = control.ctl(7);
        ctl.pid.store(pid, Relaxed);
        ctl.tid.store(pid, Relaxed);
        ctl.state.store(state::LIVE, Release);
        control.stripes()[9].owner.store(8, Release);
    }

    fn owner(control: &Control) -> u32 {
        control.stripes()[9].owner.load(Acquire)
    }

    #[test]
    fn the_running_keep_their_locks_and_others_lose_them() {
        let control = Control::new().unwrap();
        let mut locks = Locks::default();
        // A process that sleeps does not run.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        held_by(&control, child.id() as i32);
        locks.look(&control);
        assert_eq!(owner(&control), 8, "nobody complained");
        control.header().sequence.store(77, Relaxed);
        let mut lose = || {
            let begin = Instant::now();
            let mut taken = Vec::new();
            while owner(&control) != 0 {
                assert!(begin.elapsed() < Duration::from_secs(20));
                control.header().stuck.fetch_add(1, AcqRel);
                taken.extend(locks.look(&control));
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(begin.elapsed() >= STOPPED);
            taken
        };
        let first = Taken {
            lock: 9,
            number: 77,
        };
        assert_eq!(lose(), [first]);
        held_by(&control, child.id() as i32);
        assert_eq!(lose(), [], "said once");

        held_by(&control, child.id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        control.header().stuck.fetch_add(1, AcqRel);
        assert_eq!(locks.look(&control), []);
        assert_eq!(owner(&control), 0, "at once");

        // This thread runs.
        held_by(&control, std::process::id() as i32);
        // SAFETY: asks for a number and uses no memory.
        let tid = unsafe { libc::gettid() };
        control.ctl(7).tid.store(tid, Relaxed);
        let begin = Instant::now();
        while begin.elapsed() < 3 * STOPPED {
            control.header().stuck.fetch_add(1, AcqRel);
            assert_eq!(locks.look(&control), []);
        }
        assert_eq!(owner(&control), 8);
        Locks::release(&control, 6);
        assert_eq!(owner(&control), 8);
        Locks::release(&control, 7);
        assert_eq!(owner(&control), 0);
    }
}

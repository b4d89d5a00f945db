//! Waits of threads for one another. Where a process has several threads, these calls are answered: the threads stand still all
//! the same, and nobody has to wait for the kernel.

use super::calls::Made;
use super::memory::is_private;
use super::threads::{State, Wait};
use super::{Done, Rerun};
use libc::*;

/// What a call wakes without naming bits.
const ALL: u32 = u32::MAX;

impl Rerun<'_> {
    /// A thread waits for others, or wakes them.
    pub fn futex(&mut self, pid: i32, made: &Made) -> Done {
        let shares = self.shares;
        let p = self.process(pid);
        if !p.is_shared() {
            return self.pass(pid);
        }
        let a = made.args;
        let how = a[1] as i32;
        let command = how & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
        if shares && how & FUTEX_PRIVATE_FLAG == 0 && !is_private(pid, a[0], 4) {
            let why = "a process with several threads waits in memory that it shares with others";
            return Err(self.refused(pid, made, why));
        }
        let recorded = p.script.take_aside(p.task.lane, made.number, a[1]);
        let bits = match command {
            FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET => a[5] as u32,
            _ => ALL,
        };
        match command {
            FUTEX_WAIT | FUTEX_WAIT_BITSET => {
                let expired = -ETIMEDOUT as i64 as u64;
                self.wait_for_others(pid, made, bits, recorded == Some(expired))
            }
            FUTEX_WAKE | FUTEX_WAKE_BITSET => {
                let n = p.wake(a[0], bits, (a[2] as i32).max(1) as usize)?;
                self.answer(pid, n)
            }
            FUTEX_REQUEUE | FUTEX_CMP_REQUEUE => self.requeue(pid, made, command),
            _ => Err(self.refused(pid, made, "it waits for threads in an unusual way")),
        }
    }

    fn wait_for_others(&mut self, pid: i32, made: &Made, bits: u32, expires: bool) -> Done {
        let a = made.args;
        let p = self.process(pid);
        let timed = a[3] != 0;
        if bits == 0 {
            return self.answer(pid, -EINVAL as i64 as u64);
        }
        if timed {
            let parts = (p.memory.word(a[3]), p.memory.word(a[3].wrapping_add(8)));
            let (Some(seconds), Some(rest)) = parts else {
                return self.answer(pid, -EFAULT as i64 as u64);
            };
            if (seconds as i64) < 0 || rest >= 1_000_000_000 {
                return self.answer(pid, -EINVAL as i64 as u64);
            }
        }
        match value(&p.memory, a[0]) {
            None => self.answer(pid, -EFAULT as i64 as u64),
            Some(v) if v != a[2] as u32 => self.answer(pid, -EAGAIN as i64 as u64),
            Some(_) => {
                p.turns += 1;
                let wait = Wait {
                    address: a[0],
                    bits,
                    timed,
                    expires: timed && expires,
                    since: p.turns,
                };
                self.stand(pid, State::Waits(wait));
                Ok(())
            }
        }
    }

    /// Some are woken, and the others wait elsewhere.
    fn requeue(&mut self, pid: i32, made: &Made, command: i32) -> Done {
        let a = made.args;
        let (Ok(wake), Ok(most)) = (usize::try_from(a[2] as i32), usize::try_from(a[3] as i32))
        else {
            return self.answer(pid, -EINVAL as i64 as u64);
        };
        let p = self.process(pid);
        if command == FUTEX_CMP_REQUEUE {
            match value(&p.memory, a[0]) {
                None => return self.answer(pid, -EFAULT as i64 as u64),
                Some(v) if v != a[5] as u32 => return self.answer(pid, -EAGAIN as i64 as u64),
                Some(_) => {}
            }
        }
        let woken = p.wake(a[0], ALL, wake)?;
        let waiting = p.tasks_mut().filter_map(|t| match &mut t.state {
            State::Waits(w) if w.address == a[0] => Some(w),
            _ => None,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|w| w.since);
        let mut moved = 0;
        for w in waiting.into_iter().take(most) {
            w.address = a[4];
            moved += 1;
        }
        self.answer(pid, woken + moved)
    }
}

/// A word of four bytes.
fn value(memory: &super::memory::ProcessMemory, at: u64) -> Option<u32> {
    let bytes = memory.bytes(at, 4).ok()?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

//! Where a program has its memory: at the recorded addresses, as far as these are free. Random numbers, names and the order of
//! things may depend on addresses.

use super::answer::restore;
use super::calls::Made;
use super::memory::is_free;
use super::{After, Done, Rerun};
use hindsight_remote::Regs;
use libc::*;

const PAGE: u64 = 4096;
/// So much room behind the beginning of the heap must be free.
const ROOM: u64 = 1 << 24;
/// No heap begins below, where pointers that lead nowhere point, nor above, where the kernel's memory is.
const LOWEST: u64 = 1 << 16;
const HIGHEST: u64 = 1 << 47;

/// The memory that `brk` gives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Heap {
    /// Nobody has asked for it.
    #[default]
    New,
    /// The kernel gives it.
    Kernels,
    /// It begins where the recorded one did, and has this end.
    Recorded { start: u64, end: u64 },
}

/// Whether a heap may begin here: a recording may say anything.
fn is_place(start: u64) -> bool {
    start.is_multiple_of(PAGE) && (LOWEST..HIGHEST - ROOM).contains(&start)
}

/// Whether a call that maps memory does not say where. An address that must be kept is 0 if the program wants just that.
fn leaves_place_open(args: &[u64; 6]) -> bool {
    args[0] == 0 && args[3] as i32 & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0
}

impl Rerun<'_> {
    /// A call about the memory of the process, which the kernel does.
    pub fn own(&mut self, pid: i32, made: &Made, r: Regs) -> Done {
        match made.number as i64 {
            SYS_brk => self.heap(pid, made, r),
            SYS_mmap => {
                self.shares |= made.args[3] as i32 & MAP_SHARED != 0;
                self.place(pid, made, r)
            }
            _ => self.pass(pid),
        }
    }

    /// Maps memory. If the program does not say where, it is where the recorded program got the like.
    pub fn place(&mut self, pid: i32, made: &Made, r: Regs) -> Done {
        let Some(at) = self.place_of(pid, made)? else {
            return self.pass(pid);
        };
        let mut new = r;
        new.rdi = at;
        self.process(pid).task.thread.set_regs(&new)?;
        self.pass_and(pid, After::Restore(Box::new(r)))
    }

    /// Where the recorded thread got such memory. The kernel takes another place if this one is not free.
    pub fn place_of(&mut self, pid: i32, made: &Made) -> Done<Option<u64>> {
        if !leaves_place_open(&made.args) {
            return Ok(None);
        }
        let lane = self.process(pid).task.lane;
        while self.process(pid).script.wants_more_of(lane) {
            self.load(pid)?;
        }
        Ok(self.process(pid).script.place_of(lane, &made.args))
    }

    /// The program asks where its heap ends, or has it end elsewhere.
    fn heap(&mut self, pid: i32, made: &Made, r: Regs) -> Done {
        if self.process(pid).heap == Heap::New {
            let start = self.recorded_heap(pid)?;
            let is_there = |s: &u64| is_place(*s) && is_free(pid, *s..*s + ROOM);
            self.process(pid).heap = match start.filter(is_there) {
                Some(start) => Heap::Recorded { start, end: start },
                None => Heap::Kernels,
            };
        }
        let Heap::Recorded { start, end } = self.process(pid).heap else {
            return self.pass(pid);
        };
        let asked = made.args[0];
        let (Some(old), Some(new)) = (
            end.checked_next_multiple_of(PAGE),
            asked.checked_next_multiple_of(PAGE),
        ) else {
            return self.answer(pid, end);
        };
        if asked < start {
            return self.answer(pid, end);
        }
        let mut call = r;
        if new > old {
            call.orig_rax = SYS_mmap as u64;
            (call.rdi, call.rsi) = (old, new - old);
            call.rdx = (PROT_READ | PROT_WRITE) as u64;
            call.r10 = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE) as u64;
            (call.r8, call.r9) = (u64::MAX, 0);
        } else if new < old {
            call.orig_rax = SYS_munmap as u64;
            (call.rdi, call.rsi) = (new, old - new);
        } else {
            self.process(pid).heap = Heap::Recorded { start, end: asked };
            return self.answer(pid, asked);
        }
        self.process(pid).task.thread.set_regs(&call)?;
        self.pass_and(pid, After::Heap(Box::new(r)))
    }

    /// Where the heap of the recorded program began.
    fn recorded_heap(&mut self, pid: i32) -> Done<Option<u64>> {
        loop {
            let script = &self.process(pid).script;
            match script.heap() {
                Some(start) => return Ok(Some(start)),
                None if script.wants_more() => self.load(pid)?,
                None => return Ok(None),
            }
        }
    }

    /// The heap has got longer or shorter, as was asked with these registers, or it has not.
    pub fn has_moved(&mut self, pid: i32, before: Regs, result: u64) -> Done {
        let p = self.process(pid);
        let Heap::Recorded { start, mut end } = p.heap else {
            unreachable!("only such a heap is moved");
        };
        if (result as i64) >= 0 {
            end = before.rdi;
            p.heap = Heap::Recorded { start, end };
        }
        Ok(restore(p, before, end)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_begins_where_programs_may_have_memory() {
        assert!(is_place(0x4c_9000) && is_place(0x5555_5577_8000));
        for start in [
            0,
            4096,
            0x4c_9d30,
            HIGHEST - PAGE,
            HIGHEST,
            1 << 63,
            u64::MAX - 4095,
        ] {
            assert!(!is_place(start), "{start:#x}");
        }
    }

    #[test]
    fn only_what_the_program_leaves_open_is_chosen() {
        let at = |address, flags: i32| leaves_place_open(&[address, 1, 1, flags as u64, 0, 0]);
        assert!(at(0, MAP_PRIVATE) && at(0, MAP_SHARED | MAP_32BIT));
        assert!(!at(4096, MAP_PRIVATE));
        assert!(!at(0, MAP_PRIVATE | MAP_FIXED) && !at(0, MAP_PRIVATE | MAP_FIXED_NOREPLACE));
    }
}

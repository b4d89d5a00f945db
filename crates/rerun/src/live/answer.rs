//! Answers that come from the recording.

use super::calls::Made;
use super::{After, Done, Error, FOREIGN, Rerun};
use crate::plan::class::Class;
use crate::plan::compare::Move;
use crate::plan::offset::moves_place;
use crate::plan::script::Input;
use crate::plan::table::FileId;
use libc::*;

/// The size of an event of `epoll`.
const EVENT: usize = 12;
/// Errors that the kernel keeps to itself: the call will be made again.
const RESTARTED: (i64, i64) = (512, 516);
/// The size of what `poll` has of a descriptor.
const POLLED: usize = 8;

impl Rerun<'_> {
    /// Answers a call: the kernel does not do it.
    pub fn answer(&mut self, pid: i32, result: u64) -> Done {
        let p = self.process(pid);
        let mut r = p.task.thread.regs()?;
        (r.orig_rax, r.rax) = (u64::MAX, result);
        p.task.thread.set_regs(&r)?;
        self.go_further(pid);
        Ok(())
    }

    /// Answers a call as a recorded one was: result, memory and, if it is made for the first time, signals.
    pub fn replay(&mut self, pid: i32, made: &Made, slot: usize, first: bool) -> Done {
        if first && self.ends_in(pid, slot)? {
            return Ok(());
        }
        if first {
            self.send(pid, slot);
        }
        let p = self.process(pid);
        let call = &p.script.slot(slot).call;
        let Some(result) = call.result else {
            return Err(self.cut());
        };
        self.copy(pid, made, slot, 0)?;
        self.answer(pid, result)
    }

    /// Copies what a recorded call wrote to where this one wants it. The first `skip` places are left out.
    pub fn copy(&mut self, pid: i32, made: &Made, slot: usize, skip: usize) -> Done {
        let p = self.process(pid);
        let call = &p.script.slot(slot).call;
        let result = call.result.unwrap_or(0) as i64;
        let ranges = p.memory.outputs(made.number, &made.args, result);
        for (range, written) in ranges.iter().skip(skip).zip(&call.written) {
            let len = written.bytes.len().min(range.len as usize);
            p.memory.write_known(range.addr, &written.bytes[..len])?;
        }
        Ok(())
    }

    /// A call that took something in, and that is a recorded one.
    pub fn input(&mut self, pid: i32, made: &Made, slot: usize) -> Done {
        let during = {
            let call = &self.process(pid).script.slot(slot).call;
            let waits = matches!(
                made.number as i64,
                SYS_ppoll | SYS_pselect6 | SYS_epoll_pwait | SYS_epoll_pwait2
            );
            waits && call.signals.iter().any(|s| s.during)
        };
        if during && self.send(pid, slot) {
            // The kernel delivers the signal, under the mask that the call asks for.
            return self.pass(pid);
        }
        match made.number as i64 {
            SYS_poll | SYS_ppoll => self.polled(pid, made, slot),
            SYS_select | SYS_pselect6 => self.selected(pid, made, slot),
            SYS_epoll_wait | SYS_epoll_pwait | SYS_epoll_pwait2 => self.events(pid, made, slot),
            SYS_chdir | SYS_fchdir => {
                self.send(pid, slot);
                self.pass_and(pid, After::Result(slot))
            }
            SYS_lseek => {
                let result = self.process(pid).script.slot(slot).call.result;
                if let Some(to) = result.filter(|r| (*r as i64) >= 0) {
                    self.goes(pid, made, to);
                }
                self.replay(pid, made, slot, true)
            }
            _ => self.replay(pid, made, slot, true),
        }
    }

    /// A file is read, and written, from another place on.
    pub fn goes(&mut self, pid: i32, made: &Made, to: u64) {
        let Some(file) = made.file() else { return };
        let p = self.process(pid);
        p.places.insert(Input::File(file), to);
        if moves_place(made.number, &made.args) {
            p.outputs.now_goes(file, Move::To(to));
        }
    }

    /// Computes where a file is read next.
    pub fn seek(&mut self, pid: i32, made: &Made) -> Done {
        let Some(file) = made.file() else {
            return self.answer(pid, -EBADF as i64 as u64);
        };
        let (by, whence) = (made.args[1] as i64, made.args[2] as i32);
        let p = self.process(pid);
        let read = p.places.get(&Input::File(file)).copied().unwrap_or(0);
        let here = p.outputs.place(file).unwrap_or(read) as i64;
        let to = match whence {
            SEEK_SET => Some(by),
            SEEK_CUR => here.checked_add(by),
            _ => None,
        };
        match to.filter(|t| *t >= 0) {
            Some(to) => {
                self.goes(pid, made, to as u64);
                self.answer(pid, to as u64)
            }
            None => self.answer(pid, -EINVAL as i64 as u64),
        }
    }

    /// What `poll` said of each descriptor, by the open file that it leads to.
    fn polled(&mut self, pid: i32, made: &Made, slot: usize) -> Done {
        if self.ends_in(pid, slot)? {
            return Ok(());
        }
        self.send(pid, slot);
        let count = made.args[1].min(1 << 16) as usize;
        let p = self.process(pid);
        let s = p.script.slot(slot);
        let (before, behind) = (&s.call.given, s.call.written.first());
        let result = s.call.result.unwrap_or(0);
        let now = p.memory.bytes(made.args[0], POLLED * count)?;
        let fd = |b: &[u8]| b.first_chunk().map_or(-1, |b| i32::from_le_bytes(*b));
        let mut told = 0;
        for (n, entry) in now.chunks_exact(POLLED).enumerate() {
            // The one at the same place leads to the same file nearly always. Else the descriptor's number decides.
            let place = match before.chunks_exact(POLLED).nth(n) {
                Some(_) => Some(n),
                None => before.chunks_exact(POLLED).position(|b| fd(b) == fd(entry)),
            };
            let bytes = place.and_then(|n| behind?.bytes.get(POLLED * n + 6..POLLED * n + 8));
            let bytes = match bytes {
                Some(b) => b.to_vec(),
                None => vec![Some(0); 2],
            };
            told += u64::from(bytes.iter().any(|b| b.is_some_and(|b| b != 0)));
            let at = made.args[0].wrapping_add((POLLED * n + 6) as u64);
            p.memory.write_known(at, &bytes)?;
        }
        let failed = (result as i64) < 0;
        self.answer(pid, if failed { result } else { told })
    }

    /// What `select` said. Descriptors are translated by the open files that they lead to.
    fn selected(&mut self, pid: i32, made: &Made, slot: usize) -> Done {
        if self.ends_in(pid, slot)? {
            return Ok(());
        }
        self.send(pid, slot);
        let p = self.process(pid);
        let call = &p.script.slot(slot).call;
        let result = call.result.unwrap_or(0);
        let sets = (1..4).filter(|n| call.args[*n] != 0);
        let mut written = call.written.iter();
        for n in sets {
            let Some(told) = written.next() else { break };
            let at = made.args[n];
            if at == 0 {
                continue;
            }
            let len = (made.args[0].min(1 << 16).div_ceil(64) * 8) as usize;
            let mut bytes: Vec<_> = told.bytes.iter().map(|b| Some(b.unwrap_or(0))).collect();
            bytes.resize(len, Some(0));
            p.memory.write_known(at, &bytes)?;
        }
        self.answer(pid, result)
    }

    /// What a program gave with a descriptor to be told with its events may be an address.
    pub fn registered(&mut self, pid: i32, made: &Made, slot: usize) {
        let p = self.process(pid);
        let data = |b: &[u8]| Some(u64::from_le_bytes(*b.get(4..)?.first_chunk()?));
        let recorded = data(&p.script.slot(slot).call.given);
        let now = p
            .memory
            .bytes(made.args[3], EVENT)
            .ok()
            .and_then(|b| data(&b));
        if let (Some(recorded), Some(now)) = (recorded, now) {
            p.events.insert(recorded, now);
        }
    }

    /// Events of `epoll`.
    fn events(&mut self, pid: i32, made: &Made, slot: usize) -> Done {
        if self.ends_in(pid, slot)? {
            return Ok(());
        }
        self.send(pid, slot);
        let p = self.process(pid);
        let call = &p.script.slot(slot).call;
        let result = call.result.unwrap_or(0);
        let bytes: Vec<u8> = (call.written.first())
            .map(|w| w.bytes.iter().map_while(|b| *b).collect())
            .unwrap_or_default();
        let mut out = Vec::new();
        for event in bytes.chunks_exact(EVENT) {
            let (head, data) = event.split_at(4);
            let data = data.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            let now = p.events.get(&data).copied().unwrap_or(data);
            out.extend_from_slice(head);
            out.extend(now.to_le_bytes());
        }
        let most = (made.args[2] as u32 as usize).min(out.len() / EVENT);
        p.memory.write(made.args[1], &out[..most * EVENT])?;
        let failed = (result as i64) < 0;
        self.answer(pid, if failed { result } else { most as u64 })
    }

    /// A call has returned.
    pub fn returned(&mut self, pid: i32) -> Done {
        let p = self.process(pid);
        let mut r = p.task.thread.regs()?;
        let Some(after) = p.task.after.take() else {
            p.task.thread.go_on(0);
            return Ok(());
        };
        if (-RESTARTED.1..=-RESTARTED.0).contains(&(r.rax as i64)) {
            // A signal came. The kernel makes the call again.
            p.task.after = Some(after);
            p.task.thread.go_on(0);
            return Ok(());
        }
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        match after {
            After::Descriptors => {
                let (number, result) = (r.orig_rax, Some(r.rax));
                p.table.apply(number, &args, result, None, &mut || 0);
            }
            After::Make(before, slot) => self.has_made(pid, *before, slot, r)?,
            After::Open(before, slot, real) => self.has_opened(pid, *before, slot, (r, real))?,
            After::Fork(_) if [EAGAIN, ENOMEM].iter().any(|e| r.rax == -*e as i64 as u64) => {
                let what = "this machine does not let the program start a process or thread that is recorded";
                return Err(Error::Limit(what.into()).into());
            }
            After::Fork(slot) => {
                let recorded = p.script.slot(slot).call.result.unwrap_or(0);
                if (r.rax as i64) > 0 {
                    r.rax = recorded;
                    let tells =
                        r.orig_rax as i64 == SYS_clone && r.rdi as i32 & CLONE_PARENT_SETTID != 0;
                    if tells {
                        p.memory.write(r.rdx, &(recorded as i32).to_le_bytes())?;
                    }
                }
                p.task.thread.set_regs(&r)?;
                self.send(pid, slot);
            }
            After::Wait(before, slot) => {
                self.has_waited(pid, *before, slot, r.rax)?;
                self.send_some(pid, slot, false);
            }
            After::Result(slot) => {
                r.rax = p.script.slot(slot).call.result.unwrap_or(r.rax);
                p.task.thread.set_regs(&r)?;
            }
            After::Read(before, file) => {
                if (r.rax as i64) > 0 {
                    let place = p.places.entry(Input::File(file)).or_default();
                    *place = place.saturating_add(r.rax);
                }
                restore(p, *before, r.rax)?;
            }
            After::Came(came) => {
                if !self.has_come(pid, came, &r)? {
                    return Ok(());
                }
            }
            After::Heap(before) => self.has_moved(pid, *before, r.rax)?,
            After::Restore(before) => restore(p, *before, r.rax)?,
            After::Map(before, bytes) => {
                if (r.rax as i64) > 0 {
                    p.memory.write(r.rax, &bytes)?;
                }
                restore(p, *before, r.rax)?;
            }
        }
        self.go_further(pid);
        Ok(())
    }

    /// A child was waited for. The process id is the recorded one; how the child ended is what has happened now.
    fn has_waited(
        &mut self,
        pid: i32,
        before: hindsight_remote::Regs,
        slot: usize,
        now: u64,
    ) -> Done {
        let p = self.process(pid);
        let s = p.script.slot(slot);
        let recorded = s.call.result.unwrap_or(0);
        let is_id = before.orig_rax as i64 == SYS_waitid;
        if (now as i64) < 0 {
            return Ok(restore(p, before, now)?);
        }
        if is_id {
            // `si_pid` stands in the structure.
            if let Some(w) = s.call.written.first()
                && before.rdx != 0
                && let Some(id) = w.bytes.get(12..16)
            {
                p.memory.write_known(before.rdx.wrapping_add(12), id)?;
            }
        } else if before.r10 != 0
            && let Some(usage) = s.call.written.iter().find(|w| w.address == s.call.args[3])
        {
            p.memory.write_known(before.r10, &usage.bytes)?;
        }
        Ok(restore(p, before, recorded)?)
    }

    /// Makes a descriptor in place of a call that would make one of another kind.
    pub fn placeholder(&mut self, pid: i32, on_exec: bool, after: After) -> Done {
        let p = self.process(pid);
        let mut r = p.task.thread.regs()?;
        r.orig_rax = SYS_eventfd2 as u64;
        (r.rdi, r.rsi) = (0, if on_exec { EFD_CLOEXEC as u64 } else { 0 });
        p.task.thread.set_regs(&r)?;
        self.pass_and(pid, after)
    }

    /// A new open file that is not recorded.
    pub fn foreign(&mut self, is_real: bool) -> FileId {
        let id = self.next_foreign.max(FOREIGN);
        self.next_foreign = id + 1;
        self.foreign.insert(id, super::Foreign { is_real });
        id
    }

    /// The class of calls that need the kernel's own kind of descriptor: pipes lead from one process to another.
    pub fn is_made_here(number: u64, class: Class) -> bool {
        let own = [SYS_pipe, SYS_pipe2, SYS_socketpair, SYS_memfd_create];
        class == Class::Make && own.contains(&(number as i64))
    }
}

/// Gives a process the registers that it had before a call, and its result.
pub fn restore(
    p: &super::Process,
    before: hindsight_remote::Regs,
    result: u64,
) -> std::io::Result<()> {
    let mut r = before;
    (r.rax, r.orig_rax) = (result, u64::MAX);
    r.rip = p.task.thread.regs()?.rip;
    p.task.thread.set_regs(&r)
}

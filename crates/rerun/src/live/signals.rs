//! Signals come where they came in the recording. Others do not come at all, but for those that the program raises itself.

use super::calls::Made;
use super::threads::State;
use super::{After, Done, Finish, Rerun, Task, Trouble};
use crate::plan::class::Class;
use crate::plan::signals::{is_fatal, is_sent};
use crate::wire::{End, Signal};
use hindsight_remote::SignalSent;
use libc::*;

/// Signals of faults. They come by themselves.
const FAULTS: [i32; 6] = [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];
impl Task {
    /// Sends a signal. Returns whether it is one that comes.
    fn send(&mut self, g: &Signal) -> bool {
        if !is_sent(g.number) {
            return false;
        }
        // The kernel keeps one of a kind only.
        match self.expected.contains(&g.number) {
            true => self.backlog.push(g.number),
            false => {
                self.expected.push(g.number);
                self.thread.queue(g.number);
            }
        }
        true
    }
}

impl Rerun<'_> {
    /// A signal is about to be delivered.
    pub fn signal(&mut self, pid: i32, s: SignalSent) -> Done {
        let p = self.process(pid);
        if p.task.is_new {
            return self.begin_child(pid);
        }
        let thread = p.task.thread;
        if s.number == SIGSTOP && self.is_at_point(thread) {
            return Err(Trouble::Finish(Finish::Point(pid)));
        }
        let p = self.process(pid);
        if s.number == SIGSTOP && std::mem::take(&mut p.task.interrupted) {
            match p.is_shared() {
                true => {
                    self.give_way(pid);
                    self.stand(pid, State::Ready);
                }
                false => p.task.thread.go_on(0),
            }
            return Ok(());
        }
        let is_expected = p.task.expected.iter().position(|n| *n == s.number);
        if let Some(n) = is_expected {
            p.task.expected.remove(n);
            if let Some(n) = p.task.backlog.iter().position(|n| *n == s.number) {
                p.task.backlog.remove(n);
                p.task.expected.push(s.number);
                p.task.thread.queue(s.number);
            }
        }
        let is_fault = FAULTS.contains(&s.number) && s.code > 0;
        let comes = is_expected.is_some() || is_fault;
        if comes && (is_fault || s.number == SIGABRT) {
            let r = p.task.thread.regs()?;
            p.fault = Some(super::stack::stack(pid, &r, &p.memory));
        }
        let number = if comes { s.number } else { 0 };
        p.task.thread.go_on(number);
        Ok(())
    }

    /// Sends the signals of a recorded call. Returns whether there are any.
    pub fn send(&mut self, pid: i32, slot: usize) -> bool {
        let during = self.send_some(pid, slot, true);
        self.send_some(pid, slot, false) || during
    }

    /// Sends those signals of a recorded call that came while it waited, or else the others. Returns whether there are any.
    pub fn send_some(&mut self, pid: i32, slot: usize, during: bool) -> bool {
        let Some(p) = self.processes.get(&pid) else {
            return false;
        };
        let s = p.script.slot(slot);
        // The program itself raises those.
        let raised = |g: &Signal| s.class == Class::Kill && g.code <= 0;
        // This one may come later.
        let ends = |g: &Signal| !during && self.ends_behind(pid, slot) == Some(g.number);
        let list: Vec<Signal> = (s.call.signals.iter())
            .filter(|g| g.during == during && !raised(g) && !ends(g))
            .copied()
            .collect();
        let any = self.send_all(pid, &list);
        if !during {
            self.send_last(pid, slot);
        }
        any
    }

    /// Sends signals. Returns whether there are any.
    pub fn send_all(&mut self, pid: i32, list: &[Signal]) -> bool {
        let task = &mut self.process(pid).task;
        list.iter().filter(|g| task.send(g)).count() > 0
    }

    /// Sends signals that the threads with these lanes got, as far as they live.
    pub fn send_late(&mut self, pid: i32, list: &[(u32, Signal)]) {
        let p = self.process(pid);
        for (lane, signal) in list {
            if let Some(t) = p.tasks_mut().find(|t| t.lane == *lane) {
                t.send(signal);
            }
        }
    }

    /// If somebody else ended the process by a signal behind the last call, that comes if it makes no more calls for a
    /// while: a program that does not hang any more ends before.
    fn send_last(&mut self, pid: i32, slot: usize) {
        if let Some(n) = self.ends_behind(pid, slot) {
            let p = self.process(pid);
            let behind = p
                .image
                .length_of(p.task.lane)
                .saturating_sub(p.script.slot(slot).call.count);
            p.overdue = Some((n, behind));
        }
    }

    /// The signal with which somebody else ended the recorded process behind this call, which is its last one.
    fn ends_behind(&self, pid: i32, slot: usize) -> Option<i32> {
        let p = self.processes.get(&pid)?;
        let own = p.script.slot(slot).class == Class::Kill;
        match p.image.end {
            End::Signal(n) if !own && is_fatal(n) && !FAULTS.contains(&n) && n != SIGABRT => {
                Some(n).filter(|_| p.script.is_last(slot))
            }
            _ => None,
        }
    }

    /// The program sends a signal. If it is to itself, the kernel sends it; what others got is recorded.
    pub fn kill(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        let p = self.process(pid);
        let mut r = p.task.thread.regs()?;
        let whom = r.rdi as i32;
        let signal = match r.orig_rax as i64 {
            SYS_tgkill | SYS_rt_tgsigqueueinfo => r.rdx as i32,
            _ => r.rsi as i32,
        };
        let failed = slot.and_then(|s| p.script.slot(s).call.result);
        let failed = failed.filter(|r| (*r as i64) < 0);
        let mine = match r.orig_rax as i64 {
            SYS_tkill => whom == p.task.tid,
            SYS_tgkill | SYS_rt_tgsigqueueinfo => whom == p.pid && r.rsi as i32 == p.task.tid,
            // Of several threads any may get it. The recording says which.
            _ if p.is_shared() => {
                let got = slot.map(|s| &p.script.slot(s).call.signals);
                whom == p.pid && got.is_some_and(|g| g.iter().any(|g| g.number == signal))
            }
            _ => whom == p.pid,
        };
        if !mine || failed.is_some() || !is_sent(signal) {
            let Some(slot) = slot else {
                self.lasting(made);
                self.added(pid, made, "it was not sent")?;
                return self.answer(pid, 0);
            };
            let result = p.script.slot(slot).call.result.unwrap_or(0);
            self.send(pid, slot);
            return self.answer(pid, result);
        }
        if slot.is_none() {
            self.added(pid, made, "it was sent to itself")?;
        }
        let p = self.process(pid);
        p.task.expected.push(signal);
        let before = r;
        let tid = p.task.thread.tid() as u64;
        match r.orig_rax as i64 {
            SYS_tkill => r.rdi = tid,
            SYS_tgkill | SYS_rt_tgsigqueueinfo => (r.rdi, r.rsi) = (pid as u64, tid),
            SYS_kill if p.is_shared() => {
                (r.rdx, r.rdi, r.rsi) = (r.rsi, pid as u64, tid);
                r.orig_rax = SYS_tgkill as u64;
            }
            _ => r.rdi = pid as u64,
        }
        p.task.thread.set_regs(&r)?;
        self.pass_and(pid, After::Restore(Box::new(before)))
    }

    /// The program waits for a signal.
    pub fn suspend(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        if slot.is_none() {
            self.added(pid, made, "no signal came")?;
        }
        match slot.is_some_and(|s| self.send(pid, s)) {
            // The kernel delivers what has been sent, under the mask that the call asks for.
            true => self.pass(pid),
            false => self.answer(pid, -EINTR as i64 as u64),
        }
    }
}

//! The recorded system calls that say what the kernel kept for a process.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::calls::{ADVICE, BASES, ERRORS, HARMLESS, REGISTERS, is_question, telling};
use super::made::Made;
use super::past::{Did, Past, bytes, word};
use super::{ProcessState, ThreadState};
use crate::Result;
use hindsight_syscalls::abi::*;
use hindsight_timeline::{
    Cursor, Filter, Happening, Kind, KindOf, Position, Thread, ThreadId, Timeline, syscall_name,
};
use std::collections::{BTreeMap, BTreeSet};

/// Calls behind which paths may lead elsewhere than for others.
const MOVING: [u64; 10] = [
    __NR_chroot,
    __NR_pivot_root,
    __NR_setns,
    __NR_mount,
    __NR_umount2,
    __NR_move_mount,
    __NR_fsmount,
    __NR_open_tree,
    __NR_fsopen,
    __NR_mount_setattr,
];
/// Flags of `clone` and `unshare` that give new namespaces.
const APART: u64 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u64;
/// `CLONE_CLEAR_SIGHAND`: the new process has no handlers.
const CLEARS_HANDLERS: u64 = 1 << 32;
/// The same of `unshare` alone.
const NEW_TIME: u64 = 0x80;
/// `SS_AUTODISARM`.
const AUTODISARM: u64 = 1 << 31;
/// The most generations of processes that are followed back.
const GENERATIONS: usize = 1 << 16;

/// Where a thread came from. Calls come with the number of their generation.
pub enum Origin {
    /// This call made it.
    Made(usize, Past),
    /// This call loaded its program.
    Loaded(usize, Past),
    /// The recording begins with it.
    First,
    Unknown,
}

/// The past of a process, in order of time.
pub struct History {
    /// What happened in the process and, before it was made, in those that it comes from: program image by program image, the
    /// first one first. Each with whether it came by `execve`.
    pub generations: Vec<(bool, Vec<Past>)>,
    pub pid: i32,
    image: u32,
    /// Signals that arrive at the instant itself: neither are they over, nor do they come again by themselves.
    pub arriving: Vec<u8>,
    /// Of each process that was forked it is known which call did that, so what its parent did then is no past of it.
    pub is_cut: bool,
    threads: BTreeMap<ThreadId, Thread>,
}

impl History {
    pub fn new(cursor: &Cursor, own: &Thread) -> Result<History> {
        let timeline = cursor.timeline().clone();
        let here = cursor.position()?;
        let processes = timeline.processes()?;
        let threads: BTreeMap<ThreadId, Thread> =
            timeline.threads()?.into_iter().map(|t| (t.id, t)).collect();
        let (mut image, mut pid, mut until) = (own.image, own.pid, here);
        let mut generations = Vec::new();
        let mut arriving = Vec::new();
        // The id of the process that was forked from the one that is looked at.
        let mut child: Option<i32> = None;
        let mut is_cut = true;
        for _ in 0..GENERATIONS {
            let found = processes.iter().find(|p| p.image == image);
            let by_exec = found.is_none_or(|p| p.by_exec || p.parent == 0);
            let filter = Filter {
                image: Some(image),
                until: None,
                kinds: vec![KindOf::Syscall, KindOf::Signal],
                syscalls: telling(),
                ..Filter::default()
            };
            let events = timeline.events(&filter)?;
            let mut counts = BTreeMap::new();
            let mut past = Vec::new();
            for h in events {
                if h.position > until {
                    break;
                }
                let is_own = threads.get(&h.thread).is_some_and(|t| t.pid == pid);
                if !is_own {
                    continue;
                }
                // What loads a program never returns, so it stands at the end of its thread.
                let loads = !generations.is_empty() && is_load(&h.kind);
                let returned = generations.is_empty();
                if !loads && !is_before(&timeline, &h, (until, returned), &mut counts)? {
                    if let Kind::Signal { number, .. } = h.kind
                        && generations.is_empty()
                        && counts.get(&h.thread) == Some(&h.count)
                        && !h.kind.is_exception()
                    {
                        arriving.push(number);
                    }
                    continue;
                }
                past.extend(past_of(&h));
            }
            if let Some(child) = child {
                is_cut &= cut(&mut past, child);
            }
            generations.push((by_exec, past));
            let Some(p) = found.filter(|p| p.parent != 0) else {
                break;
            };
            let parent = processes.iter().find(|q| q.image == p.parent);
            (image, until) = (p.parent, p.begin);
            child = (!p.by_exec).then_some(pid);
            pid = match (p.by_exec, parent) {
                (true, _) => p.pid,
                (false, Some(q)) => q.pid,
                (false, None) => break,
            };
        }
        generations.reverse();
        Ok(History {
            generations,
            pid: own.pid,
            image: own.image,
            arriving,
            threads,
            is_cut,
        })
    }

    /// What happened in the program of a generation, since it was loaded: also before the process was forked.
    pub fn since_loaded(&self, generation: usize) -> impl DoubleEndedIterator<Item = &Past> {
        let until = &self.generations[..self.generations.len().min(generation + 1)];
        let first = until.iter().rposition(|g| g.0).unwrap_or(0);
        until[first..].iter().flat_map(|g| &g.1)
    }

    /// All that happened.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Past> {
        self.generations.iter().flat_map(|g| &g.1)
    }

    /// What one thread of the process did.
    pub fn of(&self, thread: ThreadId) -> impl DoubleEndedIterator<Item = &Past> {
        let last = self.generations.last().map_or(&[][..], |g| &g.1);
        last.iter().filter(move |p| p.thread == thread)
    }

    /// What a thread of the process gave the last call of this number that succeeded.
    pub fn last_arguments(&self, thread: ThreadId, of: u64) -> Option<[u64; 6]> {
        self.of(thread).rev().find_map(|p| match p.what {
            Did::Call {
                number,
                args,
                result: Some(_),
            } if number == of => Some(args),
            _ => None,
        })
    }

    /// Where a thread of a generation came from.
    pub fn origin(&self, thread: ThreadId, generation: usize) -> Origin {
        let own = self.generations.get(generation);
        let (Some(t), Some((by_exec, past))) = (self.threads.get(&thread), own) else {
            return Origin::Unknown;
        };
        let makes = |p: &&Past| {
            let made = matches!(p.what, Did::Call { number, result, .. }
                if [__NR_clone, __NR_clone3, __NR_fork, __NR_vfork].contains(&number)
                    && result == Some(t.tid as u64));
            made && p.position <= t.first
        };
        if let Some(m) = past.iter().rev().find(makes) {
            return Origin::Made(generation, *m);
        }
        if t.tid != t.pid {
            return Origin::Unknown;
        }
        let Some(before) = generation.checked_sub(1) else {
            return Origin::First;
        };
        let past = &self.generations[before].1;
        if !by_exec {
            let made = past.iter().rev().find(makes);
            return made.map_or(Origin::Unknown, |m| Origin::Made(before, *m));
        }
        // Of several threads that were about to load a program, nobody knows which one did.
        let loads = |p: &&Past| {
            matches!(p.what, Did::Call { number, .. }
                if [__NR_execve, __NR_execveat].contains(&number))
        };
        let mut all = past.iter().filter(loads);
        match (all.next(), all.next()) {
            (Some(p), None) => Origin::Loaded(before, *p),
            _ => Origin::Unknown,
        }
    }

    /// The call that made a thread of a generation, if it is known. Who loaded a program has not made it.
    pub fn maker(&self, thread: ThreadId, generation: usize) -> Option<Past> {
        match self.origin(thread, generation) {
            Origin::Made(_, m) => Some(m),
            _ => None,
        }
    }

    /// The threads of the process, also those that lived before or later.
    pub fn of_process(&self) -> impl Iterator<Item = &Thread> {
        let own = |t: &&Thread| (t.image, t.pid) == (self.image, self.pid);
        self.threads.values().filter(own)
    }

    /// The number of the last generation.
    pub fn last(&self) -> usize {
        self.generations.len().saturating_sub(1)
    }

    /// What calls say of the process.
    pub fn calls(&self, cursor: &mut Cursor, state: &mut ProcessState) -> Result<()> {
        let (mut first, mut last) = (None, None);
        for p in self.since_loaded(self.last()) {
            if let Did::Call {
                number: __NR_brk,
                result: Some(r),
                ..
            } = p.what
            {
                first.get_or_insert(r);
                last = Some(r);
            }
        }
        state.heap = first.zip(last).filter(|(a, b)| a <= b);
        if self.since_loaded(self.last()).any(|p| mirrors(&p.what)) {
            let why = "it mapped memory a second time, or in another order (`mremap`, `remap_file_pages`), which is not done again";
            state.refused.push(why.into());
        }
        let mut told = BTreeSet::new();
        let (mut timers, mut alarm) = (0i64, [false; 4]);
        for p in self.all() {
            let Did::Call {
                number,
                args,
                result: Some(_),
            } = p.what
            else {
                continue;
            };
            match number {
                __NR_umask => state.umask = Some(args[0] as u32 & 0o777),
                __NR_timer_create => timers += 1,
                __NR_timer_delete => timers -= 1,
                __NR_alarm => alarm[3] = args[0] as u32 != 0,
                __NR_setitimer => {
                    let value = bytes(cursor, p, args[1].wrapping_add(16), 16)?;
                    let on = value.is_none_or(|v| v.iter().any(|b| *b != 0));
                    alarm[args[0] as usize % 3] = on && args[1] != 0;
                }
                __NR_prlimit64 if args[2] == 0 => {}
                __NR_ptrace if args[0] as u32 != PTRACE_TRACEME => {}
                __NR_prctl if HARMLESS.contains(&(args[0] as u32)) => {}
                __NR_prctl if (args[0] as u32) < 60 && is_question(args[0] as u32) => {}
                __NR_prctl => {
                    told.insert(format!("what `prctl` option {} chose", args[0]));
                }
                __NR_personality if args[0] == 0xffff_ffff => {}
                __NR_madvise if ADVICE.contains(&(args[2] as u32)) => {}
                __NR_membarrier if args[0] & REGISTERS == 0 => {}
                __NR_arch_prctl if BASES.contains(&args[0]) => {}
                // What these leave behind is restored or told.
                __NR_rt_sigaction | __NR_rt_sigprocmask | __NR_rt_sigreturn | __NR_sigaltstack
                | __NR_rt_sigsuspend | __NR_ppoll | __NR_pselect6 | __NR_epoll_pwait
                | __NR_epoll_pwait2 | __NR_set_robust_list | __NR_set_tid_address | __NR_clone
                | __NR_clone3 | __NR_fork | __NR_vfork | __NR_execve | __NR_execveat | __NR_brk
                | __NR_rseq | __NR_mremap => {}
                _ => {
                    told.insert(format!("what `{}` did", syscall_name(number)));
                }
            }
        }
        if timers > 0 || alarm.iter().any(|a| *a) {
            state
                .lost
                .push("timers that send signals: none is set".into());
        }
        state.lost.extend(told);
        let mut children = false;
        for p in self.all() {
            let forks = matches!(p.what, Did::Call { number: __NR_fork | __NR_vfork, result: Some(r), .. } if r != 0);
            children = children || forks || self.made(cursor, p)?.0 == Some(false);
        }
        if children {
            state.lost.push(
                "processes that it had started are not there: waiting for them fails with ECHILD"
                    .into(),
            );
        }
        Ok(())
    }

    /// What calls say of a thread.
    pub fn thread(
        &self,
        cursor: &mut Cursor,
        id: ThreadId,
        to: &mut ThreadState,
        refused: &mut Vec<String>,
    ) -> Result<()> {
        self.making(cursor, id, to, refused)?;
        let robust = self.last_arguments(id, __NR_set_robust_list);
        to.robust = robust.map_or([0; 2], |a| [a[0], a[1]]);
        if let Some((p, args)) =
            self.latest(cursor, id, |n, a| n == __NR_sigaltstack && a[0] != 0)?
        {
            match bytes(cursor, &p, args[0], 24)? {
                // Within a handler the kernel has taken such a stack away, and gives it back when the handler returns.
                Some(b) if word(&b, 8) & AUTODISARM != 0 => {
                    refused.push("its alternate stack for signals is one that handlers take away (`SS_AUTODISARM`), which is not done again".into());
                }
                Some(b) => {
                    to.alternate = Some([word(&b, 0), word(&b, 8) & 0xffff_ffff, word(&b, 16)]);
                }
                None => refused.push("its alternate stack for signals is not known".into()),
            }
        }
        if let Some((_, args)) = self.latest(cursor, id, |n, _| n == __NR_rseq)? {
            let registers = args[2] == 0;
            to.rseq = registers.then(|| [args[0], args[1] & 0xffff_ffff, args[3] & 0xffff_ffff]);
        }
        Ok(())
    }

    /// The last call of this kind of a thread since its program was loaded, or of the thread from which its process was forked.
    fn latest(
        &self,
        cursor: &mut Cursor,
        thread: ThreadId,
        is: impl Fn(u64, &[u64; 6]) -> bool,
    ) -> Result<Option<(Past, [u64; 6])>> {
        let of = |p: &Past| match p.what {
            Did::Call {
                number,
                args,
                result: Some(_),
            } if is(number, &args) => Some((*p, args)),
            _ => None,
        };
        if let Some(found) = self.of(thread).rev().find_map(of) {
            return Ok(Some(found));
        }
        let (mut thread, mut before) = (thread, None);
        for (n, generation) in self.generations.iter().enumerate().rev() {
            if let Some(until) = before {
                let own = generation.1.iter().rev();
                let mut own = own.filter(|p| p.thread == thread && p.position < until);
                if let Some(found) = own.find_map(of) {
                    return Ok(Some(found));
                }
            }
            match self.maker(thread, n) {
                Some(m) if !shares_memory(cursor, &m)? => {
                    (thread, before) = (m.thread, Some(m.position))
                }
                _ => break,
            }
        }
        Ok(None)
    }

    /// Whether paths, ids or others lead elsewhere for the process than for others: it has a root of its own, mounts or other
    /// namespaces. Also whether it was made without the handlers that its parent had.
    pub fn is_apart(&self, cursor: &mut Cursor, own: &Thread) -> Result<bool> {
        let moves = |p: &Past| {
            matches!(p.what, Did::Call { number, args, result: Some(_) }
                if MOVING.contains(&number) || number == __NR_unshare && args[0] & (APART | NEW_TIME) != 0)
        };
        if self.all().any(moves) {
            return Ok(true);
        }
        let (mut of, mut generation, mut loaded) = (own.id, self.last(), false);
        for _ in 0..GENERATIONS {
            match self.origin(of, generation) {
                Origin::Made(before, p) => {
                    // A program that is loaded then has no handlers anyway.
                    let not = if loaded {
                        APART
                    } else {
                        APART | CLEARS_HANDLERS
                    };
                    if Made::by(cursor, &p)?.is_none_or(|m| m.flags & not != 0) {
                        return Ok(true);
                    }
                    (of, generation) = (p.thread, before);
                }
                Origin::Loaded(before, p) => {
                    (of, generation, loaded) = (p.thread, before, true);
                }
                Origin::First | Origin::Unknown => break,
            }
        }
        Ok(false)
    }

    /// Whether the process was made so that it shares its memory with its parent (`vfork`), and has not loaded a program since.
    pub fn is_borrower(&self, cursor: &mut Cursor, own: &Thread) -> Result<bool> {
        let forked = self.generations.last().is_some_and(|g| !g.0);
        match self.maker(own.id, self.last()).filter(|_| forked) {
            Some(m) => shares_memory(cursor, &m),
            None => Ok(false),
        }
    }
}

/// Leaves what a process did until it forked the one with this id. What it did later, before the other one began, is not the
/// past of that. False: which call forked it is not known.
fn cut(past: &mut Vec<Past>, child: i32) -> bool {
    let forks = |p: &Past| {
        matches!(p.what, Did::Call { number, result: Some(r), .. }
            if [__NR_clone, __NR_clone3, __NR_fork, __NR_vfork].contains(&number) && r == child as u64)
    };
    let Some(maker) = past.iter().rfind(|p| forks(p)).copied() else {
        return false;
    };
    past.retain(|p| match p.thread == maker.thread {
        true => p.count <= maker.count,
        false => p.position <= maker.position,
    });
    true
}

/// Whether a call has made memory appear twice, or in another order than in its file. Mappings do not tell that.
fn mirrors(did: &Did) -> bool {
    match did {
        Did::Call {
            number: __NR_mremap,
            args,
            ..
        } => args[1] == 0 || args[3] as i32 & MREMAP_DONTUNMAP != 0,
        Did::Call { number, .. } => *number == __NR_remap_file_pages,
        Did::Signal(_) => false,
    }
}

/// Whether what a call made shares the memory of who made it, as far as that is known.
fn shares_memory(cursor: &mut Cursor, maker: &Past) -> Result<bool> {
    Ok(Made::by(cursor, maker)?.is_none_or(|m| m.shares_memory()))
}

/// Whether it is a call that loads a program and did not return.
fn is_load(kind: &Kind) -> bool {
    matches!(kind, Kind::Syscall { number, result: None, .. }
        if [__NR_execve, __NR_execveat].contains(number))
}

/// Whether a happening was over at an instant. `returned`: a call counts only once it has returned, so not the one that forks.
fn is_before(
    timeline: &Timeline,
    h: &Happening,
    (at, returned): (Position, bool),
    counts: &mut BTreeMap<ThreadId, u64>,
) -> Result<bool> {
    let count = match counts.get(&h.thread) {
        Some(c) => *c,
        None => {
            let c = match returned {
                true => timeline.returned_at(h.thread, at)?,
                false => timeline.count_at(h.thread, at)?,
            };
            *counts.entry(h.thread).or_insert(c.unwrap_or(0))
        }
    };
    Ok(h.count < count)
}

fn past_of(h: &Happening) -> Option<Past> {
    let what = match h.kind {
        Kind::Syscall {
            number,
            args,
            result,
        } => {
            // Calls that do not return count, and those that succeed. A call that waits with another mask may fail.
            let waits = [
                __NR_rt_sigsuspend,
                __NR_ppoll,
                __NR_pselect6,
                __NR_epoll_pwait,
                __NR_epoll_pwait2,
            ];
            if result.is_some_and(|r| r >= ERRORS) && !waits.contains(&(number)) {
                return None;
            }
            Did::Call {
                number,
                args,
                result,
            }
        }
        Kind::Signal { number, .. } => Did::Signal(number),
        _ => return None,
    };
    Some(Past {
        thread: h.thread,
        count: h.count,
        position: h.position,
        what,
    })
}

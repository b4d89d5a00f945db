//! A system call of the program: what is done about it.

use super::watch::Quiet;
use super::{After, Done, Error, FOREIGN, Finish, Process, Rerun, Trouble};
use crate::plan::class::{Class, class, class_now, is_lasting, makes_new};
use crate::plan::key::{File, Key, key};
use crate::plan::names::Names;
use crate::plan::script::Found;
use crate::plan::signals::is_fatal;
use crate::plan::table::FileId;
use crate::wire::End;
use hindsight_remote::Regs;
use hindsight_syscalls::{Arg, signature};
use libc::*;

/// So many calls in a row that are not recorded are too many.
const LOST: u32 = 2000;
/// A program that waits for a time asks for it again and again. After so many times that are not recorded, time goes on twice as
/// fast.
const PATIENT: u32 = 1000;
/// How often it doubles at most. One answer is a second later than the one before it then: time stays what programs can reckon
/// with, and who waits for less than a day comes to it.
const FASTEST: u32 = 20;
/// So many times in a row are too many.
const ASKED: u32 = 100_000;

/// A system call that a process is about to make.
pub struct Made {
    pub number: u64,
    pub args: [u64; 6],
    pub texts: Vec<Option<Vec<u8>>>,
    /// The first text as it stands in memory: another name may stand for it in `texts`.
    pub given: Option<Vec<u8>>,
    pub class: Class,
    pub key: Key,
}

/// Whether the kernel's code in the memory of programs (vDSO) answers this. The recorded program then made no call. What it was told
/// is a property of the machine.
fn is_in_vdso(number: u64) -> bool {
    matches!(number as i64, SYS_clock_getres | SYS_getcpu)
}

impl Made {
    fn of(p: &Process, r: &Regs, renamed: &Names) -> Made {
        let (number, args) = (r.orig_rax, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
        let class = class_now(number, &args);
        let name = hindsight_timeline::syscall_name(number);
        let texts = signature(&name)
            .map_or(&[][..], |s| s.args)
            .iter()
            .zip(args);
        let texts = texts
            .filter(|(a, _)| **a == Arg::Text)
            .map(|(_, at)| p.memory.text(at));
        let mut texts: Vec<_> = match class.is_matched() {
            true => texts.collect(),
            false => Vec::new(),
        };
        let given = texts.first().cloned().flatten();
        for text in texts.iter_mut().flatten() {
            if let Some(other) = renamed.recorded(text) {
                *text = other;
            }
        }
        let find = |fd: i32| match p.table.find(fd) {
            None => File::Closed,
            Some(id) if id < FOREIGN => File::Is(id),
            Some(id) => File::Foreign(id),
        };
        let sent = p.memory.sent(number, &args).into_iter().map(find);
        let key = key(number, &args, &texts, &find)
            .by(p.task.lane)
            .sending(sent.collect());
        Made {
            number,
            args,
            texts,
            given,
            class,
            key,
        }
    }

    /// The open file that it is about.
    pub fn file(&self) -> Option<FileId> {
        match self.key.file() {
            File::Is(id) | File::Foreign(id) => Some(id),
            _ => None,
        }
    }
}

/// What is to be done behind a call that a thread makes again: a signal came before it was done, or it makes the next descriptor of a
/// message. `None`: it is a new call.
fn again(p: &mut Process, r: &Regs) -> Option<After> {
    let is_it = match p.task.after.as_ref()? {
        After::Came(came) => came.is_call(r),
        After::Wait(before, _) => before.orig_rax == r.orig_rax,
        After::Fork(slot) => p.script.slot(*slot).class == class(r.orig_rax, &[0; 6]),
        _ => false,
    };
    p.task.after.take_if(|_| is_it)
}

impl Rerun<'_> {
    /// A process is about to make a system call.
    pub fn call(&mut self, pid: i32) -> Done {
        let Some(p) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        p.overdue = None;
        p.quiet = Quiet::default();
        let r = p.task.thread.regs()?;
        match again(p, &r) {
            Some(After::Came(came)) => return self.bring(pid, came),
            Some(after) => return self.run_call(pid, Some(after)),
            None => {}
        }
        let made = Made::of(p, &r, &self.renamed);
        match made.class {
            Class::Own => return self.own(pid, &made, r),
            Class::Refused(why) => return Err(self.refused(pid, &made, why)),
            Class::Absent => return self.answer(pid, -ENOSYS as i64 as u64),
            Class::Descriptors => return self.descriptors(pid, &made),
            Class::Identity => {
                let id = match made.number as i64 {
                    SYS_getpid => p.pid,
                    _ => p.task.tid,
                };
                if made.number as i64 == SYS_set_tid_address {
                    p.task.clears = Some(made.args[0]).filter(|at| *at != 0);
                }
                return self.answer(pid, id as u64);
            }
            Class::Futex => return self.futex(pid, &made),
            Class::Exit => return self.exit_thread(pid, &made),
            Class::Yield if p.is_shared() => {
                self.give_way(pid);
                return self.answer(pid, 0);
            }
            Class::Yield => return self.pass(pid),
            _ => {}
        }
        if self.is_early(pid, &made)? {
            return Ok(());
        }
        if let Some(done) = self.of_this_machine(pid, &made, r)? {
            return Ok(done);
        }
        if made.class == Class::Map {
            return self.map(pid, &made, r);
        }
        if made.class == Class::Read {
            return self.read(pid, &made, r);
        }
        if made.class == Class::Wait
            && let Some(slot) = self.process(pid).task.held.take()
        {
            return self.wait_now(pid, &made, slot, r);
        }
        let found = match self.find(pid, &made.key, made.class)? {
            Found::Nothing => {
                let vague = {
                    let p = self.process(pid);
                    p.script.vague(p.task.lane, &made.key)
                };
                vague.map_or(Found::Nothing, Found::Slot)
            }
            found => found,
        };
        let slot = match found {
            Found::Slot(slot) => {
                self.agree(pid, slot, &made)?;
                if self.stays(pid, slot) {
                    return Ok(());
                }
                Some(slot)
            }
            Found::Again(slot) => {
                // The same question has the same answer.
                self.added(pid, &made, "the recorded answer was given again")?;
                let result = self.process(pid).script.slot(slot).call.result;
                if made.number as i64 == SYS_lseek
                    && let Some(to) = result.filter(|r| (*r as i64) >= 0)
                {
                    self.goes(pid, &made, to);
                }
                return self.replay(pid, &made, slot, false);
            }
            _ if makes_new(made.number, &made.args) => self.renamed(pid, &made)?,
            _ => None,
        };
        self.done_about(pid, &made, (slot, r))
    }

    /// What is done about a call, if it is this recorded one or none.
    fn done_about(&mut self, pid: i32, made: &Made, (slot, r): (Option<usize>, Regs)) -> Done {
        match made.class {
            Class::Time => self.time(pid, made, slot),
            Class::Open => self.open(pid, made, slot, r),
            Class::Make => self.make(pid, made, slot, r),
            Class::Write => self.write(pid, made, slot),
            Class::Fork => self.fork(pid, made, slot),
            Class::Thread => self.start_thread(pid, made, slot),
            Class::Exec => self.exec(pid, made, slot),
            Class::Wait => self.wait(pid, made, slot, r),
            Class::Suspend => self.suspend(pid, made, slot),
            Class::Kill => self.kill(pid, made, slot),
            Class::Effect => self.effect(pid, made, slot),
            _ => match slot {
                Some(slot) => self.input(pid, made, slot),
                None => self.unrecorded(pid, made),
            },
        }
    }

    /// Looks for a recorded call. Loads what is needed.
    pub fn find(&mut self, pid: i32, key: &Key, class: Class) -> Done<Found> {
        loop {
            match self.process(pid).script.find(key, class) {
                Found::More => self.load(pid)?,
                found => return Ok(found),
            }
        }
    }

    /// A call is a recorded one.
    pub fn agree(&mut self, pid: i32, slot: usize, made: &Made) -> Done {
        // Signals behind it are told with what follows.
        while !self.process(pid).script.is_settled(slot) {
            self.load(pid)?;
        }
        self.comes_to(pid, slot)?;
        let p = self.process(pid);
        let last = p.script.last(p.task.lane);
        p.progress();
        p.asked = 0;
        let skipped = p.script.take(slot);
        let time = p.script.slot(slot).call.time;
        self.time = self.time.max(time);
        self.tally.matched += 1;
        self.tally.lost = 0;
        if let Some(skipped) = skipped {
            self.diverge(
                pid,
                made,
                (Some(skipped), last),
                "the recorded calls before it were left out",
            )?;
        }
        Ok(())
    }

    /// A call is none of the recorded ones.
    pub fn added(&mut self, pid: i32, made: &Made, then: &str) -> Done {
        self.tally.added += 1;
        let p = self.process(pid);
        let (expected, last) = (p.script.expected(p.task.lane), p.script.last(p.task.lane));
        self.diverge(pid, made, (expected, last), then)?;
        self.strayed()
    }

    /// One more call in a row is not recorded.
    pub fn strayed(&mut self) -> Done {
        self.tally.lost += 1;
        if self.tally.lost > LOST {
            let why = format!("it made {LOST} calls in a row that are not recorded");
            return Err(Trouble::Finish(Finish::TooFar(why)));
        }
        Ok(())
    }

    /// A call that cannot be fed.
    pub fn refused(&mut self, pid: i32, made: &Made, why: &str) -> Trouble {
        let side = self.now(pid, made);
        let at = side
            .stack
            .first()
            .map_or(String::new(), |s| format!(" in {s}"));
        Error::Limit(format!(
            "the program cannot be run again: {why}: {}{at}",
            side.call
        ))
        .into()
    }

    /// A call that takes something in, and the recording has nothing for it.
    pub fn nothing(&mut self, pid: i32, made: &Made) -> Trouble {
        let _ = self.added(pid, made, "the run ended");
        let side = self.now(pid, made);
        let why = format!("it asks for more than is recorded: {}", side.call);
        Trouble::Finish(Finish::TooFar(why))
    }

    /// Whether the recorded process failed, so that nobody has recorded what a fixed one asks for behind that. All of the
    /// recording is loaded then.
    pub fn is_past(&mut self, pid: i32) -> Done<bool> {
        let end = self.process(pid).image.end;
        if matches!(end, End::Status(0) | End::Exec | End::Unknown) {
            return Ok(false);
        }
        while !self.process(pid).script.is_loaded() {
            self.load(pid)?;
        }
        Ok(true)
    }

    /// A call that is not recorded and only asks, or takes something in.
    fn unrecorded(&mut self, pid: i32, made: &Made) -> Done {
        if is_in_vdso(made.number) && self.may_pass(pid, made) {
            return self.pass(pid);
        }
        let is_placeholder = made.file().is_some_and(|f| !self.real.contains(&f));
        let number = made.number as i64;
        let past = made.class != Class::Query && self.is_past(pid)?;
        match (made.class, number) {
            (_, SYS_lseek) => {
                self.added(pid, made, "it was computed")?;
                return self.seek(pid, made);
            }
            (_, SYS_nanosleep | SYS_clock_nanosleep) => {
                self.added(pid, made, "no time was waited")?;
                return self.answer(pid, 0);
            }
            (_, SYS_ioctl) => {
                self.added(pid, made, "it was told that this is no terminal")?;
                return self.answer(pid, -ENOTTY as i64 as u64);
            }
            (Class::Query, _) if is_placeholder && number != SYS_fcntl => {
                self.added(pid, made, "it was told an error")?;
                return self.answer(pid, -EIO as i64 as u64);
            }
            (_, SYS_fcntl) if made.args[1] as i32 != F_GETFL => {
                self.added(pid, made, "it was told an error")?;
                return self.answer(pid, -EINVAL as i64 as u64);
            }
            (Class::Query, _) => {}
            (_, SYS_getrusage | SYS_times | SYS_sysinfo | SYS_umask | SYS_getitimer) => {}
            (_, SYS_getdents64 | SYS_getdents | SYS_chdir | SYS_fchdir) if !is_placeholder => {}
            (_, SYS_alarm | SYS_setitimer | SYS_setsid) => {
                self.added(pid, made, "it was not done")?;
                return self.answer(pid, 0);
            }
            _ if past => {
                self.made_up_behind(made, "an error");
                self.added(
                    pid,
                    made,
                    "it was told an error, behind the recorded failure",
                )?;
                return self.answer(pid, -EIO as i64 as u64);
            }
            _ => return Err(self.nothing(pid, made)),
        }
        if !self.may_pass(pid, made) {
            self.added(pid, made, "it was told an error")?;
            return self.answer(pid, -EINVAL as i64 as u64);
        }
        self.tally.here += 1;
        self.added(pid, made, "this machine answered")?;
        self.pass(pid)
    }

    /// Notes what the program was told behind the recorded failure, where nobody knows what it would have been.
    pub fn made_up_behind(&mut self, made: &Made, told: &str) {
        let call = super::tell::words(made.number, &made.args, &made.texts);
        self.note(format!(
            "behind the recorded failure it was told {told}, which is not recorded: {call}"
        ));
    }

    /// The time, if it is not recorded: about that of the recorded call before.
    fn time(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        if let Some(slot) = slot {
            return self.replay(pid, made, slot, true);
        }
        let p = self.process(pid);
        p.asked = p.asked.saturating_add(1);
        if p.asked > ASKED {
            let why =
                format!("it asked for the time {ASKED} times in a row, which is not recorded");
            return Err(Trouble::Finish(Finish::TooFar(why)));
        }
        let goes_faster = p.asked == PATIENT;
        let step = 1000u64 << (p.asked / PATIENT).min(FASTEST);
        if goes_faster {
            self.note(format!(
                "it asked for the time {PATIENT} times in a row, which is not recorded: time goes faster there"
            ));
        }
        self.time = self.time.saturating_add(step);
        let time = match (made.number as i64, made.args[0] as i32) {
            (SYS_clock_gettime, CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_TAI) => self.time,
            // Since the machine was started, or of the processor.
            (SYS_clock_gettime, _) => {
                (self.time.saturating_sub(self.begin.started)).saturating_add(1_000_000_000)
            }
            _ => self.time,
        };
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        let p = self.process(pid);
        let (at, second) = match made.number as i64 {
            SYS_clock_gettime => (made.args[1], rest),
            SYS_gettimeofday => (made.args[0], rest / 1000),
            _ => {
                if made.args[0] != 0 {
                    p.memory.write(made.args[0], &seconds.to_le_bytes())?;
                }
                return self.answer(pid, seconds);
            }
        };
        if at != 0 {
            let both = [seconds.to_le_bytes(), second.to_le_bytes()].concat();
            p.memory.write(at, &both)?;
        }
        self.answer(pid, 0)
    }

    /// A call that changes descriptors. The kernel does it.
    fn descriptors(&mut self, pid: i32, made: &Made) -> Done {
        let makes = match made.number as i64 {
            SYS_dup | SYS_dup2 | SYS_dup3 => true,
            SYS_fcntl => matches!(made.args[1] as i32, F_DUPFD | F_DUPFD_CLOEXEC),
            _ => false,
        };
        if makes {
            return self.pass_and(pid, After::Descriptors);
        }
        let p = self.process(pid);
        let result = Some(0);
        p.table
            .apply(made.number, &made.args, result, None, &mut || 0);
        self.pass(pid)
    }

    fn fork(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        let flags = match made.number as i64 {
            SYS_clone => made.args[0] as i32,
            _ => 0,
        };
        if flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM {
            let why = "it starts a process that shares its memory";
            return Err(self.refused(pid, made, why));
        }
        if flags & CLONE_FILES != 0 {
            return Err(self.refused(pid, made, "it starts a process that shares its descriptors"));
        }
        if !self.may_pass(pid, made) {
            return Err(self.refused(pid, made, "it starts a process of an unusual kind"));
        }
        let Some(slot) = slot else {
            let _ = self.added(pid, made, "the run ended");
            let why = "it starts a process that the recorded one did not start";
            return Err(Trouble::Finish(Finish::TooFar(why.into())));
        };
        match self.process(pid).script.slot(slot).call.result {
            Some(r) if (r as i64) > 0 => self.pass_and(pid, After::Fork(slot)),
            Some(r) => self.answer(pid, r),
            None => Err(self.cut()),
        }
    }

    fn exec(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        let Some(slot) = slot else {
            let _ = self.added(pid, made, "the run ended");
            let why = "it loads a program that the recorded one did not load";
            return Err(Trouble::Finish(Finish::TooFar(why.into())));
        };
        let result = self.process(pid).script.slot(slot).call.result;
        match result {
            Some(r) if r != 0 => self.answer(pid, r),
            _ if self.process(pid).is_shared() => {
                let why = "it loads another program while it has several threads";
                Err(self.refused(pid, made, why))
            }
            _ if !self.is_settled(pid, made) => self.answer(pid, -EACCES as i64 as u64),
            _ => self.pass(pid),
        }
    }

    fn wait(&mut self, pid: i32, made: &Made, slot: Option<usize>, r: Regs) -> Done {
        let Some(slot) = slot else {
            self.added(pid, made, "it was told that there is no child")?;
            return self.answer(pid, -ECHILD as i64 as u64);
        };
        if self.ends_in(pid, slot)? {
            return Ok(());
        }
        if self.send_some(pid, slot, true) {
            // The handler runs first, as it did.
            self.process(pid).task.held = Some(slot);
            return self.make_again(pid, r);
        }
        self.wait_now(pid, made, slot, r)
    }

    fn wait_now(&mut self, pid: i32, made: &Made, slot: usize, r: Regs) -> Done {
        let call = &self.process(pid).script.slot(slot).call;
        let is_id = made.number as i64 == SYS_waitid;
        let child = match call.result {
            Some(0) if is_id => (call.written.first())
                .and_then(|w| {
                    w.bytes
                        .get(12..16)?
                        .iter()
                        .copied()
                        .collect::<Option<Vec<u8>>>()
                })
                .and_then(|b| Some(i32::from_le_bytes(b.try_into().ok()?))),
            Some(r) if (r as i64) > 0 => Some(r as i32),
            _ => None,
        };
        let Some(now) = child.and_then(|c| self.pids.get(&c).copied()) else {
            self.send_some(pid, slot, false);
            return self.replay(pid, made, slot, false);
        };
        let mut new = r;
        if is_id {
            (new.rdi, new.rsi) = (P_PID as u64, now as u64);
            new.r10 &= !(WNOHANG as u64);
        } else {
            new.rdi = now as u64;
            new.rdx &= !(WNOHANG as u64);
        }
        self.process(pid).task.thread.set_regs(&new)?;
        self.pass_and(pid, After::Wait(Box::new(r), slot))
    }

    fn effect(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        if made.number as i64 == SYS_epoll_ctl
            && let Some(slot) = slot
        {
            self.registered(pid, made, slot);
        }
        let moves = [
            SYS_unlink,
            SYS_unlinkat,
            SYS_rmdir,
            SYS_rename,
            SYS_renameat,
            SYS_renameat2,
        ];
        if let Some(name) = &made.given
            && moves.contains(&(made.number as i64))
        {
            self.made_up.remove(name);
        }
        match slot {
            Some(slot) => self.replay(pid, made, slot, true),
            None if self.is_taken(made) => self.answer(pid, -EEXIST as i64 as u64),
            None => self.not_done(pid, made),
        }
    }

    /// An effect that is not recorded. It is not done, and the program is told that it was.
    pub fn not_done(&mut self, pid: i32, made: &Made) -> Done {
        if is_lasting(made.number, &made.args) {
            self.lasting(made);
        }
        self.added(pid, made, "it was not done")?;
        self.answer(pid, 0)
    }

    /// Notes that the program would have changed something outside that the recorded one did not change.
    pub fn lasting(&mut self, made: &Made) {
        let null = |t: &Option<Vec<u8>>| t.as_deref() == Some(b"/dev/null");
        if !made.texts.iter().any(null) {
            self.tally.changes += 1;
            let call = super::tell::words(made.number, &made.args, &made.texts);
            self.note(format!("this was not recorded, and was not done: {call}"));
        }
    }

    /// If the recorded process ended in this call, this one ends too. The call is not done.
    pub fn ends_in(&mut self, pid: i32, slot: usize) -> Done<bool> {
        let p = self.process(pid);
        if p.script.slot(slot).call.result.is_some() {
            return Ok(false);
        }
        let End::Signal(n) = p.image.end else {
            return Ok(false);
        };
        if !is_fatal(n) {
            let why =
                "the recorded program was ended by a signal in this call, and this one is not";
            return Err(Trouble::Finish(Finish::TooFar(why.into())));
        }
        p.task.expected.push(n);
        p.task.thread.queue(n);
        let r = p.task.thread.regs()?;
        self.make_again(pid, r)?;
        Ok(true)
    }
}

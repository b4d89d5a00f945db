//! Threads of a process. One of them runs at a time, so each finds memory as the others have left it. Of those that can go on,
//! the one goes on that did so first in the recording.

use super::calls::Made;
use super::{After, Done, Error, Finish, Process, Rerun, Task, Trouble};
use crate::plan::class::Class;
use crate::plan::script::Found;
use crate::plan::signals::is_fatal;
use crate::wire::End;
use hindsight_remote::{Halt, Regs, Thread};
use libc::*;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs, or a call that the kernel does for it.
    Runs,
    /// It has been made, and does not stand still yet.
    Born,
    /// It stands still, and can go on.
    Ready,
    /// It stands at a call that has this place in the recorded order.
    AtCall(u64),
    /// It waits for others.
    Waits(Wait),
    /// It stands at a call that did not return.
    Stays,
    /// It is over. Only the first thread stays then.
    Gone,
}

/// How a thread waits for others (`futex`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The word that it waits at.
    pub address: u64,
    /// Who wakes it has one of these bits.
    pub bits: u32,
    /// It waits for some time only.
    pub timed: bool,
    /// The recorded thread waited in vain.
    pub expires: bool,
    /// Longer waits have lower numbers.
    pub since: u64,
}

impl Process {
    /// All threads.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        [&self.task].into_iter().chain(&self.others)
    }

    /// All threads.
    pub fn tasks_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        [&mut self.task].into_iter().chain(&mut self.others)
    }

    /// It has other threads, or had them and they have not all gone.
    pub fn is_shared(&self) -> bool {
        !self.others.is_empty()
    }

    /// When a thread goes on, in the recorded order. `None`: it waits for others.
    fn due(&self, t: &Task) -> Option<u64> {
        match t.state {
            State::AtCall(order) => Some(order),
            State::Ready => Some(self.script.next_of(t.lane)),
            State::Waits(w) if w.expires => Some(self.script.next_of(t.lane)),
            _ => None,
        }
    }

    /// The thread that goes on, as a place in `tasks`.
    fn first(&self) -> Option<usize> {
        let all = self.tasks().enumerate();
        let due = all.filter_map(|(n, t)| Some((t.gave_way, self.due(t)?, n)));
        due.min().map(|d| d.2)
    }

    fn nth(&mut self, n: usize) -> &mut Task {
        match n {
            0 => &mut self.task,
            n => &mut self.others[n - 1],
        }
    }

    /// Gives a thread that stands at a call the result.
    fn finish(&mut self, n: usize, result: u64) -> std::io::Result<()> {
        let t = self.nth(n);
        let mut r = t.thread.regs()?;
        (r.orig_rax, r.rax) = (u64::MAX, result);
        t.state = State::Ready;
        t.thread.set_regs(&r)
    }

    /// Wakes up to `most` threads that wait at an address. Those come first that went on first in the recording.
    pub fn wake(&mut self, address: u64, bits: u32, most: usize) -> std::io::Result<u64> {
        let mut woken = 0;
        while woken < most as u64 {
            let script = &self.script;
            let waiting = self.tasks().enumerate().filter_map(|(n, t)| match t.state {
                State::Waits(w) if w.address == address && w.bits & bits != 0 => {
                    Some((script.next_of(t.lane), w.since, n))
                }
                _ => None,
            });
            let Some((_, _, n)) = waiting.min() else {
                break;
            };
            self.finish(n, 0)?;
            woken += 1;
        }
        Ok(woken)
    }

    /// Others have gone on, so who gave way may go on too.
    pub fn progress(&mut self) {
        self.tasks_mut().for_each(|t| t.gave_way = 0);
    }
}

impl Rerun<'_> {
    /// A thread has done what it had to, and goes on. If there are others, it is looked whose turn it is.
    pub fn go_further(&mut self, pid: i32) {
        let p = self.process(pid);
        match p.is_shared() {
            true => self.stand(pid, State::Ready),
            false => p.task.thread.go_on(0),
        }
    }

    /// The thread whose turn it is stands still. Another one may go on.
    pub fn stand(&mut self, pid: i32, state: State) {
        self.process(pid).task.state = state;
        self.free.insert(pid);
    }

    /// The thread lets others go on.
    pub fn give_way(&mut self, pid: i32) {
        let p = self.process(pid);
        p.turns += 1;
        p.task.gave_way = p.turns;
    }

    /// A thread that is not the one whose turn it is stands still, or has ended.
    pub fn other_halted(&mut self, pid: i32, tid: i32, halt: Halt) -> Done {
        if let Halt::Ended(_) = halt {
            return self.thread_over(pid, tid);
        }
        let p = self.process(pid);
        let born = |t: &&mut Task| t.thread.tid() == tid && t.state == State::Born;
        if let Some(t) = p.others.iter_mut().find(born) {
            let (at, id) = (t.id_at, t.tid);
            (t.state, t.is_new) = (State::Ready, false);
            if let Some(at) = at {
                p.memory.write(at, &id.to_le_bytes())?;
            }
            // Who made it may still be in that call.
            if p.task.state != State::Runs {
                self.free.insert(pid);
            }
        }
        Ok(())
    }

    /// The next thread goes on.
    pub fn hand_over(&mut self, pid: i32) -> Done {
        let Some(p) = self.processes.get(&pid) else {
            return Ok(());
        };
        if (p.tasks()).any(|t| matches!(t.state, State::Born | State::Runs)) {
            return Ok(());
        }
        if p.tasks().all(|t| t.state == State::Gone) {
            // The last thread has ended, and so does the process. That will be told.
            return Ok(());
        }
        self.look_ahead(pid)?;
        let p = self.process(pid);
        if p.tasks()
            .any(|t| t.state != State::Gone && !t.thread.stands())
        {
            // The process ends, and that will be told.
            return Ok(());
        }
        let Some(n) = p.first() else {
            return self.all_wait(pid);
        };
        if let State::Waits(_) = p.nth(n).state {
            p.finish(n, -ETIMEDOUT as i64 as u64)?;
        }
        if n > 0 {
            std::mem::swap(&mut p.task, &mut p.others[n - 1]);
        }
        let before = std::mem::replace(&mut p.task.state, State::Runs);
        p.quiet = Default::default();
        if let State::AtCall(_) = before {
            p.task.granted = true;
            return self.call(pid);
        }
        p.task.thread.go_on(0);
        Ok(())
    }

    /// Loads until it is known what each thread that can go on does next.
    fn look_ahead(&mut self, pid: i32) -> Done {
        loop {
            let p = self.process(pid);
            let open = |t: &Task| match t.state {
                State::Ready => !p.script.is_known(t.lane),
                State::Waits(w) => w.expires && !p.script.is_known(t.lane),
                _ => false,
            };
            if !p.tasks().any(open) || p.script.is_loaded() {
                return Ok(());
            }
            self.load(pid)?;
        }
    }

    /// No thread can go on. Those that wait for some time only have waited for long enough.
    fn all_wait(&mut self, pid: i32) -> Done {
        let p = self.process(pid);
        let timed = p.tasks().enumerate().filter_map(|(n, t)| match t.state {
            State::Waits(w) if w.timed => Some((w.since, n)),
            _ => None,
        });
        if let Some((_, n)) = timed.min() {
            p.finish(n, -ETIMEDOUT as i64 as u64)?;
            self.free.insert(pid);
            return Ok(());
        }
        while !self.process(pid).script.is_loaded() {
            self.load(pid)?;
        }
        let p = self.process(pid);
        let alive = p.tasks().position(|t| t.state != State::Gone);
        if let (End::Signal(n), Some(at)) = (p.image.end, alive)
            && is_fatal(n)
            // The recorded ones waited like this only if nothing is left of what they did before.
            && p.script.is_done()
            && !std::mem::replace(&mut p.was_ended, true)
        {
            if at > 0 {
                std::mem::swap(&mut p.task, &mut p.others[at - 1]);
            }
            p.task.state = State::Runs;
            p.task.expected.push(n);
            p.task.thread.queue(n);
            let (r, seen) = (p.task.thread.regs()?, p.pid);
            self.note(format!(
                "all threads of process {seen} wait, like the recorded ones: it got the signal that ended that one ({})",
                crate::signal_name(n)
            ));
            return self.make_again(pid, r);
        }
        let why = "all threads of a process wait for one another, or for what is not recorded";
        Err(Trouble::Finish(Finish::TooFar(why.into())))
    }

    /// Whether a thread that is about to make a call has to let others go on first. It waits at the call then.
    pub fn is_early(&mut self, pid: i32, made: &Made) -> Done<bool> {
        let p = self.process(pid);
        if std::mem::take(&mut p.task.granted) || !p.is_shared() || !made.class.is_matched() {
            return Ok(false);
        }
        if made.file().is_some_and(|f| self.is_kernels(f)) {
            return Ok(false);
        }
        let Found::Slot(slot) = self.find(pid, &made.key, made.class)? else {
            return Ok(false);
        };
        let order = self.process(pid).script.slot(slot).call.order;
        self.stand(pid, State::AtCall(order));
        Ok(true)
    }

    /// Whether a matched call did not return before its process ended. The thread stays in it then.
    pub fn stays(&mut self, pid: i32, slot: usize) -> bool {
        let p = self.process(pid);
        let s = p.script.slot(slot);
        // A program that was loaded does not return to the one before, either.
        let stays = p.is_shared() && s.call.result.is_none() && s.class != Class::Exec;
        if stays {
            self.stand(pid, State::Stays);
        }
        stays
    }

    /// The program starts a thread.
    pub fn start_thread(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        let Some(slot) = slot else {
            let _ = self.added(pid, made, "the run ended");
            let why = "it starts a thread that the recorded one did not start";
            return Err(Trouble::Finish(Finish::TooFar(why.into())));
        };
        if !self.may_pass(pid, made) {
            return Err(self.refused(pid, made, "it starts a thread of an unusual kind"));
        }
        match self.process(pid).script.slot(slot).call.result {
            Some(r) if (r as i64) > 0 => self.pass_and(pid, After::Fork(slot)),
            Some(r) => self.answer(pid, r),
            None => {
                let why =
                    "the recorded process ended before the thread that started another one went on";
                Err(Trouble::Finish(Finish::TooFar(why.into())))
            }
        }
    }

    /// A thread was made.
    pub fn made_thread(&mut self, pid: i32, child: i32, slot: usize) -> Done {
        let p = self.process(pid);
        let recorded = p.script.slot(slot).call.result.unwrap_or(0) as i32;
        let r = p.task.thread.regs()?;
        let sets = |flag: i32| r.rdi as i32 & flag != 0;
        if sets(CLONE_PARENT_SETTID) {
            p.memory.write(r.rdx, &recorded.to_le_bytes())?;
        }
        let mut task = Task::new(Thread::of_process(pid, child), recorded);
        task.state = State::Born;
        task.id_at = Some(r.r10).filter(|_| sets(CLONE_CHILD_SETTID));
        task.clears = Some(r.r10).filter(|_| sets(CLONE_CHILD_CLEARTID));
        p.task.thread.step_call(0);
        let is_it = |m: &&crate::wire::Member| m.tid == recorded;
        let members = self.process(pid).image.others.clone();
        let mut members = members.iter().filter(is_it);
        let Some(member) = members.find(|m| !self.taken.contains(&m.thread)) else {
            let what = "it starts a thread of which nothing is recorded";
            return Err(Error::Limit(what.into()).into());
        };
        self.taken.insert(member.thread);
        self.tally.threads = true;
        task.lane = member.thread;
        self.owners.insert(child, pid);
        self.process(pid).others.push(task);
        match self.early.remove(&child) {
            true => self.other_halted(pid, child, Halt::Other),
            false => Ok(()),
        }
    }

    /// A thread ends by itself.
    pub fn exit_thread(&mut self, pid: i32, made: &Made) -> Done {
        let p = self.process(pid);
        if !p.is_shared() {
            return self.pass(pid);
        }
        let held = p.task.thread.robust_list();
        if held.is_some_and(|head| p.memory.word(head).is_some_and(|next| next != head)) {
            let why = "a thread ends that holds a lock which others then get (robust list)";
            return Err(self.refused(pid, made, why));
        }
        if p.task.thread.tid() != pid {
            return self.pass(pid);
        }
        // The kernel does not tell of the first thread's end before all others have ended.
        if let Some(at) = p.task.clears.take() {
            let _ = p.memory.write(at, &0u32.to_le_bytes());
            p.wake(at, u32::MAX, usize::MAX)?;
        }
        let thread = p.task.thread;
        self.stand(pid, State::Gone);
        thread.go_on(0);
        Ok(())
    }

    /// A thread, not the first one, has ended. The kernel has cleared the word that others wait at.
    pub fn thread_over(&mut self, pid: i32, tid: i32) -> Done {
        self.owners.remove(&tid);
        let p = self.process(pid);
        let is_it = |t: &Task| t.thread.tid() == tid;
        let over = match p.others.iter().position(is_it) {
            Some(n) => p.others.remove(n),
            None => match p.others.pop() {
                Some(next) => std::mem::replace(&mut p.task, next),
                None => return Ok(()),
            },
        };
        self.free.insert(pid);
        if let Some(at) = over.clears {
            self.process(pid).wake(at, u32::MAX, usize::MAX)?;
        }
        Ok(())
    }

    /// A thread that runs without an end may wait for others.
    pub fn interrupt_long(&mut self) {
        for p in self.processes.values_mut() {
            let span = p.script.span(p.task.lane);
            let runs = p.is_shared() && p.task.state == State::Runs;
            if runs && !p.task.interrupted && p.quiet.is_long(span) {
                p.task.interrupted = true;
                p.task.thread.queue(SIGSTOP);
            }
        }
    }

    /// The kernel does not do a call. The program makes it again, behind what has been sent to it.
    pub fn make_again(&mut self, pid: i32, r: Regs) -> Done {
        /// Length of the system call instruction.
        const SYSCALL: u64 = 2;
        let mut again = r;
        (again.rax, again.orig_rax) = (r.orig_rax, u64::MAX);
        again.rip = r.rip.wrapping_sub(SYSCALL);
        let thread = self.process(pid).task.thread;
        thread.set_regs(&again)?;
        thread.go_on(0);
        Ok(())
    }
}

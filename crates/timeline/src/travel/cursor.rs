//! A place in a recording from which to look and to move.

use crate::model::memory::*;
use crate::model::stops::*;
use crate::play::Player;
use crate::search::{self, Hit, Writes};
use crate::{Error, Position, Result, ThreadId, Timeline};
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::access::{self, Access};
use iced_x86::Mnemonic;
use std::collections::VecDeque;

/// Threads whose virtual processors are kept.
const PLAYERS: usize = 12;
const RSP: usize = 4;

/// An instruction that a thread is about to do.
pub(crate) struct Doing {
    mnemonic: Mnemonic,
    /// The address behind it.
    pub next: u64,
    /// The stack pointer before it.
    pub rsp: u64,
}

impl Doing {
    /// Whether it pushes an address to which is to be returned; to the decoder's flow of control, system calls are
    /// calls, too.
    pub fn is_call(&self) -> bool {
        self.mnemonic == Mnemonic::Call
    }

    /// Whether it goes to an address that it takes from the stack.
    pub fn is_return(&self) -> bool {
        self.mnemonic == Mnemonic::Ret
    }
}

/// A place in a recording. Several can exist at the same time.
pub struct Cursor {
    timeline: Timeline,
    thread: ThreadId,
    count: u64,
    /// The cursor's own thread first.
    players: VecDeque<Player>,
    /// What a thread's first instruction writes, once it was asked for.
    first_writes: Option<(ThreadId, Vec<(u64, u64)>)>,
    /// What ends what it is doing.
    cancel: Cancel,
}

impl Cursor {
    pub(crate) fn new(timeline: Timeline) -> Result<Cursor> {
        let threads = timeline.trace().threads();
        let thread = ThreadId(*threads.first().ok_or(Error::Empty)?);
        let mut c = Cursor {
            timeline,
            thread,
            count: 0,
            players: VecDeque::new(),
            first_writes: None,
            cancel: Cancel::new(),
        };
        c.count = c.player(thread)?.from;
        c.place(thread, c.count)?;
        Ok(c)
    }

    /// The recording.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The thread that the cursor is in.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// The program image whose code it executes.
    pub fn image(&self) -> u32 {
        self.timeline.0.image(self.thread)
    }

    /// Instructions that the thread has completed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where the cursor is.
    pub fn position(&self) -> Result<Position> {
        self.timeline.position(self.thread, self.count)
    }

    /// Goes to a position.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        let (thread, count) = self.timeline.locate(position)?;
        self.seek_count(thread, count)
    }

    /// The same, unless it is cancelled: then the cursor stays, and the answer is [`Error::Cancelled`].
    pub fn seek_unless(&mut self, position: Position, cancel: &Cancel) -> Result<()> {
        self.unless(cancel, |c| c.seek(position))
    }

    /// Goes to where a thread has completed this many instructions; beyond its ends, to those.
    pub fn seek_count(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        let p = self.player(thread)?;
        p.leave_entered(count)?;
        self.place(thread, count)
    }

    /// General registers, instruction pointer, flags and segment bases.
    pub fn registers(&mut self) -> Result<CpuState> {
        Ok(self.here()?.registers())
    }

    /// Whether it stands where a run stopped before the first instruction that a thread executes behind a signal that comes
    /// there: registers and memory are then those of the handler, and no longer what was interrupted.
    pub fn has_entered(&mut self) -> Result<bool> {
        self.here()?.has_entered()
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&mut self) -> Result<VecState> {
        Ok(self.here()?.vectors())
    }

    /// The registers of any thread as of the cursor's position in the total order; `None` if it has
    /// not begun.
    pub fn registers_of(&mut self, thread: ThreadId) -> Result<Option<(CpuState, VecState)>> {
        let count = match thread == self.thread {
            true => Some(self.count),
            false => self.timeline.count_at(thread, self.position()?)?,
        };
        let Some(count) = count else { return Ok(None) };
        let other = thread != self.thread;
        let p = self.player(thread)?;
        if other {
            p.leave_entered(count)?;
        }
        p.go(count)?;
        let state = (p.registers(), p.vectors());
        Ok(Some(state))
    }

    /// What is known of `len` bytes of memory from `address` on, what else they may be, and who wrote that.
    pub fn memory(&mut self, address: u64, len: usize) -> Result<Memory> {
        self.memory_unless(address, len, &Cancel::new())
    }

    /// The same, unless it is cancelled: then the cursor stays, and the answer is [`Error::Cancelled`].
    pub fn memory_unless(&mut self, address: u64, len: usize, cancel: &Cancel) -> Result<Memory> {
        crate::value::memory(self, address, len, true, cancel)
    }

    /// The same bytes are known, without looking for what else they may be: where threads that ran at the same time
    /// may have written other values, [`Memory::unnamed`] says which threads, and not all candidates are there, or none.
    /// That is several times as fast, if there are any. (What was written and read since has either of the two grounds,
    /// which may differ from one question to the other.)
    pub fn peek(&mut self, address: u64, len: usize) -> Result<Memory> {
        self.peek_unless(address, len, &Cancel::new())
    }

    /// The same, unless it is cancelled: then the cursor stays, and the answer is [`Error::Cancelled`].
    pub fn peek_unless(&mut self, address: u64, len: usize, cancel: &Cancel) -> Result<Memory> {
        crate::value::memory(self, address, len, false, cancel)
    }

    /// Code bytes at an address as of the cursor's position; those known that follow one another.
    pub fn code(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        let n = self.here()?.code(address, &mut buf);
        buf.truncate(n);
        Ok(buf)
    }

    /// One instruction further or back.
    pub fn step(&mut self, direction: Direction, scope: Scope) -> Result<Stop> {
        let moved = match direction {
            Direction::Forward => self.after(scope)?,
            Direction::Backward => self.before(scope)?,
        };
        let reason = match (moved, direction) {
            (Some((thread, count)), _) => {
                let scan = self.timeline.0.scan(thread)?;
                let count = scan.outside_gap(count, direction);
                self.place(thread, count)?;
                Reason::Step
            }
            (None, Direction::Forward) => Reason::End,
            (None, Direction::Backward) => Reason::Begin,
        };
        self.stop(reason)
    }

    /// One instruction further or back in this thread, calls and all they do counting as one.
    pub fn step_over(&mut self, direction: Direction, cancel: &Cancel) -> Result<Stop> {
        let home = (self.thread, self.count);
        let stop = self.over(direction, cancel);
        self.back_if_ended(home, stop)
    }

    fn over(&mut self, direction: Direction, cancel: &Cancel) -> Result<Stop> {
        if direction == Direction::Forward {
            let Some(call) = self.instruction()?.filter(|i| i.is_call()) else {
                return self.step(direction, Scope::Thread);
            };
            // Recursion comes past it with a lower stack pointer.
            let mut b = Breakpoint::at(0, call.next);
            b.condition = Some(Box::new(move |v| v.registers().gpr[RSP] >= call.rsp));
            let mut stops = Stops {
                breakpoints: vec![b],
                ..Stops::default()
            };
            let stop = self.run(direction, Scope::Thread, &mut stops, cancel)?;
            return self.done(stop);
        }
        let (pc, from) = (self.registers()?.rip, self.count);
        let back = self.step(direction, Scope::Thread)?;
        let returned = self.instruction()?.filter(|i| i.is_return());
        let (Reason::Step, Some(Doing { rsp: slot, .. })) = (&back.reason, returned) else {
            return Ok(back);
        };
        // The call that wrote the return address: usually the last write there. What `vfork` returns from in a child the
        // parent has called.
        let (home, ret) = (self.thread, self.count);
        while let Some(w) = self.last_write(slot, 8, cancel)? {
            self.place(w.thread, w.count)?;
            let call = self.instruction()?.filter(|i| i.is_call());
            let call = call.is_some_and(|i| i.next == pc);
            if call && w.thread == home && w.count < from {
                return self.stop(Reason::Step);
            }
        }
        self.place(home, ret)?;
        self.stop(Reason::Step)
    }

    /// Forwards: behind the return from the present function. Backwards: before the call of it. In
    /// this thread.
    pub fn step_out(&mut self, direction: Direction, cancel: &Cancel) -> Result<Stop> {
        let home = (self.thread, self.count);
        let stop = search::step_out(self, direction, cancel);
        let stop = self.back_if_ended(home, stop)?;
        self.done(stop)
    }

    /// What was cancelled, or failed, leaves the cursor where it was.
    fn back_if_ended(&mut self, home: (ThreadId, u64), stop: Result<Stop>) -> Result<Stop> {
        match stop {
            Ok(Stop {
                reason: Reason::Cancelled,
                ..
            })
            | Err(crate::Error::Cancelled) => {
                self.place(home.0, home.1)?;
                self.stop(Reason::Cancelled)
            }
            Err(e) => {
                self.place(home.0, home.1)?;
                Err(e)
            }
            stop => stop,
        }
    }

    /// Runs to the next or previous stop, the end, or until it is cancelled. The cursor's own
    /// position does not count.
    pub fn run(
        &mut self,
        direction: Direction,
        scope: Scope,
        stops: &mut Stops,
        cancel: &Cancel,
    ) -> Result<Stop> {
        search::run(self, direction, scope, stops, cancel)
    }

    /// The last instruction before the cursor, of any thread of its program image, that wrote any of
    /// these bytes.
    pub fn last_write(&mut self, address: u64, len: u64, cancel: &Cancel) -> Result<Option<Found>> {
        self.find(Direction::Backward, address, len, Watch::Write, cancel)
    }

    /// The writes to these bytes before the cursor, by any thread of its program image, one after the other and the last
    /// one first: the same that [`Cursor::last_write`] finds when the cursor is placed where it found one, again and
    /// again, but many at a time. `shown`: of how many of the bytes, from the first on, it is said what
    /// [`Cursor::peek`] finds behind each write.
    pub fn writes(&self, address: u64, len: u64, shown: usize) -> Result<Writes> {
        Writes::new(self, address, len, shown)
    }

    /// The first instruction from the cursor on, of any thread of its program image, that reads or
    /// writes any of these bytes.
    pub fn first_use(&mut self, address: u64, len: u64, cancel: &Cancel) -> Result<Option<Found>> {
        self.find(Direction::Forward, address, len, Watch::Access, cancel)
    }

    /// The nearest instruction before (or from the cursor on) that accesses any of these bytes in
    /// this way. The cursor stays.
    pub fn find(
        &mut self,
        direction: Direction,
        address: u64,
        len: u64,
        watch: Watch,
        cancel: &Cancel,
    ) -> Result<Option<Found>> {
        let mut stops = Stops {
            watchpoints: vec![Watchpoint {
                id: 0,
                address,
                len,
                watch,
                image: None,
            }],
            ..Stops::default()
        };
        let found = search::nearest(self, direction, Scope::Process, &mut stops, cancel)?;
        let Some(Hit {
            thread: other,
            reason:
                Reason::Watchpoint {
                    count: at,
                    address,
                    len,
                    read,
                    write,
                    kernel,
                    ..
                },
            pc,
            ..
        }) = found
        else {
            return Ok(None);
        };
        let pc = match pc {
            Some(pc) => pc,
            None => {
                let p = self.player(other)?;
                p.go(at)?;
                p.registers().rip
            }
        };
        Ok(Some(Found {
            thread: other,
            position: self.timeline.position(other, at)?,
            count: at,
            pc,
            address,
            len,
            read,
            write,
            kernel,
        }))
    }

    /// The accesses to memory of the instruction at the cursor.
    pub fn accesses(&mut self) -> Result<Vec<Access>> {
        let count = self.count;
        let mut done = crate::access::Done::default();
        done.step(self.here()?, count)?;
        self.place(self.thread, count)?;
        Ok(done.list)
    }

    /// What the instruction at the cursor writes, addresses and lengths, where that is the thread's first one. Many
    /// ask in a row, and play only what comes behind it: the way back leads through all that the thread found in memory.
    pub(crate) fn first_writes(&mut self) -> Result<Vec<(u64, u64)>> {
        if let Some((_, known)) = self.first_writes.as_ref().filter(|f| f.0 == self.thread) {
            return Ok(known.clone());
        }
        let own = self.accesses()?.into_iter().filter(|a| a.write);
        let found: Vec<_> = own.map(|a| (a.address, a.len)).collect();
        self.first_writes = Some((self.thread, found.clone()));
        Ok(found)
    }

    /// The instruction that the thread does next; where the kernel has it go on somewhere else, that one.
    pub(crate) fn instruction(&mut self) -> Result<Option<Doing>> {
        let p = self.here()?;
        p.enter()?;
        let cpu = p.registers();
        let mut code = [0; 15];
        let n = p.code(cpu.rip, &mut code);
        Ok(access::decode(&code[..n], cpu.rip).map(|i| Doing {
            mnemonic: i.mnemonic(),
            next: i.next_ip(),
            rsp: cpu.gpr[RSP],
        }))
    }

    /// An internal stop has done its work.
    fn done(&self, mut stop: Stop) -> Result<Stop> {
        if let Reason::Breakpoint { .. } | Reason::Watchpoint { .. } = stop.reason {
            stop.reason = Reason::Step;
        }
        Ok(stop)
    }

    /// The cursor's place as a stop.
    pub(crate) fn stop(&self, reason: Reason) -> Result<Stop> {
        Ok(Stop {
            thread: self.thread,
            position: self.position()?,
            reason,
        })
    }

    /// Does something that may be cancelled at any moment, also while a part of the index is built for it.
    /// The cursor's virtual processors then stand anywhere.
    pub(crate) fn unless<T>(
        &mut self,
        cancel: &Cancel,
        what: impl FnOnce(&mut Cursor) -> Result<T>,
    ) -> Result<T> {
        let outer = std::mem::replace(&mut self.cancel, cancel.clone());
        let done = what(self);
        self.cancel = outer;
        done
    }

    /// Places the cursor.
    pub(crate) fn place(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        let p = self.player(thread)?;
        let count = count.clamp(p.from, p.to);
        p.go(count)?;
        (self.thread, self.count) = (thread, count);
        Ok(())
    }

    /// Says where the cursor is, whose virtual processor comes there when it is needed.
    pub(crate) fn set_place(&mut self, thread: ThreadId, count: u64) {
        (self.thread, self.count) = (thread, count);
    }

    /// The virtual processor, at the cursor.
    pub(crate) fn here(&mut self) -> Result<&mut Player> {
        let (thread, count) = (self.thread, self.count);
        let p = self.player(thread)?;
        if !p.stands(count) {
            p.go(count)?;
        }
        Ok(p)
    }

    /// A thread's virtual processor, wherever it is.
    pub(crate) fn player(&mut self, thread: ThreadId) -> Result<&mut Player> {
        match self.players.iter().position(|p| p.thread == thread) {
            Some(0) => {}
            Some(i) => {
                if let Some(p) = self.players.remove(i) {
                    self.players.push_front(p);
                }
            }
            None => {
                self.players.truncate(PLAYERS - 1);
                let p = self.new_player(thread)?;
                self.players.push_front(p);
            }
        }
        let player = &mut self.players[0];
        player.cancel = self.cancel.clone();
        Ok(player)
    }

    /// Makes a virtual processor. Where that finds no address space it gives up others, those that were used last at last.
    fn new_player(&mut self, thread: ThreadId) -> Result<Player> {
        use hindsight_replay::Error::AddressSpace;
        loop {
            match Player::new(&self.timeline.0, thread) {
                Err(Error::Replay {
                    cause: AddressSpace { .. },
                    ..
                }) if self.players.pop_back().is_some() => {}
                done => return done,
            }
        }
    }

    /// Takes a thread's virtual processor for a while, which [`Cursor::give_player`] gives back.
    pub(crate) fn take_player(&mut self, thread: ThreadId) -> Result<Player> {
        self.player(thread)?;
        // Just now it became the first.
        self.players.pop_front().ok_or(Error::NoThread(thread))
    }

    /// Takes a virtual processor back; where its thread has one already, as a further one of that.
    pub(crate) fn give_player(&mut self, player: Player) {
        if let Some(p) = self.players.iter_mut().find(|p| p.thread == player.thread) {
            return p.give_helper(Box::new(player));
        }
        self.players.truncate(PLAYERS - 1);
        self.players.push_front(player);
    }

    /// The instant one instruction further in a scope.
    fn after(&self, scope: Scope) -> Result<Option<(ThreadId, u64)>> {
        let s = self.timeline.segment(self.thread, self.count)?;
        if self.count < s.to && (self.count + 1 < s.to || scope == Scope::Thread) {
            return Ok(Some((self.thread, self.count + 1)));
        }
        let to = self.timeline.thread(self.thread)?.to;
        if scope == Scope::Thread {
            return Ok((self.count < to).then_some((self.thread, self.count + 1)));
        }
        // The segment is over: the one that was opened next comes.
        match self
            .timeline
            .opened_after(s.opens, |t| self.within(scope, t))?
        {
            Some(next) => Ok(Some((next.thread, next.from))),
            None if self.count < to => Ok(Some((self.thread, self.count + 1))),
            None => Ok(None),
        }
    }

    /// The instant one instruction back in a scope.
    fn before(&self, scope: Scope) -> Result<Option<(ThreadId, u64)>> {
        let s = self.timeline.segment(self.thread, self.count)?;
        let from = self.timeline.0.scan(self.thread)?.from;
        if scope == Scope::Thread || self.count > s.from {
            return Ok((self.count > from).then(|| (self.thread, self.count - 1)));
        }
        let last = self
            .timeline
            .opened_before(s.opens, |t| self.within(scope, t))?;
        Ok(last.map(|s| (s.thread, s.to - 1)))
    }

    /// The first and last instant of a scope, for a cursor in thread `home`.
    pub(crate) fn scope_ends(
        &self,
        home: ThreadId,
        scope: Scope,
    ) -> Result<((ThreadId, u64), (ThreadId, u64))> {
        let scan = self.timeline.0.scan(home)?;
        let mut ends = ((home, scan.from), (home, scan.to));
        for (t, s) in self.timeline.scans()? {
            if !self.within(scope, *t) {
                continue;
            }
            let at = |(t, n): (ThreadId, u64)| self.timeline.position(t, n);
            if at((*t, s.from))? < at(ends.0)? {
                ends.0 = (*t, s.from);
            }
            if at((*t, s.to))? > at(ends.1)? {
                ends.1 = (*t, s.to);
            }
        }
        Ok(ends)
    }

    /// Whether a thread belongs to a scope.
    pub(crate) fn within(&self, scope: Scope, t: ThreadId) -> bool {
        match scope {
            Scope::Thread => t == self.thread,
            Scope::Process => self.timeline.0.image(t) == self.image(),
            Scope::All => true,
        }
    }
}

impl View for Player {
    fn registers(&self) -> CpuState {
        Player::registers(self)
    }
    fn vectors(&self) -> VecState {
        Player::vectors(self)
    }
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<bool> {
        crate::value::read(self, address, buf)
    }
}

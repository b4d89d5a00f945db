//! An instant of a recording, and the virtual processors that show it.

use super::Player;
use crate::engine::Engine;
use crate::model::stops::{Cancel, Reason, Scope, Stop};
use crate::{Error, Position, Result, ThreadId};
use hindsight_isa::CpuState;
use hindsight_replay::access;
use iced_x86::Mnemonic;
use std::collections::VecDeque;
use std::sync::Arc;

/// Threads whose virtual processors are kept.
const PLAYERS: usize = 12;
const RSP: usize = 4;

/// An instruction that a thread is about to do.
pub struct Doing {
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

/// An instant of a recording, from which questions look. Whoever asks may have it go elsewhere on the way to an
/// answer; [`crate::Cursor`] is one for users.
pub struct Viewpoint {
    engine: Arc<Engine>,
    thread: ThreadId,
    count: u64,
    /// The viewpoint's own thread first.
    players: VecDeque<Player>,
    /// What a thread's first instruction writes, once it was asked for.
    pub first_writes: Option<(ThreadId, Vec<(u64, u64)>)>,
    /// What ends what it is doing.
    cancel: Cancel,
}

impl Viewpoint {
    /// At the first instruction of the first thread.
    pub fn new(engine: Arc<Engine>) -> Result<Viewpoint> {
        let thread = *engine.threads.first().ok_or(Error::Empty)?;
        let mut v = Viewpoint {
            engine,
            thread,
            count: 0,
            players: VecDeque::new(),
            first_writes: None,
            cancel: Cancel::new(),
        };
        v.count = v.player(thread)?.from;
        v.set_position(thread, v.count)?;
        Ok(v)
    }

    /// The recording, and what is known of it.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The thread that the viewpoint is in.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// The program image whose code it executes.
    pub fn image(&self) -> u32 {
        self.engine.image(self.thread)
    }

    /// Instructions that the thread has completed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where the viewpoint is.
    pub fn position(&self) -> Result<Position> {
        self.engine.position(self.thread, self.count)
    }

    /// Goes to where a thread has completed this many instructions; beyond its ends, to those.
    pub fn seek_count(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        let p = self.player(thread)?;
        p.leave_entered(count)?;
        self.set_position(thread, count)
    }

    /// General registers, instruction pointer, flags and segment bases.
    pub fn registers(&mut self) -> Result<CpuState> {
        Ok(self.here()?.registers())
    }

    /// Code bytes at an address as of the viewpoint's position; those known that follow one another.
    pub fn code(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        let n = self.here()?.code(address, &mut buf);
        buf.truncate(n);
        Ok(buf)
    }

    /// The instruction that the thread does next; where the kernel has it go on somewhere else, that one.
    pub fn instruction(&mut self) -> Result<Option<Doing>> {
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

    /// The viewpoint's place as a stop.
    pub fn stop(&self, reason: Reason) -> Result<Stop> {
        Ok(Stop {
            thread: self.thread,
            position: self.position()?,
            reason,
        })
    }

    /// Does something that may be cancelled at any moment, also while a part of the index is built for it.
    /// The virtual processors then stand anywhere.
    pub fn cancellable<T>(
        &mut self,
        cancel: &Cancel,
        what: impl FnOnce(&mut Viewpoint) -> Result<T>,
    ) -> Result<T> {
        let outer = self.set_cancel(cancel.clone());
        let done = what(self);
        self.set_cancel(outer);
        done
    }

    /// What ends what it is doing.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// From now on this one does; returns what did.
    pub fn set_cancel(&mut self, cancel: Cancel) -> Cancel {
        std::mem::replace(&mut self.cancel, cancel)
    }

    /// Places the viewpoint.
    pub fn set_position(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        let p = self.player(thread)?;
        let count = count.clamp(p.from, p.to);
        p.go(count)?;
        (self.thread, self.count) = (thread, count);
        Ok(())
    }

    /// Says where the viewpoint is, whose virtual processor comes there when it is needed.
    pub fn note_position(&mut self, thread: ThreadId, count: u64) {
        (self.thread, self.count) = (thread, count);
    }

    /// The virtual processor, at the viewpoint.
    pub fn here(&mut self) -> Result<&mut Player> {
        let (thread, count) = (self.thread, self.count);
        let p = self.player(thread)?;
        if !p.stands(count) {
            p.go(count)?;
        }
        Ok(p)
    }

    /// A thread's virtual processor, wherever it is.
    pub fn player(&mut self, thread: ThreadId) -> Result<&mut Player> {
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
            match Player::new(&self.engine, thread) {
                Err(Error::Replay {
                    cause: AddressSpace { .. },
                    ..
                }) if self.players.pop_back().is_some() => {}
                done => return done,
            }
        }
    }

    /// Takes a thread's virtual processor for a while, which [`Cursor::give_player`] gives back.
    pub fn take_player(&mut self, thread: ThreadId) -> Result<Player> {
        self.player(thread)?;
        // Just now it became the first.
        self.players.pop_front().ok_or(Error::NoThread(thread))
    }

    /// Takes a virtual processor back; where its thread has one already, as a further one of that.
    pub fn give_player(&mut self, player: Player) {
        if let Some(p) = self.players.iter_mut().find(|p| p.thread == player.thread) {
            return p.give_helper(Box::new(player));
        }
        self.players.truncate(PLAYERS - 1);
        self.players.push_front(player);
    }

    /// The first and last instant of a scope, for a viewpoint in thread `home`.
    pub fn scope_bounds(
        &self,
        home: ThreadId,
        scope: Scope,
    ) -> Result<((ThreadId, u64), (ThreadId, u64))> {
        let scan = self.engine.scan(home)?;
        let mut ends = ((home, scan.from), (home, scan.to));
        for (t, s) in self.engine.scans()? {
            if !self.within(scope, *t) {
                continue;
            }
            let at = |(t, n): (ThreadId, u64)| self.engine.position(t, n);
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
    pub fn within(&self, scope: Scope, t: ThreadId) -> bool {
        match scope {
            Scope::Thread => t == self.thread,
            Scope::Process => self.engine.image(t) == self.image(),
            Scope::All => true,
        }
    }
}

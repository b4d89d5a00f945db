//! An instant of a recording, and the virtual processors that show it.

use super::Player;
use crate::engine::Engine;
use crate::model::stops::{Cancel, Reason, Scope, Stop};
use crate::{Error, Position, Result, ThreadId};
use hindsight_isa::CpuState;
use hindsight_isa::regs::RSP;
use hindsight_replay::access;
use iced_x86::Mnemonic;
use std::collections::VecDeque;
use std::sync::Arc;

/// The virtual processors of this many threads stay in memory.
const PLAYERS: usize = 12;

/// An instruction that a thread is about to execute.
pub struct Doing {
    mnemonic: Mnemonic,
    /// The address after it.
    pub next: u64,
    /// The stack pointer before it.
    pub rsp: u64,
}

impl Doing {
    /// Whether it is a call that pushes a return address. The decoder's flow of control takes system calls for calls,
    /// too.
    pub fn is_call(&self) -> bool {
        self.mnemonic == Mnemonic::Call
    }

    /// Whether it jumps to an address that it takes from the stack.
    pub fn is_return(&self) -> bool {
        self.mnemonic == Mnemonic::Ret
    }
}

/// An instant of a recording from which questions look. A question may move it on the way to an answer. Users have a
/// [`crate::Cursor`] instead.
pub struct Viewpoint {
    engine: Arc<Engine>,
    thread: ThreadId,
    count: u64,
    /// The players. The one of the viewpoint's own thread comes first.
    players: VecDeque<Player>,
    /// What a thread's first instruction writes, once somebody has asked.
    pub first_writes: Option<(ThreadId, Vec<(u64, u64)>)>,
    /// Cancels what it does.
    cancel: Cancel,
}

impl Viewpoint {
    /// A viewpoint at the first instruction of the first thread.
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

    /// The recording with its index.
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

    /// The number of instructions that the thread has completed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where the viewpoint is.
    pub fn position(&self) -> Result<Position> {
        self.engine.position(self.thread, self.count)
    }

    /// Goes to where a thread has completed `count` instructions. A count outside the thread's range goes to its first
    /// or last instant.
    pub fn seek_count(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        let p = self.player(thread)?;
        p.leave_entered(count)?;
        self.set_position(thread, count)
    }

    /// General registers, instruction pointer, flags and segment bases.
    pub fn registers(&mut self) -> Result<CpuState> {
        Ok(self.here()?.registers())
    }

    /// Code bytes from `address` on, at the viewpoint's position. They end, before `len`, at the first byte that is not
    /// known.
    pub fn code(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        let n = self.here()?.code(address, &mut buf);
        buf.truncate(n);
        Ok(buf)
    }

    /// The instruction that the thread executes next. If the kernel lets the thread go on elsewhere, it is the one
    /// there.
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

    /// A stop at the viewpoint's position.
    pub fn stop(&self, reason: Reason) -> Result<Stop> {
        Ok(Stop {
            thread: self.thread,
            position: self.position()?,
            reason,
        })
    }

    /// The flag that cancels what it does, even while a part of the index is built for it. Its virtual processors have
    /// the same one. They may stand anywhere after they were cancelled.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Sets the flag that cancels what it does. Returns the old one.
    pub fn set_cancel(&mut self, cancel: Cancel) -> Cancel {
        std::mem::replace(&mut self.cancel, cancel)
    }

    /// Goes back to where a search began. The virtual processor goes there when it is needed: that may take long, and the
    /// search may have been cancelled.
    pub fn go_back(&mut self, (thread, count): (ThreadId, u64)) {
        self.note_position(thread, count);
        self.engine.look_at(thread, count);
    }

    /// Moves the viewpoint.
    pub fn set_position(&mut self, thread: ThreadId, count: u64) -> Result<()> {
        let p = self.player(thread)?;
        let count = count.clamp(p.from, p.to);
        p.go(count)?;
        (self.thread, self.count) = (thread, count);
        self.engine.look_at(thread, count);
        Ok(())
    }

    /// Notes where the viewpoint is. Its virtual processor goes there when it is needed.
    pub fn note_position(&mut self, thread: ThreadId, count: u64) {
        (self.thread, self.count) = (thread, count);
    }

    /// The virtual processor, at the viewpoint's instant.
    pub fn here(&mut self) -> Result<&mut Player> {
        let (thread, count) = (self.thread, self.count);
        let p = self.player(thread)?;
        if !p.stands(count) {
            p.go(count)?;
        }
        Ok(p)
    }

    /// The virtual processor of a thread, wherever it stands.
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

    /// Makes a virtual processor. If there is no address space for it, it evicts the least recently used players first.
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

    /// Takes a thread's virtual processor for a while. [`Viewpoint::give_player`] gives it back.
    pub fn take_player(&mut self, thread: ThreadId) -> Result<Player> {
        self.player(thread)?;
        // `player` has just put it first.
        self.players.pop_front().ok_or(Error::NoThread(thread))
    }

    /// Takes a virtual processor back. If its thread has another one now, it becomes that one's helper.
    pub fn give_player(&mut self, player: Player) {
        if let Some(p) = self.players.iter_mut().find(|p| p.thread == player.thread) {
            return p.give_helper(Box::new(player));
        }
        self.players.truncate(PLAYERS - 1);
        self.players.push_front(player);
    }

    /// The first and the last instant of a scope, for a viewpoint in thread `home`.
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

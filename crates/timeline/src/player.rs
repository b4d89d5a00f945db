//! One thread on a virtual processor that can be anywhere in its stream.

use crate::timeline::{Inner, replay};
use crate::{Error, Result, ThreadId};
use hindsight_isa::{CpuState, Predictor, VecState};
use hindsight_replay::{Machine, Source, Stop};
use std::sync::Arc;

/// Plays one thread.
pub struct Player {
    inner: Arc<Inner>,
    pub thread: ThreadId,
    machine: Machine<'static>,
    /// Something has been played.
    placed: bool,
    /// First and last instruction count of the thread.
    pub from: u64,
    pub to: u64,
}

/// The chunks of a stream from one on.
struct Chunks {
    inner: Arc<Inner>,
    thread: ThreadId,
    next: usize,
}

impl Source for Chunks {
    fn next_chunk(&mut self) -> std::result::Result<Option<Vec<u8>>, hindsight_replay::Error> {
        let Some(c) = self.inner.trace.chunks(self.thread.0).get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        Ok(Some(self.inner.trace.load(c)?))
    }
}

impl Player {
    pub fn new(inner: &Arc<Inner>, thread: ThreadId) -> Result<Player> {
        let chunks = inner.trace.chunks(thread.0);
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
            return Err(Error::NoThread(thread));
        };
        let code = inner.code(inner.image(thread), thread)?;
        let machine = Machine::new(code, Predictor::WINDOW).map_err(|e| replay(thread, e))?;
        Ok(Player {
            from: first.first_pos,
            to: last.last_pos,
            inner: Arc::clone(inner),
            thread,
            machine,
            placed: false,
        })
    }

    /// Instructions completed.
    pub fn count(&self) -> u64 {
        self.machine.position()
    }

    pub fn registers(&self) -> CpuState {
        self.machine.registers()
    }

    pub fn vectors(&self) -> VecState {
        self.machine.vectors()
    }

    /// Code bytes at `addr`, as of now.
    pub fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.machine.code(addr, buf)
    }

    /// Stops before these addresses in [`Player::run`].
    pub fn set_breaks(&mut self, addresses: Vec<u64>) {
        self.machine.set_breaks(addresses);
    }

    /// Goes to where `count` instructions are completed.
    pub fn seek(&mut self, count: u64) -> Result<()> {
        let count = count.clamp(self.from, self.to);
        let chunks = self.inner.trace.chunks(self.thread.0);
        let frame = chunks
            .iter()
            .rposition(|c| c.keyframe && c.first_pos <= count);
        let start = frame.unwrap_or(0);
        let ahead = self.placed && self.count() <= count;
        if !ahead || self.count() < chunks[start].first_pos {
            let source = Chunks {
                inner: Arc::clone(&self.inner),
                thread: self.thread,
                next: start,
            };
            self.placed = false;
            let begun = self.machine.from_keyframe(Box::new(source));
            begun.map_err(|e| replay(self.thread, e))?;
            self.placed = true;
        }
        self.machine.set_breaks(Vec::new());
        while self.count() < count {
            if self.run(count)? != Stop::Position {
                break;
            }
        }
        Ok(())
    }

    /// Plays until `count` instructions are completed, or a break, or the end.
    pub fn run(&mut self, count: u64) -> Result<Stop> {
        let thread = self.thread;
        self.machine.run_to(count).map_err(|e| replay(thread, e))
    }
}

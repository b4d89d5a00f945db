//! Mispredictions: reads that differ from their prediction. Brings the shadow memory up to date,
//! line by line, and records what that changed.
//!
//! The differential tests implement [`Shadow`] for threads of their own, and so run the same code.

use crate::run::lines::{self, Words};
use crate::sys::guard::{self, Fault};
use hindsight_events::Event;
use hindsight_events::event::LINE;
use hindsight_isa::string::StringMemory;
use hindsight_isa::{Ctx, Predictor, VecState};

/// A thread whose reads are predicted.
pub trait Shadow {
    /// Its context block.
    fn ctx(&self) -> &Ctx;

    /// Its vector registers.
    fn vec(&mut self) -> VecState;

    /// The control word of its x87.
    fn x87_control(&mut self) -> u16 {
        self.vec().fcw
    }

    /// Address of the cell of guest address `a`.
    fn cell(&self, a: u64) -> *mut u8;

    /// Geometry of its window.
    fn predictor(&self) -> Predictor;

    /// Whether it runs plain code, which does not touch the window.
    fn is_plain(&self) -> bool;

    /// Appends an event at the present position.
    fn event(&mut self, ev: &Event);

    /// Counts a read that differed from its prediction.
    fn count_misprediction(&mut self);

    /// Ends the recording: the recorder does not know the instruction at `pc`.
    fn unsupported(&mut self, pc: u64) -> !;

    /// Makes the cells agree with memory, for all lines that `addr..addr+len` touches. Returns
    /// whether anything differed. Fails where memory cannot be read.
    fn fill(&mut self, addr: u64, len: u64) -> Result<bool, Fault> {
        let mut changed = false;
        let last = addr.wrapping_add(len.max(1) - 1) & !(LINE - 1);
        let mut line = addr & !(LINE - 1);
        loop {
            // The processor would report the first byte that was asked for, not the beginning of
            // its line.
            changed |= self.fill_line(line).map_err(|f| match f.addr {
                0 => f,
                at => Fault {
                    addr: at.max(addr),
                    ..f
                },
            })?;
            if line == last {
                return Ok(changed);
            }
            line = line.wrapping_add(LINE);
        }
    }

    /// [`Shadow::fill`] for the line that begins at `line`.
    fn fill_line(&mut self, line: u64) -> Result<bool, Fault> {
        let now = lines::load(line)?;
        if self.is_plain() {
            return Ok(false);
        }
        let old = self.set_line(line, &now);
        let mask = lines::difference(&old, &now);
        if mask != 0 {
            let mut words = now;
            for (i, w) in words.iter_mut().enumerate() {
                *w *= (mask >> i & 1) as u64;
            }
            self.count_misprediction();
            self.event(&Event::Patch { line, mask, words });
        }
        Ok(mask != 0)
    }

    /// Sets the cells of the line that begins at `line`, where they differ. Returns what they held.
    fn set_line(&mut self, line: u64, now: &Words) -> Words {
        let cells = self.cell(line).cast::<Words>();
        // SAFETY: `cells` is the cell of the line's first byte, and the window's size is a multiple of 64. So the line's 64 cells
        // are contiguous, and aligned as the line is. Nothing else refers to them.
        let cells = unsafe { &mut *cells };
        let old = *cells;
        if old != *now {
            *cells = *now;
        }
        old
    }

    /// Sets the cells of `addr..addr+len` to the low bytes of `value`, and no others. `len` is at
    /// most 8. The instruction read `value` there, but memory does not hold it any more.
    fn fill_value(&mut self, addr: u64, len: u8, value: u64) {
        for (i, b) in value.to_le_bytes()[..len.min(8) as usize]
            .iter()
            .enumerate()
        {
            // SAFETY: `cell` gives an address in the window.
            unsafe { *self.cell(addr.wrapping_add(i as u64)) = *b }
        }
        let value = if len < 8 {
            value & ((1 << (8 * len)) - 1)
        } else {
            value
        };
        self.count_misprediction();
        self.event(&Event::PatchBytes { addr, len, value });
    }

    /// Calls `f` for each contiguous piece of the cells of `addr..addr+len`, with its first cell,
    /// its offset from `addr` and its length.
    fn cells(&self, addr: u64, len: usize, mut f: impl FnMut(*mut u8, usize, usize)) {
        let mut at = 0;
        while at < len {
            let a = addr.wrapping_add(at as u64);
            let room = (self.predictor().size() - self.predictor().cell(a)) as usize;
            let n = room.min(len - at);
            f(self.cell(a), at, n);
            at += n;
        }
    }

    /// Whether the cells of `addr` hold `bytes`.
    fn agrees(&self, addr: u64, bytes: &[u8]) -> bool {
        let mut same = true;
        self.cells(addr, bytes.len(), |p, at, n| {
            // SAFETY: `cells` gives `n` cells from `p` on that lie in the window.
            same &= unsafe { core::slice::from_raw_parts(p, n) } == &bytes[at..at + n];
        });
        same
    }

    /// Reads the cells of `addr` and the following addresses into `buf`.
    fn read_cells(&self, addr: u64, buf: &mut [u8]) {
        let len = buf.len();
        self.cells(addr, len, |p, at, n| {
            // SAFETY: `cells` gives `n` cells from `p` on that lie in the window. `buf` is not part
            // of it.
            unsafe { core::ptr::copy_nonoverlapping(p, buf[at..].as_mut_ptr(), n) }
        });
    }

    /// Sets the cells of `addr` and the following addresses to `bytes`. Does nothing in plain code.
    fn write_cells(&mut self, addr: u64, bytes: &[u8]) {
        if self.is_plain() {
            return;
        }
        self.cells(addr, bytes.len(), |p, at, n| {
            // SAFETY: `cells` gives `n` cells from `p` on that lie in the window. `bytes` is not
            // part of it.
            unsafe { core::ptr::copy_nonoverlapping(bytes[at..].as_ptr(), p, n) }
        });
    }
}

/// Memory and its cells together, for a string instruction.
pub struct Both<'a, T: Shadow> {
    t: &'a mut T,
    done: u64,
    announced: bool,
}

impl<T: Shadow> Both<'_, T> {
    /// For a string instruction of which `from` iterations are done.
    pub fn new(t: &mut T, from: u64) -> Both<'_, T> {
        Both {
            t,
            done: from,
            announced: from == 0,
        }
    }
}

impl<T: Shadow> StringMemory for Both<'_, T> {
    type Stop = (Fault, u64);

    fn chunk(&mut self, done: u64) -> Result<u64, Self::Stop> {
        self.done = done;
        self.announced = done == 0;
        Ok(u64::MAX)
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Self::Stop> {
        guard::read(addr, buf).map_err(|f| (f, self.done))?;
        if self.t.is_plain() {
            return Ok(());
        }
        if !self.t.agrees(addr, buf) {
            if !self.announced {
                self.announced = true;
                self.t.event(&Event::RepChunk {
                    iterations: self.done,
                });
            }
            self.t
                .fill(addr, buf.len() as u64)
                .map_err(|f| (f, self.done))?;
            // The instruction has to use what replay will find in the cells.
            self.t.read_cells(addr, buf);
        }
        Ok(())
    }

    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Self::Stop> {
        guard::write(addr, buf).map_err(|f| (f, self.done))?;
        self.t.write_cells(addr, buf);
        Ok(())
    }
}

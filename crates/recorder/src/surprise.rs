//! Reads that differ from their prediction: brings the predictor up to date, line by line, and
//! records what that changed.

use crate::guard::{self, Fault};
use crate::thread::Thread;
use hindsight_events::Event;
use hindsight_events::event::LINE;

impl Thread {
    /// Makes the predictor agree with memory for the lines of `addr..addr+len`. Returns whether
    /// anything differed.
    pub fn fill(&mut self, addr: u64, len: u64) -> Result<bool, Fault> {
        let mut changed = false;
        let last = addr.wrapping_add(len.max(1) - 1) & !(LINE - 1);
        let mut line = addr & !(LINE - 1);
        loop {
            // The fault is at the first byte that was asked for, not at the line's.
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

    /// [`Thread::fill`] for one line.
    pub fn fill_line(&mut self, line: u64) -> Result<bool, Fault> {
        let mut real = [0u8; LINE as usize];
        guard::load_line(line, &mut real)?;
        if self.is_plain() {
            return Ok(false);
        }
        let cell = self.cell(line).cast::<u64>();
        let mut words = [0; 8];
        let mut mask = 0;
        for (i, w) in words.iter_mut().enumerate() {
            let mut b = [0; 8];
            b.copy_from_slice(&real[8 * i..8 * i + 8]);
            let now = u64::from_le_bytes(b);
            // SAFETY: a line's cells are contiguous in the window and aligned as the line is.
            unsafe {
                if *cell.add(i) != now {
                    *cell.add(i) = now;
                    *w = now;
                    mask |= 1 << i;
                }
            }
        }
        if mask != 0 {
            self.surprises += 1;
            self.event(&Event::Patch { line, mask, words });
        }
        Ok(mask != 0)
    }

    /// Records what the kernel, or the recorder in its place, has put into memory: `bytes` at `addr`.
    pub fn put(&mut self, addr: u64, bytes: &[u8]) {
        if self.is_plain() {
            return;
        }
        self.write_cells(addr, bytes);
        self.event(&Event::Memory { addr, bytes });
    }

    /// Sets exactly the cells of `addr..addr+len` (at most 8) to the low bytes of `value`, which was
    /// read there and is in memory no longer.
    pub fn fill_value(&mut self, addr: u64, len: u8, value: u64) {
        for (i, b) in value.to_le_bytes()[..len.min(8) as usize]
            .iter()
            .enumerate()
        {
            // SAFETY: a cell of the window.
            unsafe { *self.cell(addr.wrapping_add(i as u64)) = *b }
        }
        let value = if len < 8 {
            value & ((1 << (8 * len)) - 1)
        } else {
            value
        };
        self.surprises += 1;
        self.event(&Event::PatchBytes { addr, len, value });
    }
}

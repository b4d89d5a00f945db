//! What a machine shows where it stands.

use super::Machine;
use hindsight_isa::{CpuState, VecState};

impl Machine<'_> {
    /// Copies known code bytes at `addr`, as the next instruction finds them. Returns the number of bytes copied.
    pub fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.cpu.code.fetch(addr, self.epoch_of_code(), buf)
    }

    /// Hands all known code bytes of a stretch of `len` bytes to `each`, piece by piece, as the next instruction finds them. A
    /// piece comes with its offset.
    pub fn known_code(&self, addr: u64, len: usize, each: &mut dyn FnMut(usize, &[u8])) {
        self.cpu.code.known(addr, self.epoch_of_code(), len, each);
    }

    fn epoch_of_code(&self) -> u64 {
        // Where the machine has stopped, an event that says so may still be due.
        let epoch = self.queue.epoch_due(self.cpu.pos);
        epoch.unwrap_or(self.cpu.epoch)
    }

    /// Number of instructions completed.
    pub fn position(&self) -> u64 {
        self.cpu.pos
    }

    /// General-purpose registers, instruction pointer, flags and segment bases.
    pub fn registers(&self) -> CpuState {
        self.cpu.registers()
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&self) -> VecState {
        self.processor.vectors()
    }

    /// Copies the cells of the addresses from `addr` on. A cell holds what the program last read or wrote
    /// there since the last key frame. Another address that shares the cell may have replaced it.
    pub fn read_window(&self, addr: u64, buf: &mut [u8]) {
        self.cpu.window.read(addr, buf);
    }

    /// The cells of a page of the window, by its number.
    pub fn window_page(&self, page: u32) -> &[u8; 4096] {
        self.cpu.window.page(page)
    }
}

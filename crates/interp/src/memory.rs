//! What an interpreter executes in: memory and code.

/// Memory by guest addresses. It wraps as the implementation wants, and never fails: an access that the recorded
/// program could not make is an event of the recording.
pub trait Memory {
    /// The `N` bytes at `addr`, at most 64.
    fn load<const N: usize>(&mut self, addr: u64) -> [u8; N];

    /// Stores `N` bytes at `addr`, at most 64.
    fn store<const N: usize>(&mut self, addr: u64, bytes: [u8; N]);

    /// Reads bytes from `addr` on.
    fn read(&mut self, addr: u64, buf: &mut [u8]);

    /// Writes bytes from `addr` on.
    fn write(&mut self, addr: u64, buf: &[u8]);

    /// An instruction has saved registers in the `len` bytes from `addr` on. What it wrote is not computed: the recording has it
    /// when the program reads it. Until then, what is there is unknown.
    fn saved(&mut self, addr: u64, len: u64);
}

/// Code by guest addresses.
pub trait Code {
    /// Copies known bytes from `addr` on. Returns their number.
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize;
}

//! The instruction by which a program speaks to its recorder: `nop dword [rax + rax + MAGIC]`. On a
//! bare processor it does nothing.
//!
//! Registers have the request:
//!
//! - rdi: what is asked for ([`request`]);
//! - rsi and rdx: address and length of a mark's name;
//! - rcx and r8: address and length of a mark's payload.
//!
//! rax has the answer: 1 if the thread is recorded, 0 if it is translated but not recorded. The
//! bare processor leaves rax alone.

/// Displacement of the instruction's operand: "HSMK".
pub const MAGIC: u32 = u32::from_le_bytes(*b"HSMK");

/// The bytes of the instruction.
pub const CODE: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, b'H', b'S', b'M', b'K'];

/// Longest name of a mark, in bytes. The rest is cut.
pub const NAME_MAX: usize = 256;

/// Longest payload of a mark, in bytes. The rest is cut.
pub const PAYLOAD_MAX: usize = 4096;

/// Values of rdi.
pub mod request {
    /// Only asks whether the thread is recorded.
    pub const ASK: u64 = 0;
    /// The thread is to be recorded from here on.
    pub const START: u64 = 1;
    /// The thread is not to be recorded from here on.
    pub const STOP: u64 = 2;
    /// Sets a mark, with a name and a payload.
    pub const MARK: u64 = 3;
    /// Sets a mark, and has all memory recorded right behind it, if nobody but the kernel can change it.
    pub const STATE: u64 = 4;
}

//! The instruction by which a program speaks to its recorder, and which does nothing elsewhere: `nop
//! dword [rax + rax + MAGIC]` with a request in registers. rdi says what is asked for ([`request`]); a
//! mark's name is at rsi (rdx bytes) and its payload at rcx (r8 bytes). rax is set to 1 if the thread is
//! recorded, to 0 if it is translated and not recorded, and left alone by the bare processor.

/// Displacement of the instruction's operand: "HSMK".
pub const MAGIC: u32 = u32::from_le_bytes(*b"HSMK");

/// The instruction.
pub const CODE: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, b'H', b'S', b'M', b'K'];

/// Longest name of a mark, in bytes; the rest is cut.
pub const NAME_MAX: usize = 256;

/// Longest payload of a mark, in bytes; the rest is cut.
pub const PAYLOAD_MAX: usize = 4096;

/// Values of rdi.
pub mod request {
    /// Only asks.
    pub const ASK: u64 = 0;
    /// The thread is to be recorded from here on.
    pub const START: u64 = 1;
    /// The thread is not to be recorded from here on.
    pub const STOP: u64 = 2;
    /// A mark.
    pub const MARK: u64 = 3;
}

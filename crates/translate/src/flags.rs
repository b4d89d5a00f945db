//! Which status flags are needed at a place. A flag that is not needed may be changed by a check.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, RflagsBits};

/// The six status flags.
pub const ALL: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// Instructions looked at beyond a block's exit.
const PEEK: usize = 8;

/// Flags needed before `i`, if `after` are needed behind it.
pub fn before(i: &Instruction, after: u32) -> u32 {
    (after & !killed(i)) | (reads(i) & ALL)
}

/// Flags whose old value `i` uses.
pub fn reads(i: &Instruction) -> u32 {
    match i.mnemonic() {
        // r11 receives all flags.
        Mnemonic::Syscall => ALL,
        _ => i.rflags_read() & ALL,
    }
}

/// Flags that `i` certainly overwrites, whatever its operands.
fn killed(i: &Instruction) -> u32 {
    use Mnemonic::*;
    let defined = (i.rflags_written() | i.rflags_cleared() | i.rflags_set()) & ALL;
    match i.mnemonic() {
        // A count of zero changes nothing.
        Shl | Sal | Shr | Sar | Rol | Ror | Rcl | Rcr | Shld | Shrd => {
            let last = i.op_count() - 1;
            let fixed = i.op_kind(last) == iced_x86::OpKind::Immediate8 && i.immediate8() & 31 != 0;
            if !fixed {
                0
            } else if matches!(i.mnemonic(), Shl | Sal | Shr | Sar) {
                ALL
            } else {
                defined & !i.rflags_undefined()
            }
        }
        Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq
            if i.has_rep_prefix() || i.has_repne_prefix() =>
        {
            0
        }
        // What the manual calls undefined, processors compute.
        And | Or | Xor | Test | Mul | Imul | Andn | Bzhi | Blsi | Blsr | Blsmsk | Bextr | Tzcnt
        | Lzcnt | Popcnt => defined | (i.rflags_undefined() & ALL),
        _ => defined & !i.rflags_undefined(),
    }
}

/// Flags needed when execution continues at `pc`, whose code begins with `code`. Everything that
/// is not seen to be overwritten counts as needed. Also the number of bytes that were looked at.
pub fn peek(pc: u64, code: &[u8]) -> (u32, usize) {
    let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
    let mut undecided = ALL;
    let mut needed = 0;
    for _ in 0..PEEK {
        if undecided == 0 || !decoder.can_decode() {
            break;
        }
        let before = decoder.position();
        let i = decoder.decode();
        if i.is_invalid() {
            // Undecided, whatever it is.
            return (needed | undecided, before);
        }
        needed |= reads(&i) & undecided;
        undecided &= !(killed(&i) | needed);
        if i.flow_control() != FlowControl::Next {
            break;
        }
    }
    (needed | undecided, decoder.position())
}

const ORDER: [u32; 6] = [
    RflagsBits::OF,
    RflagsBits::SF,
    RflagsBits::ZF,
    RflagsBits::AF,
    RflagsBits::CF,
    RflagsBits::PF,
];

/// A set of status flags as one byte.
pub fn pack(set: u32) -> u8 {
    ORDER
        .iter()
        .enumerate()
        .fold(0, |b, (i, f)| b | ((set & f != 0) as u8) << i)
}

/// Inverse of [`pack`].
pub fn unpack(b: u8) -> u32 {
    ORDER
        .iter()
        .enumerate()
        .fold(0, |set, (i, f)| if b >> i & 1 != 0 { set | f } else { set })
}

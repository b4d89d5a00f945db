//! Which status flags are needed somewhere. A check may change a flag that is not needed.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, RflagsBits};

/// The six status flags.
pub const ALL: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// Most instructions that [`peek`] looks at.
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

/// Flags that `i` certainly overwrites, whatever its operands are.
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
        // The manual calls some flags undefined that processors compute. Not so with products and
        // with counts of zeros (lzcnt, tzcnt): AMD's processors leave some flags as they were.
        And | Or | Xor | Test | Andn | Bzhi | Blsi | Blsr | Blsmsk | Bextr | Popcnt => {
            defined | (i.rflags_undefined() & ALL)
        }
        _ => defined & !i.rflags_undefined(),
    }
}

/// What some code does with flags.
pub struct FlagUse {
    /// Flags that the code needs.
    pub needed: u32,
    /// Flags of which nothing is known yet.
    pub undecided: u32,
    /// Bytes that were looked at.
    pub len: usize,
    /// Where execution continues behind them, as far as that is known.
    pub next: [Option<u64>; 2],
}

/// Finds out what the code at `pc` does with the flags in `of`. `code` is the beginning of that
/// code, as far as it is known.
pub fn peek(pc: u64, code: &[u8], of: u32) -> FlagUse {
    let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
    let mut seen = FlagUse {
        needed: 0,
        undecided: of,
        len: 0,
        next: [None; 2],
    };
    for _ in 0..PEEK {
        if seen.undecided == 0 || !decoder.can_decode() {
            break;
        }
        let i = decoder.decode();
        if i.is_invalid() {
            // The instruction is cut off. Its flags stay undecided.
            seen.next = [Some(i.ip()), None];
            return seen;
        }
        seen.len = decoder.position();
        seen.needed |= reads(&i) & seen.undecided;
        seen.undecided &= !(killed(&i) | seen.needed);
        let direct = i.op0_kind() == OpKind::NearBranch64;
        match i.flow_control() {
            FlowControl::Next => continue,
            FlowControl::ConditionalBranch if direct => {
                seen.next = [Some(i.near_branch64()), Some(i.next_ip())];
            }
            FlowControl::UnconditionalBranch | FlowControl::Call if direct => {
                seen.next = [Some(i.near_branch64()), None];
            }
            _ => {}
        }
        return seen;
    }
    seen.next = [Some(decoder.ip()), None];
    seen
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

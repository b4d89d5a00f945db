//! Which instructions can take a general purpose register in place of their memory operand.
//!
//! `iced_x86` knows it, but only in a table of everything about every instruction. Building that
//! takes longer than a short program runs. So the encoder is asked, once for each encoding.

use crate::kinds::with_register;
use crate::regs::{RAX, gpr};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use iced_x86::{Encoder, Instruction};

const UNKNOWN: u8 = 0;
const NONE: u8 = 0xff;

/// More than `iced_x86` has encodings.
const CODES: usize = 8192;

static FORMS: [AtomicU8; CODES] = [const { AtomicU8::new(UNKNOWN) }; CODES];

/// Size in bytes of the general purpose register that can replace memory operand `op` of `i`.
/// `None` if none can.
pub fn register_size(i: &Instruction, op: u32) -> Option<usize> {
    let Some(form) = FORMS.get(i.code() as usize) else {
        return ask(i, op);
    };
    match form.load(Relaxed) {
        UNKNOWN => {
            let size = ask(i, op);
            form.store(size.map_or(NONE, |s| s as u8), Relaxed);
            size
        }
        NONE => None,
        size => Some(size as usize),
    }
}

fn ask(i: &Instruction, op: u32) -> Option<usize> {
    // rax and its parts need no prefix, whatever the other operand is.
    let fits = |size: &usize| {
        Encoder::new(64)
            .encode(&with_register(i, op, gpr(RAX, *size)), 0)
            .is_ok()
    };
    [1, 2, 4, 8].into_iter().find(fits)
}

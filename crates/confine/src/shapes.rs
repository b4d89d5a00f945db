//! Sequences of instructions that are allowed only together, as if they were one instruction.

use crate::decode::WINDOW;
use hindsight_isa::ctx::{d, table};
use hindsight_isa::ibl::HOST;

/// The four bytes at `at`.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Stands for any byte of a field that is checked separately.
const ANY: u16 = 0x100;

type Shape = &'static [u16];

fn has_shape(bytes: &[u8], shape: Shape) -> bool {
    let same = |(s, b): (&u16, &u8)| *s == ANY || *s == *b as u16;
    bytes.len() >= shape.len() && shape.iter().zip(bytes).all(same)
}

/// The search for an indirect branch's target. The first way leaves flags alone, the second does not. An entry's
/// address comes from 16 bits of the guest address. Code jumps to what it finds there only if the guest address is the
/// same.
#[rustfmt::skip]
const FINDS: [Shape; 2] = [
    &[
        // movzx ecx, r10w; lea ecx, [rcx + rcx]; mov rcx, gs:[rcx * 8 + entry]; lea rcx, [rcx + r10]; jrcxz; jmp miss
        0x41, 0x0f, 0xb7, 0xca, 0x8d, 0x0c, 0x09, 0x65, 0x48, 0x8b, 0x0c, 0xcd, ANY, ANY, ANY, ANY,
        0x4a, 0x8d, 0x0c, 0x11, 0xe3, 0x05, 0xe9, ANY, ANY, ANY, ANY,
        // The same entry; mov r10, gs:[rcx * 8 + host]; mov rcx, gs:[SAVED]; jmp r10
        0x41, 0x0f, 0xb7, 0xca, 0x8d, 0x0c, 0x09, 0x65, 0x4c, 0x8b, 0x14, 0xcd, ANY, ANY, ANY, ANY,
        0x65, 0x48, 0x8b, 0x0c, 0x25, ANY, ANY, ANY, ANY, 0x41, 0xff, 0xe2,
    ],
    &[
        // movzx ecx, r10w; shl ecx, 4; add r10, gs:[rcx + entry]; jne miss
        0x41, 0x0f, 0xb7, 0xca, 0xc1, 0xe1, 0x04, 0x65, 0x4c, 0x03, 0x91, ANY, ANY, ANY, ANY, 0x0f, 0x85, ANY, ANY, ANY, ANY,
        // mov r10, gs:[rcx + host]; mov rcx, gs:[SAVED]; jmp r10
        0x65, 0x4c, 0x8b, 0x91, ANY, ANY, ANY, ANY, 0x65, 0x48, 0x8b, 0x0c, 0x25, ANY, ANY, ANY, ANY, 0x41, 0xff, 0xe2,
    ],
];
/// Where these shapes have the displacements of entry, host and saved register, and the end of the jump's distance.
const FIELDS: [(usize, usize, usize, u32); 2] = [(12, 39, 48, 27), (11, 25, 34, 21)];

/// The length of the search at the start of `bytes`, and the end of its jump. A replay has one lookup table.
pub(crate) fn finds(bytes: &[u8], replay: bool) -> Option<(usize, u32)> {
    for (shape, (place, host, saved, miss)) in FINDS.into_iter().zip(FIELDS) {
        if !has_shape(bytes, shape) {
            continue;
        }
        let at = word(bytes, place)? as i32;
        let known = at == d::ibl(table::CHECKED) || at == d::ibl(table::PLAIN) && !replay;
        let good = known
            && word(bytes, host)? as i32 == at + HOST as i32
            && word(bytes, saved)? as i32 == d::SAVED;
        return good.then_some((shape.len(), miss));
    }
    None
}

/// The length of a push or pop of the flags at the start of `bytes`. It uses the runtime's own stack.
pub(crate) fn flags_through_the_stack(bytes: &[u8]) -> Option<usize> {
    // mov rsp, gs:[disp]
    const STACK: [u8; 5] = [0x65, 0x48, 0x8b, 0x24, 0x25];
    // pushfq, pop r10; push r10, popfq; the latter with 16 bits
    const WAYS: [&[u8]; 3] = [
        &[0x9c, 0x41, 0x5a],
        &[0x41, 0x52, 0x9d],
        &[0x66, 0x41, 0x52, 0x66, 0x9d],
    ];
    const LOAD: usize = STACK.len() + 4;
    let load = |bytes: &[u8], disp: i32| {
        bytes.starts_with(&STACK) && word(bytes, STACK.len()) == Some(disp as u32)
    };
    if !load(bytes, d::HOST_RSP) {
        return None;
    }
    let rest = &bytes[LOAD..];
    let way = WAYS.into_iter().find(|w| rest.starts_with(w))?;
    // Back to the old stack pointer.
    load(&rest[way.len()..], d::SPILL + 9 * 8).then_some(2 * LOAD + way.len())
}

/// lea r10, [r10 - 2^31]: a step on the way to marks of writes.
pub(crate) const STEP: [u8; 7] = [0x4d, 0x8d, 0x92, 0, 0, 0, 0x80];

/// Most bytes of [`half_address`].
pub(crate) const HALF_ADDRESS: usize = 9;

/// Whether this is one `lea r10d`, with any address.
pub(crate) fn half_address(bytes: &[u8]) -> bool {
    let bytes = match bytes {
        [0x67, rest @ ..] => rest,
        all => all,
    };
    let &[0x44..=0x47, 0x8d, modrm, ref operand @ ..] = bytes else {
        return false;
    };
    let (mode, low) = (modrm >> 6, modrm & 7);
    let sib = (low == 4) as usize;
    let no_base = sib == 1 && operand.first().is_some_and(|sib| sib & 7 == 5);
    let disp = match mode {
        0 if low == 5 => return false,
        0 if no_base => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return false,
    };
    modrm >> 3 & 7 == 2 && operand.len() == sib + disp
}

/// The length of a mark of a write at the start of `code`: a `mov` of ones to `gs:[r10 + disp]`. Then how many bytes it
/// marks, and the displacement.
pub(crate) fn write_mark(code: &[u8; WINDOW]) -> Option<(usize, i32, i32)> {
    let &[0x65, rex, opcode, 0x82, a, b, c, d, ref ones @ ..] = code else {
        return None;
    };
    let size = match (rex, opcode) {
        (0x49, 0xc7) => 8,
        (0x41, 0xc7) => 4,
        (0x41, 0xc6) => 1,
        _ => return None,
    };
    let ones = &ones[..size.min(4)];
    let good = ones.iter().all(|b| *b == 0xff);
    good.then_some((
        8 + ones.len(),
        size as i32,
        i32::from_le_bytes([a, b, c, d]),
    ))
}

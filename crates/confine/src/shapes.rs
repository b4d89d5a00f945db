//! Sequences of instructions that are allowed only together, as if they were one instruction.

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

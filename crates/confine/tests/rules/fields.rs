//! Which fields of the context block code may touch, and by which instructions.

use super::{EACH, REAL, all, with};
use hindsight_confine::{Kind, Wrong};
use hindsight_isa::ctx::{APART, d, table};
#[test]
fn fields_of_the_context_block() {
    let load = [0x65, 0x48, 0x8b, 0x04, 0x25];
    let store = [0x65, 0x48, 0x89, 0x04, 0x25];
    for at in [
        d::GPR + 80,
        d::GPR + 88,
        d::SPILL,
        d::VALUE,
        d::EA,
        d::RIP,
        d::FLAGS,
        d::K7,
    ] {
        all(&EACH, &with(&load, at), Ok(()));
        all(&EACH, &with(&store, at), Ok(()));
    }
    for at in [d::FS_BASE, d::GS_BASE, d::CELL_MASK] {
        all(&EACH, &with(&load, at), Ok(()));
        all(&EACH, &with(&store, at), Err(Wrong::Operand));
    }
    let mut never = vec![
        d::EXIT_PTR,
        d::SEQUENCE_PTR,
        d::SEARCH_PTR,
        d::SEARCH_PTR + 16,
        d::HOST_RSP,
        d::RUNTIME,
        d::COUNT,
        d::RFLAGS,
        d::STRIPES,
        d::PEN,
        d::XMM,
        d::GPR,
        d::GPR + 32,
        d::ibl(table::CHECKED),
        d::ibl(table::CHECKED) + 8,
        d::ibl(table::PLAIN),
        // Half of it belongs to another field.
        d::VALUE + 4,
        d::GPR - 8,
        d::GPR - (1 << 20),
        i32::MIN,
    ];
    // Cells of a large window are addressed in another way.
    never.extend([-APART, 0, 4096, i32::MAX]);
    for at in never {
        all(&EACH, &with(&load, at), Err(Wrong::Operand));
        all(&EACH, &with(&store, at), Err(Wrong::Operand));
    }
    for at in [d::RESUME, d::STRIPE, d::SIZE] {
        all(&[Kind::Replay], &with(&store, at), Err(Wrong::Operand));
        all(&REAL, &with(&store, at), Ok(()));
    }
    // Only forms whose sizes are known are allowed.
    all(
        &EACH,
        &with(&[0x65, 0x0f, 0x11, 0x04, 0x25], d::SPILL),
        Err(Wrong::Operand),
    );
    all(
        &EACH,
        &with(&[0x65, 0x48, 0x01, 0x04, 0x25], d::VALUE),
        Err(Wrong::Operand),
    );
}

/// Stores and loads of other registers than general ones.
#[test]
fn fields_and_other_registers() {
    // fnstcw, which only a recording has, and fldcw, which no code needs.
    let (store, load) = ([0x65, 0xd9, 0x3c, 0x25], [0x65, 0xd9, 0x2c, 0x25]);
    all(&REAL, &with(&store, d::SPILL), Ok(()));
    all(
        &[Kind::Replay],
        &with(&store, d::SPILL),
        Err(Wrong::Operand),
    );
    all(&EACH, &with(&store, d::FS_BASE), Err(Wrong::Operand));
    all(&EACH, &with(&load, d::SPILL), Err(Wrong::Operand));
    // vmovdqu of 16 and 32 bytes: each byte must be permitted, and only a replay has such code.
    for length in [0xfa, 0xfe] {
        let load = [0x65, 0xc5, length, 0x6f, 0x04, 0x25];
        let store = [0x65, 0xc5, length, 0x7f, 0x04, 0x25];
        for code in [load, store] {
            all(&[Kind::Replay], &with(&code, d::HIGH), Ok(()));
            all(&[Kind::Replay], &with(&code, d::HIGH + 64), Ok(()));
            all(&REAL, &with(&code, d::HIGH), Err(Wrong::Operand));
            for at in [
                d::GPR + 88,
                d::GPR + 72,
                d::RIP,
                d::FS_BASE - 8,
                d::VALUE + 4,
            ] {
                all(&EACH, &with(&code, at), Err(Wrong::Operand));
            }
        }
    }
}

#[test]
fn fields_that_lead_elsewhere() {
    // A descriptor is named for an exit only.
    let says = [&with(&[0x65, 0xc7, 0x04, 0x25], d::DESC)[..], &[0; 4]].concat();
    all(&[Kind::Replay], &says, Err(Wrong::Descriptor));
    // jmp gs:[rax * 8 + entries]; mov r10, gs:[rcx * 8 + entries]
    let jump = with(&[0x65, 0xff, 0x24, 0xc5], d::ibl(table::CHECKED) + 8);
    all(&[Kind::Replay], &jump, Err(Wrong::Operand));
    let look = with(&[0x65, 0x4c, 0x8b, 0x14, 0xcd], d::ibl(table::CHECKED) + 8);
    all(&[Kind::Replay], &look, Err(Wrong::Operand));
}

//! A small recording that targets begin with.

use crate::made::{self, PC};
use hindsight_events::Event;

/// mov [rdi], rcx; add rdi, 8; dec rcx; jnz to the first; fldpi; fsin; mov eax, 60; syscall
const CODE: &[u8] = &[
    0x48, 0x89, 0x0f, 0x48, 0x83, 0xc7, 0x08, 0x48, 0xff, 0xc9, 0x75, 0xf4, 0xd9, 0xeb, 0xd9, 0xfe,
    0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05,
];
/// How often the program goes round.
const ROUNDS: u64 = 20;
/// Where it begins to write.
pub const DATA: u64 = 0x10_0000;

/// A recording of a program that writes a few words and ends.
pub fn bytes() -> Vec<u8> {
    let map = |addr, len, path: &'static [u8]| Event::Map {
        addr,
        len,
        prot: 7,
        flags: 0x22,
        offset: 0,
        object: 0,
        path,
    };
    let image = [(0, map(PC, 4096, b"/bin/made")), (0, map(DATA, 4096, b""))];
    let sine = Event::X87 {
        ilen: 2,
        status: 7 << 11,
        tags: 0x80,
        registers: &[0; 10],
    };
    let end = 4 * ROUNDS + 3;
    let call = Event::Syscall {
        nr: 60,
        args: [0; 6],
    };
    let regs = made::start(ROUNDS, DATA);
    made::program(
        CODE,
        &regs,
        &image,
        &[(end - 2, sine), (end, call)],
        end,
        made::summary(),
    )
}

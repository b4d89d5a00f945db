//! Code of programs.

use hindsight_difftest::confined::{Way, is_unlisted, ways};
use std::cell::RefCell;

/// Longest code that is translated at once.
const MOST: usize = 400;

pub fn seeds() -> Vec<Vec<u8>> {
    let blocks: [&[u8]; 6] = [
        // mov, add with memory, jnz
        &[0x48, 0x89, 0x0f, 0x48, 0x03, 0x44, 0xce, 0xf8, 0x75, 0xf4],
        // mov [rbx+16], then a call
        &[0x48, 0x8b, 0x43, 0x10, 0xe8, 0x11, 0x22, 0x33, 0xf4],
        // vmovdqu ymm, [rdi]; ret
        &[0xc5, 0xfe, 0x6f, 0x07, 0xc3],
        // rep movsb; jmp rax
        &[0xf3, 0xa4, 0xff, 0xe0],
        // lock cmpxchg [rdi], rsi; jz
        &[0xf0, 0x48, 0x0f, 0xb1, 0x37, 0x74, 0x02],
        // vpaddd zmm with a mask; syscall
        &[0x62, 0xf1, 0x75, 0x49, 0xfe, 0x17, 0x0f, 0x05],
    ];
    // The first byte chooses how it is translated.
    let all = blocks.iter().enumerate();
    all.map(|(i, b)| [&[7 * i as u8][..], b].concat()).collect()
}

pub fn run(bytes: &[u8]) {
    thread_local! {
        static WAYS: RefCell<Vec<Way>> = RefCell::new(ways());
    }
    let Some((way, code)) = bytes.split_first() else {
        return;
    };
    WAYS.with_borrow_mut(|ways| {
        let n = ways.len();
        let way = &mut ways[*way as usize % n];
        let code = &code[..code.len().min(MOST)];
        match way.check(code, 64, false) {
            Err(e) if !is_unlisted(&e) => panic!("{code:02x?}, {}: {e}", way.name),
            _ => {}
        }
    });
}

//! How threads and processes were made.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::past::{Did, Past, bytes, word};
use crate::Result;
use hindsight_syscalls::abi::*;
use hindsight_timeline::Cursor;

/// What a call was told that made a thread or a process.
#[derive(Default)]
pub struct Made {
    /// Flags of `clone`.
    pub flags: u64,
    /// The word for the kernel to clear when it ends; 0: none.
    pub clears: u64,
    /// Where its stack begins and ends. `None`: the call does not say that.
    pub stack: Option<[u64; 2]>,
}

impl Made {
    /// What this call was told. `None`: that is not known.
    pub fn by(cursor: &mut Cursor, maker: &Past) -> Result<Option<Made>> {
        let Did::Call { number, args, .. } = maker.what else {
            return Ok(Some(Made::default()));
        };
        let made = |flags: u64, word: u64, stack| Made {
            flags,
            clears: if flags & CLONE_CHILD_CLEARTID as u64 != 0 {
                word
            } else {
                0
            },
            stack,
        };
        Ok(match number {
            __NR_vfork => Some(made(CLONE_VM as u64, 0, None)),
            __NR_clone => Some(made(args[0] & 0xffff_ffff, args[3], None)),
            // `struct clone_args`: flags, a descriptor, the word, another one, a signal, the stack and its length.
            __NR_clone3 => bytes(cursor, maker, args[0], 56)?.map(|b| {
                let (start, len) = (word(&b, 40), word(&b, 48));
                let stack = start.checked_add(len).filter(|_| len > 0);
                made(word(&b, 0), word(&b, 16), stack.map(|end| [start, end]))
            }),
            _ => Some(Made::default()),
        })
    }

    /// Whether what was made shares the memory of who made it.
    pub fn shares_memory(&self) -> bool {
        self.flags & CLONE_VM as u64 != 0
    }
}

//! What a call that makes a thread or a process asks for.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::sys::guard;
use linux_raw_sys::general::*;

/// `CLONE_CLEAR_SIGHAND`: the child's handlers are set to the default.
pub const CLEAR_SIGHAND: u64 = 1 << 32;

/// Whether the call makes a child in the same memory.
pub fn shares_memory(nr: u32, a: &[u64; 6]) -> bool {
    match nr {
        __NR_vfork => true,
        __NR_clone => a[0] & CLONE_VM as u64 != 0,
        __NR_clone3 => guard::load_u64(a[0]).is_ok_and(|f| f & CLONE_VM as u64 != 0),
        _ => false,
    }
}

/// Whether the call makes a child that is not recorded although it runs in this memory.
pub fn lent_memory(nr: u32, a: &[u64; 6]) -> bool {
    let flags = match nr {
        __NR_clone => a[0],
        __NR_clone3 => guard::load_u64(a[0]).unwrap_or(0),
        _ => 0,
    };
    crate::sys::config::get().children == hindsight_events::config::children::NONE
        && shares_memory(nr, a)
        && flags & CLONE_THREAD as u64 == 0
}

//! The search in an indirect-branch lookup table, for targets that are not in a first entry
//! ([`hindsight_isa::ibl`]).
//!
//! Translated code jumps here with the target's address in r10 and the guest's rcx in the context
//! block.

use core::arch::global_asm;
use hindsight_isa::Desc;
use hindsight_isa::ctx::{d, table};
use hindsight_isa::ibl::{HOST, SECOND};

unsafe extern "C" {
    fn hindsight_search();
    fn hindsight_search_plain();
    fn hindsight_search_lazy();
    fn hindsight_search_end();
}

// One block of assembly: the order of several is not known, and `in_search` asks what lies between two names.
global_asm!(
    // The search in a table with first entries at `first` and second ones at `second`.
    ".macro hindsight_search_in first, second",
    "mov gs:[{rax}], rax",
    "mov gs:[{rdx}], rdx",
    "movzx eax, r10w",
    "lea eax, [rax + rax]",
    // Zero: the other two entries have never been used.
    "mov rcx, gs:[rax * 8 + \\first + {host}]",
    "jrcxz 7f",
    "lea edx, [rax + rax]",
    "mov rcx, gs:[rdx * 8 + \\second]",
    "lea rcx, [rcx + r10]",
    "jrcxz 2f",
    "mov rcx, gs:[rdx * 8 + \\second + 16]",
    "lea rcx, [rcx + r10]",
    "jrcxz 3f",
    "mov rcx, gs:[rdx * 8 + \\second]",
    "lea rcx, [rcx + r10 + 1]",
    "jrcxz 4f",
    "mov rcx, gs:[rdx * 8 + \\second + 16]",
    "lea rcx, [rcx + r10 + 1]",
    "jrcxz 5f",
    "7:",
    "mov rax, gs:[{rax}]",
    "mov rdx, gs:[{rdx}]",
    "mov rcx, gs:[{save}]",
    "mov gs:[{rip}], r10",
    "mov dword ptr gs:[{desc}], {not_found}",
    "jmp qword ptr gs:[{exit}]",
    // The target may need flags: no swap with the first entry. Label 5 is the third entry,
    // 4 the second.
    "5:",
    "lea edx, [rdx + 2]",
    "4:",
    "mov r10, gs:[rdx * 8 + \\second + {host}]",
    "jmp 6f",
    "3:",
    "lea edx, [rdx + 2]",
    "2:",
    // The first entry and the entry that was found are swapped. The runtime handles no
    // signal before the swap is complete.
    "mov r10, gs:[rdx * 8 + \\second + {host}]",
    "mov rcx, gs:[rax * 8 + \\first + {host}]",
    "mov gs:[rax * 8 + \\first + {host}], r10",
    "mov gs:[rdx * 8 + \\second + {host}], rcx",
    "mov rcx, gs:[rax * 8 + \\first]",
    "mov r10, gs:[rdx * 8 + \\second]",
    "mov gs:[rdx * 8 + \\second], rcx",
    "mov gs:[rax * 8 + \\first], r10",
    "mov r10, gs:[rax * 8 + \\first + {host}]",
    "6:",
    "mov rax, gs:[{rax}]",
    "mov rdx, gs:[{rdx}]",
    "mov rcx, gs:[{save}]",
    "jmp r10",
    ".endm",
    ".globl hindsight_search, hindsight_search_plain, hindsight_search_lazy, hindsight_search_end",
    ".balign 64",
    "hindsight_search:",
    "hindsight_search_in {checked}, {checked_second}",
    ".balign 64",
    "hindsight_search_plain:",
    "hindsight_search_in {plain}, {plain_second}",
    // The first search, after restoring the guest's flags from the context block.
    ".balign 64",
    "hindsight_search_lazy:",
    "mov gs:[{rax}], rax",
    "movzx eax, word ptr gs:[{flags}]",
    // This addition overflows exactly if al is 1.
    "add al, 0x7f",
    "sahf",
    "mov rax, gs:[{rax}]",
    "jmp hindsight_search",
    "hindsight_search_end:",
    ".purgem hindsight_search_in",
    checked = const d::ibl(table::CHECKED),
    checked_second = const d::ibl(table::CHECKED) + SECOND as i32,
    plain = const d::ibl(table::PLAIN),
    plain_second = const d::ibl(table::PLAIN) + SECOND as i32,
    host = const HOST,
    rax = const d::SPILL,
    rdx = const d::SPILL + 8,
    save = const d::SAVED,
    rip = const d::RIP,
    desc = const d::DESC,
    not_found = const Desc::NOT_FOUND,
    exit = const d::EXIT_PTR,
    flags = const d::FLAGS,
);

/// Addresses of the searches, for [`hindsight_isa::Ctx::search_ptr`].
pub fn searches() -> [u64; 3] {
    [
        hindsight_search as *const () as u64,
        hindsight_search_plain as *const () as u64,
        hindsight_search_lazy as *const () as u64,
    ]
}

/// Whether host address `pc` is in one of the searches. The thread is then between two blocks, or
/// on its way from a block to the exit trampoline.
pub fn in_search(pc: u64) -> bool {
    (hindsight_search as *const () as u64..hindsight_search_end as *const () as u64).contains(&pc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_in_searches() {
        assert!(searches().into_iter().all(in_search));
        assert!(!in_search(crate::sequence_address()) && !in_search(crate::exit_address()));
    }
}

//! The trampoline that gives an atomic operation its order number, without a full exit.
//!
//! Translated code jumps here with
//!
//! - the operand's address in `Ctx::ea` and its size in `Ctx::size`;
//! - the position of the instruction in r10;
//! - the host address to continue at in `Ctx::resume`;
//! - the exit to take if the trampoline does not suffice, in `Ctx::desc`.
//!
//! The trampoline takes the operand's lock. While it holds that, it draws a number and appends a
//! sequence event to the ring. Translated code releases the lock when the operation is done: it
//! stores zero at the address in `Ctx::stripe`.
//!
//! Rare cases are left to the runtime:
//!
//! - an operand that reaches into a second granule;
//! - a lock that stays taken;
//! - a number or position so far from the last event's that it needs more bytes;
//! - a full ring.
//!
//! Then `Ctx::stripe` is zero if the lock has not been taken. If it has been, `Ctx::value` is the
//! number.
//!
//! A signal that arrives here replaces `Ctx::resume`, as a signal in the runtime does.

use core::arch::global_asm;
use hindsight_events::event::tag;
use hindsight_events::pen::offset;
use hindsight_events::ring::{GRANULE, STRIPES, Stripe};
use hindsight_isa::ctx::d;

unsafe extern "C" {
    fn hindsight_sequence();
    fn hindsight_sequence_end();
}

const _: () = assert!(GRANULE == 16 && STRIPES == 256 && size_of::<Stripe>() == 64);

global_asm!(
    ".balign 64",
    ".globl hindsight_sequence, hindsight_sequence_end",
    "hindsight_sequence:",
    "mov gs:[{save}], rax",
    "lahf",
    "seto al",
    "mov gs:[{save} + 8], rax",
    "mov gs:[{save} + 16], rcx",
    "mov gs:[{save} + 24], rdx",
    // Is there room in the ring? Nobody may wait for room while holding a lock.
    "mov rdx, gs:[{pen}]",
    "mov rcx, [rdx + {at}]",
    "cmp rcx, [rdx + {limit}]",
    "jae 9f",
    // Is the operand within one granule?
    "mov eax, gs:[{ea}]",
    "mov ecx, eax",
    "and ecx, 15",
    "add ecx, gs:[{size}]",
    "cmp ecx, 16",
    "ja 9f",
    "and eax, 0xff0",
    "shl eax, 2",
    "mov rdx, gs:[{stripes}]",
    "add rdx, rax",
    "mov ecx, gs:[{owner}]",
    "2:",
    "xor eax, eax",
    "lock cmpxchg [rdx], ecx",
    "jne 7f",
    "mov gs:[{stripe}], rdx",
    "mov rdx, gs:[{sequence}]",
    "mov eax, 1",
    "lock xadd [rdx], rax",
    "mov gs:[{value}], rax",
    // Both distances must be small: the number's fits one byte, the position's two.
    "mov rdx, gs:[{pen}]",
    "mov rcx, rax",
    "sub rcx, [rdx + {number}]",
    "cmp rcx, 0x7f",
    "ja 9f",
    "mov rax, r10",
    "sub rax, [rdx + {pos}]",
    "cmp rax, 0x3fff",
    "ja 9f",
    "mov [rdx + {pos}], r10",
    "add [rdx + {number}], rcx",
    "cmp eax, 0x7f",
    "ja 4f",
    // The event's bytes: tag, position, number.
    "shl ecx, 16",
    "shl eax, 8",
    "lea eax, [rax + rcx + {tag}]",
    "mov ecx, 3",
    "3:",
    "mov r10, [rdx + {at}]",
    "mov [r10], eax",
    "add r10, rcx",
    "mov [rdx + {at}], r10",
    "mov r10, [rdx + {head}]",
    "add [r10], rcx",
    "mov rax, gs:[{save} + 8]",
    "mov rcx, gs:[{save} + 16]",
    "mov rdx, gs:[{save} + 24]",
    "add al, 127",
    "sahf",
    "mov rax, gs:[{save}]",
    "jmp qword ptr gs:[{resume}]",
    "4:",
    // The upper bits of the position's distance go to the next byte.
    "shl ecx, 24",
    "mov r10d, eax",
    "and r10d, 0x3f80",
    "add eax, r10d",
    "shl eax, 8",
    "lea eax, [rax + rcx + 0x8000 + {tag}]",
    "mov ecx, 4",
    "jmp 3b",
    // The lock is taken: spin for a moment.
    "7:",
    "mov eax, 200",
    "8:",
    "pause",
    "sub eax, 1",
    "jz 9f",
    "cmp dword ptr [rdx], 0",
    "jne 8b",
    "jmp 2b",
    "9:",
    "mov rax, gs:[{save} + 8]",
    "mov rcx, gs:[{save} + 16]",
    "mov rdx, gs:[{save} + 24]",
    "add al, 127",
    "sahf",
    "mov rax, gs:[{save}]",
    "jmp qword ptr gs:[{exit}]",
    "hindsight_sequence_end:",
    save = const d::SEQUENCE_SAVE,
    ea = const d::EA,
    size = const d::SIZE,
    stripes = const d::STRIPES,
    stripe = const d::STRIPE,
    owner = const d::OWNER,
    sequence = const d::SEQUENCE,
    value = const d::VALUE,
    pen = const d::PEN,
    resume = const d::RESUME,
    exit = const d::EXIT_PTR,
    at = const offset::AT,
    limit = const offset::LIMIT,
    head = const offset::HEAD,
    pos = const offset::POS,
    number = const offset::NUMBER,
    tag = const tag::SEQ,
);

/// Address of the trampoline, for `Ctx::sequence_ptr`.
pub fn sequence_address() -> u64 {
    hindsight_sequence as *const () as u64
}

/// Whether host address `pc` is in the trampoline. The guest's registers are not complete there.
pub fn in_sequence(pc: u64) -> bool {
    (sequence_address()..hindsight_sequence_end as *const () as u64).contains(&pc)
}

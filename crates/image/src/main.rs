//! The recorder as a program: what the kernel executes in place of the recorded program.
//!
//! It is a freestanding image. Here are the entry, the stack, and what the compiler needs in a
//! program without a standard library. Everything else is in the crate `recorder`.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]

mod mem;

use core::arch::global_asm;
use hindsight_events::config::Config;
use hindsight_recorder::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// The linker keeps only what something refers to.
#[used]
static ENTRIES: fn() = hindsight_recorder::keep_entries;

/// Bytes of the recorder's stack. The kernel's stack belongs to the program.
const STACK: usize = 1 << 20;

// Nothing touches the lowest page of the stack, which becomes the guard page.
global_asm!(
    ".globl _start, hindsight_configured, hindsight_stack, hindsight_stack_end",
    "_start:",
    "xor esi, esi",
    // A starter enters here. rsi is the address of the configuration.
    "hindsight_configured:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "lea rsp, [rip + hindsight_stack + {size}]",
    "call {main}",
    "ud2",
    ".section .bss.hindsight_stack, \"aw\", @nobits",
    ".balign 4096",
    "hindsight_stack:",
    ".zero {size}",
    "hindsight_stack_end:",
    ".text",
    size = const STACK,
    main = sym begin,
);

unsafe extern "C" {
    static hindsight_stack: u8;
}

extern "C" fn begin(sp: *mut u64, configured: *mut Config) -> ! {
    let own = &raw const hindsight_stack as u64;
    // SAFETY: the entry above calls this once. `sp` is what the kernel left in rsp. `configured` is
    // null, or comes from a starter. The stack is in use, and nothing has touched its lowest page.
    unsafe { hindsight_recorder::begin(sp, configured, own..own + STACK as u64) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    hindsight_recorder::panicked(info)
}

/// The prebuilt core library mentions it, though nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    hindsight_recorder::abort()
}

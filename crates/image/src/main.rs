//! The recorder as a program: what the kernel executes in the place of the recorded program.
//!
//! A freestanding image. It has the entry, the stack, and what the compiler asks of a program without a standard
//! library; all else is in the crate `recorder`.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]

mod mem;

use core::arch::global_asm;
use hindsight_events::config::Config;
use hindsight_recorder::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// The linker takes only what something refers to.
#[used]
static ENTRIES: fn() = hindsight_recorder::keep_entries;

/// The recorder's stack: the kernel's is the program's.
const STACK: usize = 1 << 20;

// The lowest page of the stack is never touched: it becomes the guard page.
global_asm!(
    ".globl _start, hindsight_configured, hindsight_stack, hindsight_stack_end",
    "_start:",
    "xor esi, esi",
    // From a starter: rsi has the address of the configuration.
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
    // SAFETY: called once, by the entry above, with what it got from the kernel or a starter.
    unsafe { hindsight_recorder::begin(sp, configured, own..own + STACK as u64) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    hindsight_recorder::panicked(info)
}

/// The prebuilt core library mentions it; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    hindsight_recorder::abort()
}

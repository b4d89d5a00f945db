//! The half of the recorder that lives in the recorded process.
//!
//! A freestanding image without C library, thread-local storage or threads of its own. The
//! command line has the kernel execute it with exactly the program's arguments and environment;
//! it loads the program into the same address space, onto the same stack, and runs translated
//! copies of the program's code until it exits.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]
extern crate alloc;

mod arena;
mod fail;
mod guard;
mod heap;
mod loader;
mod lock;
mod maps;
mod mem;
mod ring;
mod stack;
mod sys;

use core::arch::global_asm;
use core::ffi::CStr;
use hindsight_events::config::Config;
use linux_raw_sys::auxvec::AT_HWCAP2;
use stack::Stack;

/// Filled in by the command line in the image before it is executed.
#[used]
static mut CONFIG: Config = Config::new();

/// The recorder's stack: the kernel's is the program's.
const STACK: usize = 1 << 20;

// The lowest page of the stack is never touched: it becomes the guard page.
global_asm!(
    ".globl _start, hindsight_stack",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "lea rsp, [rip + hindsight_stack + {size}]",
    "call {main}",
    "ud2",
    ".section .bss.hindsight_stack, \"aw\", @nobits",
    ".balign 4096",
    "hindsight_stack:",
    ".zero {size}",
    ".text",
    size = const STACK,
    main = sym recorder_main,
);

unsafe extern "C" {
    static hindsight_stack: u8;
}

/// The configuration.
pub fn config() -> &'static Config {
    // SAFETY: nothing writes it while the process runs. The pointer is hidden from the compiler,
    // which would otherwise read the value that the source gives.
    unsafe { &*core::hint::black_box(&raw const CONFIG) }
}

extern "C" fn recorder_main(sp: *mut u64) -> ! {
    // SAFETY: `sp` is what the kernel left in the stack pointer.
    let mut stack = unsafe { Stack::new(sp) };
    sys::allow_fsgsbase(stack.aux(AT_HWCAP2).unwrap_or(0) & 2 != 0);
    let _ = sys::mprotect(&raw const hindsight_stack as u64, sys::PAGE, sys::PROT_NONE);
    let config = config();
    if config.ctl_fd >= 0 {
        ring::open(config.ctl_fd);
    }
    maps::regions().add_initial();
    let path = |p: &'static [u8]| CStr::from_bytes_until_nul(p).unwrap_or(c"");
    let program = loader::load(path(&config.exe), path(&config.execfn), &mut stack);
    // TEMPORARY
    // SAFETY: test
    unsafe {
        core::arch::asm!("mov rsp, {s}", "xor edx, edx", "jmp {e}", s = in(reg) stack.pointer(), e = in(reg) program.entry, options(noreturn));
    }
}

//! The one place where the program's own system calls are made.
//!
//! A signal may arrive after the last look for signals, and before the system call. The call might
//! then sleep although a signal waits for delivery. So the handler recognises that the thread is in
//! this stub ([`cancel`]), and makes it return without the call.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicBool;

global_asm!(
    ".globl hindsight_stub, hindsight_stub_begin, hindsight_stub_syscall, hindsight_stub_cancel",
    ".balign 16",
    // r12: address of the flag that says that a signal waits. Other registers: as for the system
    // call. Returns rax: the result; rcx: 0 if the call was made, 1 if not.
    "hindsight_stub:",
    "hindsight_stub_begin:",
    "cmp byte ptr [r12], 0",
    "jne hindsight_stub_cancel",
    // The kernel makes a thread return to here if the call has to be made again after a handler.
    "hindsight_stub_syscall:",
    "syscall",
    "xor ecx, ecx",
    "ret",
    "hindsight_stub_cancel:",
    "mov ecx, 1",
    "ret",
);

unsafe extern "C" {
    fn hindsight_stub();
    fn hindsight_stub_begin();
    fn hindsight_stub_syscall();
    fn hindsight_stub_cancel();
}

/// Makes a system call for the program. `None`: `waiting` was set before it has begun, so it was
/// not made.
///
/// # Safety
/// The call does nothing to the recorder's memory, descriptors and signal handlers.
pub unsafe fn call(nr: u64, a: [u64; 6], waiting: &AtomicBool) -> Option<u64> {
    let (ret, cancelled): (u64, u64);
    // SAFETY: the stub changes only rax, rcx and r11, which are declared. The caller is responsible
    // for the call itself.
    unsafe {
        asm!("call {f}", f = sym hindsight_stub, inout("rax") nr => ret, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5], in("r12") waiting.as_ptr(),
            out("rcx") cancelled, out("r11") _);
    }
    (cancelled == 0).then_some(ret)
}

/// Whether a thread at `pc` is in a system call that the program has made, or has just come out of
/// it.
pub fn is_behind_call(pc: u64) -> bool {
    pc == hindsight_stub_syscall as *const () as u64 + 2
}

/// Where to continue a thread that a signal has interrupted at `pc`. `None` unless that is in the
/// stub, and the system call has not begun or would be made again.
pub fn cancel(pc: u64) -> Option<u64> {
    let begin = hindsight_stub_begin as *const () as u64;
    let last = hindsight_stub_syscall as *const () as u64;
    (begin..=last)
        .contains(&pc)
        .then_some(hindsight_stub_cancel as *const () as u64)
}

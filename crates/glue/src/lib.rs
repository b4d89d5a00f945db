//! The instructions between a runtime and translated code.
//!
//! [`enter`] loads the guest's registers from the context block and jumps to `Ctx::resume`. An exit
//! stub jumps to `Ctx::exit_ptr`. The code there stores the registers again and returns from
//! [`enter`]. The guest's r10 and r11 stay in the context block all the time.
#![no_std]
// Other processors translate nothing.
#![cfg(target_arch = "x86_64")]

mod lookup;
mod sequence;
mod transcendental;

pub use lookup::{in_search, searches};
pub use sequence::{in_sequence, sequence_address};
pub use transcendental::{Waiting, X87State, x87_control};

use core::arch::global_asm;
use hindsight_isa::Ctx;
use hindsight_isa::ctx::d;
use hindsight_isa::xsave::{Area, COMPONENTS};

unsafe extern "C" {
    fn hindsight_enter();
    fn hindsight_enter_xsave(area: *mut Area);
    fn hindsight_enter_marking(marks: u64, host: u64, unprivileged: u64);
    fn hindsight_exit();
    fn hindsight_exit_end();
}

global_asm!(
    ".balign 64",
    ".globl hindsight_enter, hindsight_enter_xsave, hindsight_enter_marking",
    ".globl hindsight_exit, hindsight_exit_end",
    // void hindsight_enter_xsave(Area *rdi)
    "hindsight_enter_xsave:",
    "push rbx",
    "sub rsp, 16",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "mov rbx, rdi",
    "mov eax, {mask}",
    "xor edx, edx",
    "xrstor64 [rbx]",
    "call 2f",
    "mov eax, {mask}",
    "xor edx, edx",
    "xsave64 [rbx]",
    "fninit",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "test byte ptr [rbx + 512], 4",
    "jz 3f",
    "vzeroupper",
    "3:",
    "add rsp, 16",
    "pop rbx",
    "ret",
    // void hindsight_enter_marking(u64 rdi, u64 rsi, u64 rdx). rdi: FS base to run with. rsi: FS
    // base afterwards. rdx: not 0 if wrfsbase can be used.
    "hindsight_enter_marking:",
    "push rbx",
    "push rbp",
    "mov rbx, rsi",
    "mov rbp, rdx",
    "call 7f",
    "call hindsight_enter",
    "mov rdi, rbx",
    "mov rdx, rbp",
    "pop rbp",
    "pop rbx",
    "7:",
    "test edx, edx",
    "jz 8f",
    "wrfsbase rdi",
    "ret",
    // arch_prctl(ARCH_SET_FS, rdi)
    "8:",
    "mov rsi, rdi",
    "mov edi, 0x1002",
    "mov eax, 158",
    "syscall",
    "ret",
    // void hindsight_enter(void): loads xmm0 to xmm15 too.
    "hindsight_enter:",
    "movups xmm0, gs:[{xmm}]",
    "movups xmm1, gs:[{xmm} + 16]",
    "movups xmm2, gs:[{xmm} + 32]",
    "movups xmm3, gs:[{xmm} + 48]",
    "movups xmm4, gs:[{xmm} + 64]",
    "movups xmm5, gs:[{xmm} + 80]",
    "movups xmm6, gs:[{xmm} + 96]",
    "movups xmm7, gs:[{xmm} + 112]",
    "movups xmm8, gs:[{xmm} + 128]",
    "movups xmm9, gs:[{xmm} + 144]",
    "movups xmm10, gs:[{xmm} + 160]",
    "movups xmm11, gs:[{xmm} + 176]",
    "movups xmm12, gs:[{xmm} + 192]",
    "movups xmm13, gs:[{xmm} + 208]",
    "movups xmm14, gs:[{xmm} + 224]",
    "movups xmm15, gs:[{xmm} + 240]",
    "2:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    // Writing all flags is slow. So it happens only if others than the status flags are set.
    "mov rax, gs:[{flags}]",
    "test eax, 0x240400",
    "jnz 5f",
    "mov ecx, eax",
    // al: 1 if OF is set; ah: the other status flags.
    "shr ecx, 11",
    "and ecx, 1",
    "mov ah, al",
    "mov al, cl",
    "add al, 127",
    "sahf",
    "6:",
    "mov gs:[{host_rsp}], rsp",
    "mov rax, gs:[{gpr}]",
    "mov rcx, gs:[{gpr} + 8]",
    "mov rdx, gs:[{gpr} + 16]",
    "mov rbx, gs:[{gpr} + 24]",
    "mov rsp, gs:[{gpr} + 32]",
    "mov rbp, gs:[{gpr} + 40]",
    "mov rsi, gs:[{gpr} + 48]",
    "mov rdi, gs:[{gpr} + 56]",
    "mov r8, gs:[{gpr} + 64]",
    "mov r9, gs:[{gpr} + 72]",
    "mov r12, gs:[{gpr} + 96]",
    "mov r13, gs:[{gpr} + 104]",
    "mov r14, gs:[{gpr} + 112]",
    "mov r15, gs:[{gpr} + 120]",
    "mov r11, gs:[{count}]",
    "jmp qword ptr gs:[{resume}]",
    "5:",
    "push rax",
    "popfq",
    "jmp 6b",
    "hindsight_exit:",
    "mov gs:[{gpr}], rax",
    "mov gs:[{gpr} + 8], rcx",
    "mov gs:[{gpr} + 16], rdx",
    "mov gs:[{gpr} + 24], rbx",
    "mov gs:[{gpr} + 32], rsp",
    "mov gs:[{gpr} + 40], rbp",
    "mov gs:[{gpr} + 48], rsi",
    "mov gs:[{gpr} + 56], rdi",
    "mov gs:[{gpr} + 64], r8",
    "mov gs:[{gpr} + 72], r9",
    "mov gs:[{gpr} + 96], r12",
    "mov gs:[{gpr} + 104], r13",
    "mov gs:[{gpr} + 112], r14",
    "mov gs:[{gpr} + 120], r15",
    "mov gs:[{count}], r11",
    "mov rsp, gs:[{host_rsp}]",
    "mov qword ptr gs:[{host_rsp}], 0",
    "pushfq",
    "pop rax",
    "mov gs:[{flags}], rax",
    // The runtime needs DF and AC clear. ID must be clear for the way back.
    "cld",
    "test eax, 0x240000",
    "jz 4f",
    "push 0x202",
    "popfq",
    "4:",
    "movups gs:[{xmm}], xmm0",
    "movups gs:[{xmm} + 16], xmm1",
    "movups gs:[{xmm} + 32], xmm2",
    "movups gs:[{xmm} + 48], xmm3",
    "movups gs:[{xmm} + 64], xmm4",
    "movups gs:[{xmm} + 80], xmm5",
    "movups gs:[{xmm} + 96], xmm6",
    "movups gs:[{xmm} + 112], xmm7",
    "movups gs:[{xmm} + 128], xmm8",
    "movups gs:[{xmm} + 144], xmm9",
    "movups gs:[{xmm} + 160], xmm10",
    "movups gs:[{xmm} + 176], xmm11",
    "movups gs:[{xmm} + 192], xmm12",
    "movups gs:[{xmm} + 208], xmm13",
    "movups gs:[{xmm} + 224], xmm14",
    "movups gs:[{xmm} + 240], xmm15",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "hindsight_exit_end:",
    xmm = const d::XMM,
    gpr = const d::GPR,
    flags = const d::RFLAGS,
    count = const d::COUNT,
    resume = const d::RESUME,
    host_rsp = const d::HOST_RSP,
    mask = const COMPONENTS,
);

/// Runs translated code from `Ctx::resume` until it exits.
///
/// Loads and stores only the low 128 bits of xmm0 to xmm15. All other vector, mask and x87 state
/// stays in the processor. The caller must leave it alone between two runs.
///
/// # Safety
/// The GS base is that of the window of `ctx`. `ctx.resume` points to translated code made for that
/// window. All memory that this code may touch is valid.
pub unsafe fn enter(ctx: *mut Ctx) {
    // SAFETY: the function keeps the C calling convention for general purpose registers. The vector
    // registers are declared as clobbered.
    unsafe {
        (*ctx).rflags &= 0x24_0cd5;
        core::arch::asm!(
            "call {f}",
            f = sym hindsight_enter,
            clobber_abi("C"),
        );
    }
}

/// Like [`enter`], for code that makes access marks (see [`hindsight_isa::observe`]). The FS base
/// is `marks` while it runs, and `host` again afterwards.
///
/// # Safety
/// As for [`enter`]. `host` is the thread's FS base. If `unprivileged` is set, the kernel allows
/// `wrfsbase`.
pub unsafe fn enter_marking(ctx: *mut Ctx, marks: u64, host: u64, unprivileged: bool) {
    // SAFETY: see `enter`. None of the thread's own code runs with the other FS base.
    unsafe {
        (*ctx).rflags &= 0x24_0cd5;
        core::arch::asm!(
            "call {f}",
            f = sym hindsight_enter_marking,
            in("rdi") marks,
            in("rsi") host,
            in("rdx") unprivileged as u64,
            clobber_abi("C"),
        );
    }
}

/// Like [`enter`], but the whole vector, mask and x87 state is in `area` between two runs. So the
/// caller may use any instruction.
///
/// # Safety
/// As for [`enter`]. `area` holds a state that XRSTOR accepts.
pub unsafe fn enter_xsave(ctx: *mut Ctx, area: &mut Area) {
    // SAFETY: see above. hindsight_enter_xsave restores the host's control words.
    unsafe {
        (*ctx).rflags &= 0x24_0cd5;
        hindsight_enter_xsave(area);
    }
}

/// Address of the exit trampoline, for `Ctx::exit_ptr`.
pub fn exit_address() -> u64 {
    hindsight_exit as *const () as u64
}

/// Whether host address `pc` is in the trampolines. There neither the guest's nor the runtime's
/// registers are complete.
pub fn contains(pc: u64) -> bool {
    (hindsight_enter_xsave as *const () as u64..hindsight_exit_end as *const () as u64)
        .contains(&pc)
}

/// Loads the vector, mask and x87 state of `area` into this processor. `enter` overwrites the low
/// 128 bits of xmm0 to xmm15.
///
/// # Safety
/// Only between runs of translated code.
pub unsafe fn load_area(area: &Area) {
    // SAFETY: XRSTOR of a valid area. All vector registers are declared as clobbered.
    unsafe {
        core::arch::asm!("xrstor64 [{}]", in(reg) area, in("eax") COMPONENTS as u32, in("edx") 0, clobber_abi("C"));
    }
}

/// Stores the vector, mask and x87 state of this processor in `area`. The low 128 bits of xmm0 to
/// xmm15 in it are the caller's.
pub fn save_area(area: &mut Area) {
    area.0[512..576].fill(0);
    // SAFETY: XSAVE into an area that is large enough and aligned. Its header is zero.
    unsafe {
        core::arch::asm!("xsave64 [{}]", in(reg) area, in("eax") COMPONENTS as u32, in("edx") 0);
    }
}

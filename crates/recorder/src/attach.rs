//! Taking over a process that already runs: the recorder's image was mapped into it, and all its
//! threads stand still (see [`hindsight_events::attach`]).
//!
//! Until all is ready the program can still go on natively as if nothing had been. So whatever
//! can fail is done by [`prepare`] in one thread, before the first one enters.

use crate::fail::Line;
use crate::signals::{self, AltStack};
use crate::sys;
use crate::syscalls::errno;
use crate::thread::Thread;
use crate::{actions, birth, cache, config, dispatch, line, maps, memcalls, order};
use crate::{program, ring, select};
use alloc::vec;
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use hindsight_events::attach::{Block, Entry, status};
use hindsight_isa::CpuState;
use hindsight_isa::xsave::{AREA_LEN, Area, COMPONENTS};
use linux_raw_sys::errno::{EBUSY, EINVAL, EPERM};

// Both entries keep the vector state that the thread comes with in an XSAVE area on the stack.
// `hindsight_attach` gives it back in the end, since the thread may go on natively.
global_asm!(
    ".globl hindsight_attach, hindsight_parked, hindsight_parked_end",
    "hindsight_attach:",
    "call hindsight_keep_vectors",
    "mov [rip + hindsight_attach_sp], rsp",
    "call {prepare}",
    "hindsight_attach_done:",
    "mov rsp, [rip + hindsight_attach_sp]",
    "mov eax, {mask}",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "hindsight_parked:",
    "mov eax, 34",
    "syscall",
    "jmp hindsight_parked",
    "hindsight_parked_end:",
    "hindsight_attached:",
    "call hindsight_keep_vectors",
    "mov rsi, rsp",
    "call {enter}",
    "ud2",
    // Leaves rsp at the area; changes rax, rdx and r12.
    "hindsight_keep_vectors:",
    "pop r12",
    "sub rsp, {area}",
    "and rsp, -64",
    "xor eax, eax",
    "mov [rsp + 512], rax",
    "mov [rsp + 520], rax",
    "mov [rsp + 528], rax",
    "mov [rsp + 536], rax",
    "mov [rsp + 544], rax",
    "mov [rsp + 552], rax",
    "mov [rsp + 560], rax",
    "mov [rsp + 568], rax",
    "mov eax, {mask}",
    "xor edx, edx",
    "xsave64 [rsp]",
    "jmp r12",
    ".section .bss.hindsight_attach_sp, \"aw\", @nobits",
    ".balign 8",
    "hindsight_attach_sp:",
    ".zero 8",
    ".text",
    prepare = sym prepare,
    enter = sym enter,
    mask = const COMPONENTS,
    area = const AREA_LEN,
);

unsafe extern "C" {
    fn hindsight_attach_done() -> !;
    fn hindsight_attached();
}

/// An area of restartable sequences as the program registered it: address, length, signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rseq {
    addr: u64,
    len: u32,
    sig: u32,
}

/// The program could still go on without the recorder.
static PREPARING: AtomicBool = AtomicBool::new(false);

/// Address of the block.
static BLOCK: AtomicU64 = AtomicU64::new(0);

extern "C" fn prepare(block: *mut Block) {
    BLOCK.store(block as u64, Relaxed);
    PREPARING.store(true, Relaxed);
    // SAFETY: the command line has mapped and filled it, and looks at it only when this thread is
    // parked; the entries follow it.
    let (block, entries) = unsafe {
        let count = (*block).threads as usize;
        let first = block.add(1).cast::<Entry>();
        (&mut *block, core::slice::from_raw_parts_mut(first, count))
    };
    sys::allow_fsgsbase(block.hwcap2 & 2 != 0);
    let config = config();
    select::init();
    let command = maps::read_file(c"/proc/self/cmdline").leak();
    ring::open(config.ctl_fd, 0, -1, command);
    if entries.len() > 1 {
        order::matters();
    }
    maps::regions().add_existing();
    memcalls::keep_kernel_brk();
    let mut exe = vec![0; 4096];
    let len = sys::readlink(c"/proc/self/exe", &mut exe).unwrap_or(0);
    exe.truncate(len);
    if let Ok(fd) = sys::open_read(c"/proc/self/exe") {
        program::set(fd, &exe, b"");
        sys::close(fd);
    }
    let host = crate::Host::detect(false);
    cache::init(host.policy());
    let mut first: Option<*mut Thread> = None;
    for e in entries {
        let Some(emit) = ring::Emitter::thread_of(e.tid as i32) else {
            refuse(&line!("too many threads"));
        };
        let t = host.thread(emit);
        fill(t, e);
        // SAFETY: made in an earlier turn; nothing else uses it yet.
        match first.map(|f| unsafe { &*f }) {
            Some(f) => {
                t.signals.actions = f.signals.actions.clone();
                t.signals.shared = f.signals.shared.clone();
            }
            None => first = Some(t),
        }
        birth::register(t);
        (e.stack, e.thread) = (birth::stack_end(t), t as *mut Thread as u64);
    }
    let Some(first) = first else {
        refuse(&line!("no thread is left"));
    };
    // SAFETY: as above.
    let first = unsafe { &mut *first };
    if birth::threads() > 1 {
        cache::cache().order_atomics(first);
    }
    // From here on nothing fails.
    actions::take_over(first);
    block.enter = hindsight_attached as *const () as u64;
    block.status = status::READY;
    PREPARING.store(false, Relaxed);
}

fn fill(t: &mut Thread, e: &Entry) {
    let mut cpu = CpuState::default();
    cpu.gpr.copy_from_slice(&e.cpu[..16]);
    [cpu.rip, cpu.rflags, cpu.fs_base, cpu.gs_base] = [e.cpu[16], e.cpu[17], e.cpu[18], e.cpu[19]];
    (t.ctx.gpr, t.ctx.rip, t.ctx.rflags) = (cpu.gpr, cpu.rip, cpu.rflags);
    (t.ctx.fs_base, t.ctx.gs_base) = (cpu.fs_base, cpu.gs_base);
    t.signals.mask = e.mask;
    t.tid = e.tid as i32;
    t.rseq = (e.rseq != 0).then_some(Rseq {
        addr: e.rseq,
        len: e.rseq_len,
        sig: e.rseq_sig,
    });
}

/// Where the end of the process would be ordered: if it could still go on without the recorder,
/// leaves it to the command line to undo what was done, and does not return.
pub fn give_up(message: &Line) {
    if PREPARING.load(Relaxed) {
        refuse(message);
    }
}

fn refuse(message: &Line) -> ! {
    // SAFETY: set by `prepare` to the block, which nothing else uses now; the routine takes the
    // stack of `hindsight_attach` again, which is what runs.
    unsafe {
        let block = &mut *(BLOCK.load(Relaxed) as *mut Block);
        let text = message.as_bytes();
        block.message[..text.len()].copy_from_slice(text);
        block.message_len = text.len() as u32;
        block.status = status::FAILED;
        hindsight_attach_done()
    }
}

/// The first function of each thread that the program had. All signals are blocked.
extern "C" fn enter(t: *mut Thread, vectors: *const Area) -> ! {
    // SAFETY: `prepare` made the thread for this one alone; the area is on this stack.
    let (t, vectors) = unsafe { (&mut *t, &*vectors) };
    sys::set_gs_base(t.window + hindsight_isa::ctx::APART as u64);
    t.tid = sys::gettid();
    t.place.arrive(false);
    if let Some(r) = t.rseq {
        // Restartable sequences are entered and aborted by the kernel behind the recorder's back.
        kernel_rseq(r, UNREGISTER);
    }
    // SAFETY: memory that `prepare` made for it.
    let before = unsafe { sys::exchange_altstack(birth::signal_stack(t)) };
    if let Ok([base, flags, size]) = before {
        t.signals.alt = AltStack::of(base, flags, size);
    }
    t.set_area(vectors);
    t.code_epoch = cache::cache().code.epoch;
    if birth::threads() > 1 {
        t.sequence_always();
    }
    t.begin();
    signals::unblock(t);
    dispatch::run(t)
}

const UNREGISTER: u64 = 1;

fn kernel_rseq(r: Rseq, flags: u64) {
    let a = [r.addr, r.len as u64, flags, r.sig as u64, 0, 0];
    // SAFETY: an area of the program that it had registered itself.
    let _ = unsafe { sys::raw(linux_raw_sys::general::__NR_rseq, a) };
}

/// Gives the calling thread's area back to the kernel.
pub fn restore_rseq(t: &Thread) {
    if let Some(r) = t.rseq {
        kernel_rseq(r, 0);
    }
}

/// `rseq(addr, len, flags, sig)`. In a process that ran before, the C library relies on it that
/// what was possible for its first thread is for others. So it succeeds, but the area goes on
/// saying that no processor number is known.
pub fn rseq(t: &mut Thread, a: &[u64; 6]) -> u64 {
    if config().attached == 0 {
        return errno(linux_raw_sys::errno::ENOSYS);
    }
    let asked = Rseq {
        addr: a[0],
        len: a[1] as u32,
        sig: a[3] as u32,
    };
    match (a[2], t.rseq) {
        (UNREGISTER, Some(r)) if (r.addr, r.len) != (asked.addr, asked.len) => errno(EINVAL),
        (UNREGISTER, Some(r)) if r.sig != asked.sig => errno(EPERM),
        (UNREGISTER, Some(_)) => {
            t.rseq = None;
            0
        }
        (0, Some(r)) if r == asked => errno(EBUSY),
        (0, None) if asked.addr != 0 => {
            t.rseq = Some(asked);
            0
        }
        _ => errno(EINVAL),
    }
}

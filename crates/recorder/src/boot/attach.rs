//! Takes over a process that already runs. The command line has mapped the recorder's image into
//! the process and stopped all its threads (see [`hindsight_events::attach`]).
//!
//! The process can still go on natively, as if nothing had been, until everything is ready. So
//! [`prepare`] does whatever can fail. It runs in one thread, before the first thread enters.

use crate::code::{cache, select};
use crate::line;
use crate::memory::{brk, commons, maps};
use crate::process::host::Host;
use crate::run::dispatch;
use crate::signals::actions;
use crate::stream::ring;
use crate::sys::fail;
use crate::sys::line::Line;
use crate::sys::{self, config, headroom, log, many, program};
use crate::thread::signal_state::AltStack;
use crate::thread::{Thread, owners, pass, rseq, threads};
use alloc::vec;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::*};
use hindsight_events::attach::{Block, Entry, status};
use hindsight_isa::CpuState;
use hindsight_isa::xsave::{AREA_LEN, Area, COMPONENTS};

// Both entries save the thread's vector state in an XSAVE area on the stack. `hindsight_attach`
// restores it in the end, since the thread may go on natively.
global_asm!(
    ".globl hindsight_attach, hindsight_attach_done, hindsight_attached, hindsight_parked, hindsight_parked_end",
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
    // Leaves rsp at the area. Changes rax, rdx and r12.
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

/// Makes the linker keep the entries above. The command line looks for them in the image.
pub fn keep_entries() {
    core::hint::black_box(hindsight_attached as *const ());
}

/// Address of the [`Block`]. Set by [`prepare`].
static BLOCK: AtomicU64 = AtomicU64::new(0);

extern "C" fn prepare(block: *mut Block) {
    BLOCK.store(block as u64, Relaxed);
    // Up to here nothing is taken over: if this fails, the program goes on without the recorder.
    fail::before_death(Some(refuse));
    // SAFETY: `block` is the address of a `Block` that the command line has mapped and filled;
    // `threads` entries lie directly behind it. The command line does not look at them before this
    // thread is parked.
    let (block, entries) = unsafe {
        let count = (*block).threads as usize;
        let first = block.add(1).cast::<Entry>();
        (&mut *block, core::slice::from_raw_parts_mut(first, count))
    };
    log::begin();
    owners::serve_locks();
    sys::allow_fsgsbase(block.hwcap2 & 2 != 0);
    // It may have many mappings already.
    headroom::take();
    // It may have a `userfaultfd`.
    commons::reads_are_watched();
    let config = config::get();
    select::init();
    let command = maps::read_file(c"/proc/self/cmdline").leak();
    ring::open(config.ctl_fd, 0, -1, command);
    if entries.len() > 1 {
        many::matters();
    }
    maps::regions().add_existing();
    brk::keep_kernel_brk();
    let mut exe = vec![0; 4096];
    let len = sys::readlink(c"/proc/self/exe", &mut exe).unwrap_or(0);
    exe.truncate(len);
    if let Ok(fd) = sys::open_read(c"/proc/self/exe") {
        program::set(fd, &exe, b"");
        sys::close(fd);
    }
    let host = Host::detect(false);
    cache::init(host.policy());
    let mut first: Option<*mut Thread> = None;
    for e in entries {
        let Some(emit) = ring::Emitter::thread_of(e.tid as i32) else {
            refuse(&line!("too many threads"));
        };
        let t = host.thread(emit, dispatch::run);
        fill(t, e);
        // SAFETY: `host.thread` made `f` in an earlier turn of this loop. Nothing else uses it yet.
        match first.map(|f| unsafe { &*f }) {
            Some(f) => {
                t.signals.actions = f.signals.actions.clone();
                t.signals.shared = f.signals.shared.clone();
            }
            None => first = Some(t),
        }
        threads::register(t);
        (e.stack, e.thread) = (t.slot.stack_end(), t as *mut Thread as u64);
    }
    let Some(first) = first else {
        refuse(&line!("no thread is left"));
    };
    // SAFETY: `host.thread` made it in the loop above. No other reference to it is in use.
    let first = unsafe { &mut *first };
    if threads::count() > 1 {
        cache::cache().sequence_atomics(first);
    }
    log!(Info, "takes over {} threads", threads::count());
    // From here on nothing fails.
    actions::take_over(first);
    block.enter = hindsight_attached as *const () as u64;
    block.status = status::READY;
    fail::before_death(None);
}

fn fill(t: &mut Thread, e: &Entry) {
    let mut cpu = CpuState::default();
    cpu.gpr.copy_from_slice(&e.cpu[..16]);
    [cpu.rip, cpu.rflags, cpu.fs_base, cpu.gs_base] = [e.cpu[16], e.cpu[17], e.cpu[18], e.cpu[19]];
    (t.ctx.gpr, t.ctx.rip, t.ctx.rflags) = (cpu.gpr, cpu.rip, cpu.rflags);
    (t.ctx.fs_base, t.ctx.gs_base) = (cpu.fs_base, cpu.gs_base);
    t.signals.mask = e.mask;
    t.task.tid = e.tid as i32;
    t.emulated.rseq = (e.rseq != 0).then_some(rseq::Rseq {
        addr: e.rseq,
        len: e.rseq_len,
        sig: e.rseq_sig,
    });
}

/// Says why to the command line, which undoes what was done. Does not return.
fn refuse(message: &Line) -> ! {
    // SAFETY: `prepare` has set `BLOCK` before anything could fail. It uses its own reference no
    // more, since this function never returns. `hindsight_attach_done` goes back to the stack
    // pointer that `hindsight_attach` saved on this very stack.
    unsafe {
        let block = &mut *(BLOCK.load(Relaxed) as *mut Block);
        let text = message.as_bytes();
        block.message[..text.len()].copy_from_slice(text);
        block.message_len = text.len() as u32;
        block.status = status::FAILED;
        hindsight_attach_done()
    }
}

/// The first function that each of the program's threads runs in the recorder. All signals are
/// blocked.
extern "C" fn enter(t: *mut Thread, vectors: *const Area) -> ! {
    // SAFETY: `prepare` made `t` for this thread alone. `hindsight_attached` passes the address of
    // the area that it has just filled on this stack.
    let (t, vectors) = unsafe { (&mut *t, &*vectors) };
    sys::set_gs_base(t.window.gs_base());
    t.task.tid = sys::gettid();
    t.slot.arrive(false);
    if let Some(r) = t.emulated.rseq {
        // The kernel would enter and abort restartable sequences without the recorder's knowledge.
        rseq::tell_kernel(r, rseq::UNREGISTER);
    }
    // SAFETY: the range belongs to the place that `prepare` gave this thread. Nothing else uses it.
    let before = unsafe { sys::exchange_altstack(t.slot.signal_stack()) };
    if let Ok([base, flags, size]) = before {
        t.signals.alt = AltStack::of(base, flags, size);
    }
    t.set_area(vectors);
    t.code.epoch = cache::cache().code.epoch;
    if threads::count() > 1 {
        t.sequence_always();
    }
    t.begin();
    pass::unblock(t);
    dispatch::run(t)
}

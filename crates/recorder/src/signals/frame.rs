//! The frame that the kernel puts on the stack for a signal handler, and the way back from it.
//!
//! The layout is that of Linux, in `arch/x86/kernel/signal_64.c` (`struct rt_sigframe`) and
//! `fpu/signal.c`.

mod layout;

use self::layout::{FRAME, HEADER, MAGIC2, SOFTWARE, SignalFrame, UC_FLAGS, mark_area};
use crate::sys::context::{CR2, Context, EFLAGS, ERROR, Info, TF, TRAPNO};
use crate::sys::{self, SigAction, guard};
use crate::thread::Thread;
use crate::thread::signal_state::AltStack;
use alloc::boxed::Box;
use core::arch::asm;
use hindsight_events::Event;
use hindsight_isa::cpuid::Baseline;
use hindsight_isa::regs::{RAX, RDI, RDX, RSI, RSP};
use hindsight_isa::xsave::{AREA_LEN, Area};
use linux_raw_sys::general::{SA_ONSTACK, SA_RESTORER, SS_AUTODISARM};

const RED_ZONE: u64 = 128;
/// The flag that the processor sets in the flags that it saves at a fault.
const RESUME: u64 = 1 << 16;
/// Exceptions that are reported behind their instruction: debug, breakpoint, overflow.
const TRAPS: [u8; 3] = [1, 3, 4];

/// The state components that the program knows of, and the bytes of an XSAVE area for them.
fn shape(t: &Thread) -> (u64, usize) {
    let baseline = [Baseline::Host, Baseline::V2, Baseline::V3, Baseline::V4];
    let mask = baseline[(crate::sys::config::get().baseline as usize).min(3)]
        .xcr0(t.vectors.layout().mask);
    (mask, area_size(mask))
}

/// Bytes of an XSAVE area for these components.
fn area_size(mask: u64) -> usize {
    let end = |i: u32| {
        let r = crate::code::processor::ask(0xd, i);
        (r.eax + r.ebx) as usize
    };
    let size = (2..8)
        .filter(|i| mask & 1 << i != 0)
        .map(end)
        .max()
        .unwrap_or(HEADER + 64);
    size.min(AREA_LEN)
}

/// Gives the thread the program's registers and the signal mask `mask`, and leaves the recorder for
/// good. A pending signal that the mask does not block kills the process.
pub fn go_native(t: &mut Thread, mask: u64) -> ! {
    /// An area, with room for the trailing word behind the largest one.
    #[repr(C, align(64))]
    struct Native {
        area: Area,
        behind: [u8; 64],
        frame: SignalFrame,
    }
    let components = t.vectors.layout().mask;
    let size = area_size(components);
    let mut n = Box::new(Native {
        area: Area::default(),
        behind: [0; 64],
        frame: SignalFrame::default(),
    });
    t.save_area(&mut n.area);
    mark_area(&mut n.area.0, components, size);
    let trailer = MAGIC2.to_le_bytes();
    match size {
        AREA_LEN => n.behind[..4].copy_from_slice(&trailer),
        _ => n.area.0[size..size + 4].copy_from_slice(&trailer),
    }
    let uc = &mut n.frame.uc;
    *uc = Context::from_cpu(&t.cpu());
    uc.flags = UC_FLAGS;
    uc.stack = [
        t.signals.alt.base,
        t.signals.alt.flags as u64,
        t.signals.alt.size,
    ];
    uc.mask = mask;
    let n = Box::leak(n);
    n.frame.uc.fpstate = &raw const n.area as u64;
    let (frame, gs) = (&raw const n.frame.uc as u64, t.ctx.gs_base);
    sys::set_gs_base(gs);
    // SAFETY: `frame` is a frame as the kernel makes them: its context says that the area lies at
    // `n.area`. It is leaked, so it is never freed. Nothing of the recorder runs in this thread
    // afterwards.
    unsafe {
        asm!("mov rsp, {frame}", "mov eax, {nr}", "syscall", "ud2", frame = in(reg) frame,
            nr = const linux_raw_sys::general::__NR_rt_sigreturn, options(noreturn))
    }
}

/// Puts the frame of handler `a` on the program's stack and points the registers at the handler.
/// `fault`: the instruction at hand has raised the signal. False: the stack cannot be written.
pub fn push(t: &mut Thread, info: &Info, a: &SigAction, mask: u64, fault: bool) -> bool {
    // On x86-64 the kernel knows no other way back.
    if a.flags & SA_RESTORER as u64 == 0 {
        return false;
    }
    let alt = t.signals.alt;
    let mut sp = t.ctx.gpr[RSP].wrapping_sub(RED_ZONE);
    let nested = alt.contains(t.ctx.gpr[RSP]);
    let entering = a.flags & SA_ONSTACK as u64 != 0 && !nested && alt.size != 0;
    if entering {
        sp = alt.base.wrapping_add(alt.size);
    }
    let (components, size) = shape(t);
    let (fpstate, frame_at) = layout::addresses(sp, size);
    if (nested || entering) && !(AltStack { flags: 0, ..alt }).contains(frame_at) {
        return false;
    }
    let mut uc = Context::from_cpu(&t.cpu());
    uc.flags = UC_FLAGS;
    uc.stack = [alt.base, alt.flags as u64, alt.size];
    uc.fpstate = fpstate;
    uc.mask = mask;
    let trap = t.signals.trap;
    uc.regs[TRAPNO] = trap.number as u64;
    uc.regs[ERROR] = trap.error as u64;
    uc.regs[CR2] = trap.address;
    if fault && !TRAPS.contains(&trap.number) {
        uc.regs[EFLAGS] |= RESUME;
    }
    uc.regs[EFLAGS] |= t.signals.stepping.enter_handler();
    let frame = SignalFrame {
        restorer: a.restorer,
        uc,
        info: *info,
    };
    let area = t.area();
    let image = &mut area.0;
    mark_area(image, components, size);
    let bytes = frame.bytes();
    let written = guard::write(fpstate, &image[..size])
        .and_then(|()| guard::write(fpstate + size as u64, &MAGIC2.to_le_bytes()))
        .and_then(|()| guard::write(frame_at, &bytes));
    image[SOFTWARE..HEADER].fill(0);
    if written.is_err() {
        return false;
    }
    match t.regime.quiet {
        true => crate::memory::regime::tell(t, frame_at, fpstate + size as u64 + 4 - frame_at),
        // Without this, what lay there before would be taken for what the handler reads, above all
        // the return address. The vector registers in the frame are left out: handlers hardly ever
        // read them.
        false => {
            let rest = frame_at + FRAME as u64;
            crate::memory::regime::changed(t, rest, fpstate + size as u64 + 4 - rest);
            t.put(frame_at, &bytes);
        }
    }
    if alt.flags & SS_AUTODISARM != 0 {
        t.signals.alt = AltStack::NONE;
    }
    let mut cpu = t.cpu();
    cpu.gpr[RAX] = 0;
    cpu.gpr[RDX] = frame_at + 8;
    cpu.gpr[RSP] = frame_at;
    cpu.gpr[RSI] = frame_at + core::mem::offset_of!(SignalFrame, info) as u64;
    cpu.gpr[RDI] = info.signo as u64;
    cpu.rip = a.handler;
    cpu.rflags &= !0x400;
    t.set_cpu(&cpu);
    t.set_area(&Area::default());
    true
}

/// Records all registers.
pub fn emit_state(t: &mut Thread) {
    let cpu = t.cpu().to_bytes();
    let vec = t.vec().to_bytes();
    t.event(&Event::SetState {
        cpu: &cpu,
        vec: &vec,
    });
}

/// What `rt_sigreturn` has found besides registers. The registers are set already.
pub struct Restored {
    /// Signals to block.
    pub mask: u64,
    /// Alternate stack: start, flags, size.
    pub stack: [u64; 3],
}

/// Takes the registers from the frame that the stack pointer stands in. `None`: the frame cannot be
/// read, or the processor would not accept it.
pub fn pop(t: &mut Thread) -> Option<Restored> {
    let mut bytes = [0; FRAME];
    guard::read(t.ctx.gpr[RSP].wrapping_sub(8), &mut bytes).ok()?;
    let frame = SignalFrame::from_bytes(&bytes);
    let area = read_area(t, frame.uc.fpstate)?;
    let mut cpu = t.cpu();
    frame.uc.to_cpu(&mut cpu);
    t.signals.stepping.set = frame.uc.regs[EFLAGS] & TF != 0;
    t.set_cpu(&cpu);
    t.set_area(&area);
    Some(Restored {
        mask: frame.uc.mask,
        stack: frame.uc.stack,
    })
}

/// The vector state that a frame holds at `addr`. The initial state if that is 0.
fn read_area(t: &Thread, addr: u64) -> Option<Area> {
    let mut area = Area::default();
    if addr == 0 {
        return Some(area);
    }
    let (components, size) = shape(t);
    guard::read(addr, &mut area.0[..HEADER]).ok()?;
    let mut present = layout::X87_AND_SSE;
    if let Some(says) = layout::size_of_area(&area)
        && layout::has_trailer(addr, says)
    {
        guard::read(addr, &mut area.0[..says.min(size)]).ok()?;
        present = layout::components(&area) & components;
    }
    area.0[SOFTWARE..HEADER].fill(0);
    area.0[HEADER..HEADER + 64].fill(0);
    area.0[HEADER..HEADER + 8].copy_from_slice(&present.to_le_bytes());
    // Bits of MXCSR that must be 0.
    (layout::word(&area, 24) & 0xffff_0000 == 0).then_some(area)
}

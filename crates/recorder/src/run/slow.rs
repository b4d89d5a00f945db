//! Instructions that the runtime executes itself, or prepares for translated code.

use crate::code::cache;
use crate::run::dispatch::{Next, resume};
use crate::run::shadow::{Both, Shadow};
use crate::run::{nondet, precheck, transcendental, xstate};
use crate::signals::{exceptions, stepping};
use crate::sys::guard::{self, Fault};
use crate::thread::{Thread, end, pass};
use hindsight_events::Event;
use hindsight_isa::regs::{RAX, RCX, RDI, RSI, recorded};
use hindsight_isa::string::{Kind, Regs, Repeat, StringMemory, StringOp};
use hindsight_isa::{Ctx, Predictor, Transcendental, VecState, comes_from_outside};
use hindsight_isa::{Desc, state::RFLAGS_MASK};
use hindsight_translate::{completed, familiar};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

/// The instruction of a descriptor.
pub fn decode(desc: &Desc) -> Instruction {
    let n = (desc.ilen as usize).min(15);
    if let Some(i) = familiar(&desc.bytes[..n], desc.pc) {
        return i;
    }
    Decoder::with_ip(64, &desc.bytes[..n], desc.pc, DecoderOptions::NONE).decode()
}

/// Executes the instruction of `desc`. The thread stands before it.
pub fn execute(t: &mut Thread, desc: &Desc) -> Next {
    log!(
        Trace,
        "executes the instruction at {:#x}: {:x?}",
        desc.pc,
        &desc.bytes[..desc.ilen as usize]
    );
    if let Some(op) = StringOp::decode(&desc.bytes[..desc.ilen as usize]) {
        return string(t, desc, op);
    }
    let i = decode(desc);
    if i.memory_index().is_vector_register() {
        return crate::run::vsib::execute(t, desc, &i);
    }
    if let Some(what) = Transcendental::of(i.mnemonic()) {
        let done = transcendental::execute(t, &i, what);
        return finish(t, desc, done);
    }
    use Mnemonic::*;
    let done = match i.mnemonic() {
        Nop => return crate::run::mark::execute(t, desc),
        m if comes_from_outside(m) => nondet::execute(t, &i),
        Rdfsbase | Rdgsbase | Wrfsbase | Wrgsbase => base(t, &i),
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64
        | Fnsave | Fsave | Fnstenv | Fstenv => xstate::save(t, &i),
        _ => unsupported(t, desc.pc),
    };
    finish(t, desc, done)
}

/// Goes on after an instruction that is done, or delivers its fault.
pub fn finish(t: &mut Thread, desc: &Desc, done: Result<(), Fault>) -> Next {
    match done {
        Ok(()) if pass::waiting(t) => {
            t.ctx.rip = desc.pc + desc.ilen as u64;
            t.complete();
            Next::Boundary
        }
        Ok(()) => resume(t, desc),
        Err(f) => {
            exceptions::fault(t, &f);
            Next::Boundary
        }
    }
}

/// Brings up to date what the instruction of `desc` reads.
pub fn precheck(t: &mut Thread, desc: &Desc) -> Next {
    let i = decode(desc);
    match precheck::run(t, &i, desc.size as u64) {
        Ok(true) => resume(t, desc),
        Ok(false) => crate::run::vsib::execute(t, desc, &i),
        Err(f) => {
            exceptions::fault(t, &f);
            Next::Boundary
        }
    }
}

/// The instruction at `pc`, its bytes, and how many bytes could be read there.
pub fn fetch(pc: u64) -> (Instruction, [u8; 15], usize) {
    let mut bytes = [0; 15];
    let n = (1..=15)
        .rev()
        .find(|n| guard::read(pc, &mut bytes[..*n]).is_ok())
        .unwrap_or(0);
    let i = Decoder::with_ip(64, &bytes[..n], pc, DecoderOptions::NONE).decode();
    (i, bytes, n)
}

/// Executes what ends a block and is not translated: software interrupts, `popf` and far transfers.
/// Any other instruction ends the recording.
pub fn interrupt(t: &mut Thread, pc: u64) {
    const SYSTEM_CALL: u8 = 0x80;
    let i = fetch(pc).0;
    match i.mnemonic() {
        Mnemonic::Int if i.immediate8() != SYSTEM_CALL => {
            exceptions::interrupt(t, i.immediate8(), i.next_ip())
        }
        Mnemonic::Popf | Mnemonic::Popfq => stepping::pop_flags(t, &i),
        Mnemonic::Int1 => exceptions::debug_trap(t, i.next_ip()),
        _ if crate::run::far::execute(t, &i) => {}
        _ => unsupported(t, pc),
    }
}

/// Ends the recording at an instruction that the recorder does not know.
pub fn unsupported(t: &mut Thread, pc: u64) -> ! {
    let (i, bytes, n) = fetch(pc);
    let mut l = crate::line!("unsupported instruction {:?} at {pc:#x}, bytes", i.code());
    for b in &bytes[..i.len().max(1).min(n)] {
        let _ = core::fmt::Write::write_fmt(&mut l, format_args!(" {b:02x}"));
    }
    end::unsupported(t, &l)
}

/// `rdfsbase` and its kin. They see the bases that the program has set.
fn base(t: &mut Thread, i: &Instruction) -> Result<(), Fault> {
    let r = i.op_register(0);
    let wide = r.size() == 8;
    let n = r.full_register().number();
    let low = |v: u64| if wide { v } else { v as u32 as u64 };
    match i.mnemonic() {
        Mnemonic::Rdfsbase => t.ctx.gpr[n] = low(t.ctx.fs_base),
        Mnemonic::Rdgsbase => t.ctx.gpr[n] = low(t.ctx.gs_base),
        m => {
            let v = low(t.ctx.gpr[n]);
            if (v as i64) << 16 >> 16 != v as i64 {
                return Err(Fault::GP);
            }
            if m == Mnemonic::Wrfsbase {
                t.ctx.fs_base = v;
                crate::sys::set_fs_base(v);
            } else {
                t.ctx.gs_base = v;
            }
        }
    }
    Ok(())
}

// ---- string instructions ----

fn string(t: &mut Thread, desc: &Desc, op: StringOp) -> Next {
    let (base, mut regs) = operands(t, op);
    if t.is_unrecorded() {
        let done = op.execute(&mut regs, base, 0, &mut Real);
        store(t, &regs);
        return finish(t, desc, done);
    }
    if op.operands_collide(&regs, base, t.window.predictor()) {
        return collide(t, desc, op, regs, base);
    }
    // Iterations that translated code has done already.
    let from = match desc.size {
        0 => 0,
        _ => completed(&desc.bytes[..desc.ilen as usize], t.ctx, regs.rcx).unwrap_or(0),
    };
    let result = op.execute(&mut regs, base, from, &mut Both::new(t, from));
    store(t, &regs);
    let done = result.map_err(|(f, done)| {
        // Makes replay stop at the same iteration.
        t.event(&Event::RepChunk { iterations: done });
        f
    });
    finish(t, desc, done)
}

/// Executes one iteration of a repeated instruction at which the thread stands, and records what it
/// did. Does nothing and returns false if the iteration is the last one or fails.
pub fn iterate(t: &mut Thread, op: StringOp) -> bool {
    let count = match op.addr32 {
        true => t.ctx.gpr[RCX] as u32 as u64,
        false => t.ctx.gpr[RCX],
    };
    if op.repeat == Repeat::No || count < 2 {
        return false;
    }
    let (base, mut regs) = operands(t, op);
    let to = regs.rdi;
    let once = StringOp {
        repeat: Repeat::No,
        ..op
    };
    if once.execute(&mut regs, base, 0, &mut Real).is_err() {
        return false;
    }
    const ZERO: u64 = 0x40;
    let compares = matches!(op.kind, Kind::Cmps | Kind::Scas);
    if compares && (regs.rflags & ZERO != 0) == (op.repeat == Repeat::NotEqual) {
        return false;
    }
    regs.rcx = count - 1;
    store(t, &regs);
    tell_registers(t, [RAX, RCX, RSI, RDI], 0);
    if matches!(op.kind, Kind::Movs | Kind::Stos) {
        let to = if op.addr32 { to as u32 as u64 } else { to };
        stepping::tell(t, to, op.size as u64);
    }
    true
}

/// Base of the source's segment and the registers, for a string instruction.
fn operands(t: &Thread, op: StringOp) -> (u64, Regs) {
    let base = op.segment.base(t.ctx.fs_base, t.ctx.gs_base);
    (base, Regs::of(&t.ctx.gpr, t.ctx.rflags))
}

fn store(t: &mut Thread, r: &Regs) {
    r.store(&mut t.ctx.gpr);
    t.ctx.rflags = r.rflags & RFLAGS_MASK;
}

/// Records what these registers and the flags hold now.
fn tell_registers<const N: usize>(t: &mut Thread, registers: [usize; N], ilen: u8) {
    let mut values = [0; recorded::COUNT];
    values[recorded::FLAGS] = t.ctx.rflags;
    let mut mask = 1 << recorded::FLAGS;
    for r in registers {
        values[r] = t.ctx.gpr[r];
        mask |= 1 << r;
    }
    t.event(&Event::Regs { mask, ilen, values });
}

/// Memory alone, without its cells.
struct Real;

impl StringMemory for Real {
    type Stop = Fault;
    fn chunk(&mut self, _: u64) -> Result<u64, Fault> {
        Ok(u64::MAX)
    }
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        guard::read(addr, buf)
    }
    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), Fault> {
        guard::write(addr, buf)
    }
}

/// A string instruction whose operands share cells. Its outcome is recorded.
fn collide(t: &mut Thread, desc: &Desc, op: StringOp, mut regs: Regs, base: u64) -> Next {
    let result = op.execute(&mut regs, base, 0, &mut Real);
    if result.is_err() {
        // Nothing of it is kept. It begins anew after the signal, as after an interrupt before it.
        return finish(t, desc, result);
    }
    store(t, &regs);
    tell_registers(t, [RCX, RSI, RDI], desc.ilen);
    finish(t, desc, Ok(()))
}

impl Shadow for Thread {
    fn ctx(&self) -> &Ctx {
        self.ctx
    }

    fn vec(&mut self) -> VecState {
        Thread::vec(self)
    }

    fn x87_control(&mut self) -> u16 {
        // The runtime uses no x87 register, so the program's are in this processor. To save all vectors would take longer.
        hindsight_glue::x87_control()
    }

    fn cell(&self, a: u64) -> *mut u8 {
        Thread::cell(self, a)
    }

    fn predictor(&self) -> Predictor {
        self.window.predictor()
    }

    fn is_plain(&self) -> bool {
        Thread::is_plain(self)
    }

    fn event(&mut self, ev: &Event) {
        Thread::event(self, ev);
    }

    fn count_misprediction(&mut self) {
        self.mispredictions += 1;
    }

    fn unsupported(&mut self, pc: u64) -> ! {
        unsupported(self, pc)
    }
}

impl Thread {
    /// Records what the kernel, or the recorder in its place, has put into memory: `bytes` at
    /// `addr`.
    pub fn put(&mut self, addr: u64, bytes: &[u8]) {
        if self.is_plain() {
            return;
        }
        self.write_cells(addr, bytes);
        self.event(&Event::Memory { addr, bytes });
    }

    /// Records that memory which the program has got, and not written yet, holds `bytes` at `addr`. They are those of `key`.
    pub fn refresh(&mut self, addr: u64, bytes: &[u8], key: u64) {
        self.write_cells(addr, bytes);
        let len = bytes.len() as u32;
        self.event(&Event::Fresh { addr, len, key });
    }

    /// The program's executable memory in `addr..addr+len` has changed, was unmapped, or has become
    /// writable.
    pub fn invalidate_code(&mut self, addr: u64, len: u64) {
        cache::cache().invalidate(self, addr, len);
    }
}

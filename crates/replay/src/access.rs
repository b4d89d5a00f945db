//! What one instruction does to memory, computed from its bytes and the registers before it. This is slow;
//! everything faster is measured against it.

use hindsight_isa::regs::{RAX, RCX, RDI, RDX, RSI};
use hindsight_isa::string::{Kind, Repeat, StringOp};
use hindsight_isa::xsave::{AREA_LEN, HEADED, LENGTHS, Layout, compact_offset};
use hindsight_isa::{CpuState, VecState};
use hindsight_translate::effective::{Registers, stores_state};
use hindsight_translate::vsib::{Elements, gathers};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
    UsedMemory,
};

/// A contiguous access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub address: u64,
    pub len: u64,
    pub read: bool,
    pub write: bool,
    /// The value that it wrote is unknown: replay does not have that state of the processor.
    pub unknown: bool,
}

impl Access {
    /// Whether it shares bytes with the `len` bytes at `address`.
    pub fn touches(&self, address: u64, len: u64) -> bool {
        // Neither range wraps around in a recorded program.
        self.address < address.saturating_add(len)
            && address < self.address.saturating_add(self.len)
    }
}

/// The instruction at the start of `code`. `None` if the bytes are not an instruction.
pub fn decode(code: &[u8], pc: u64) -> Option<Instruction> {
    let i = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
    (!i.is_invalid()).then_some(i)
}

/// Finds the accesses of instructions.
pub struct Finder {
    info: InstructionInfoFactory,
    saves: Layout,
}

impl Finder {
    /// Makes a finder for programs whose processor lays out so what `xsave` saves. Its buffers are reused.
    pub fn new(saves: Layout) -> Finder {
        Finder {
            info: InstructionInfoFactory::new(),
            saves,
        }
    }

    /// Finds the accesses of the instruction in `code`, which ran in state `before` and left `after`.
    pub fn find(
        &mut self,
        code: &[u8],
        before: (&CpuState, &VecState),
        after: &CpuState,
        out: &mut Vec<Access>,
    ) {
        out.clear();
        let (cpu, vec) = before;
        if let Some(op) = StringOp::decode(code) {
            return string(&op, cpu, after, out);
        }
        let Some(i) = decode(code, cpu.rip) else {
            return;
        };
        let registers = Registers::from(cpu);
        if i.memory_index().is_vector_register() {
            if let Some(e) = Elements::of(&i, vec, &registers) {
                let gather = gathers(&i);
                out.extend(e.active.iter().map(|(_, at)| Access {
                    address: *at,
                    len: e.size as u64,
                    read: gather,
                    write: !gather,
                    unknown: false,
                }));
            }
            return;
        }
        for m in self.info.info(&i).used_memory() {
            let (read, write) = kinds(m.access());
            if !read && !write {
                continue;
            }
            let Some(address) = registers.used(&i, m, write) else {
                continue;
            };
            let access = Access {
                address,
                len: size(&i, m, cpu, &self.saves) as u64,
                read,
                write,
                unknown: write && stores_state(i.mnemonic()),
            };
            match masked(&i, vec) {
                Some((step, bits)) => elements(access, step, bits, out),
                None => out.push(access),
            }
        }
    }
}

/// Reads memory as it was before an instruction.
pub type Held<'a> = &'a dyn Fn(u64, &mut [u8]);

impl Finder {
    /// The same, but exact where [`Finder::find`] only knows an upper bound: the area says what `xrstor`
    /// reads.
    pub fn find_in(
        &mut self,
        code: &[u8],
        before: (&CpuState, &VecState),
        after: &CpuState,
        held: Held,
        out: &mut Vec<Access>,
    ) {
        self.find(code, before, after, out);
        let restores = |a: &Access| a.len as usize == LONGEST && a.read && !a.write;
        let [area] = out[..] else { return };
        if !restores(&area) {
            return;
        }
        let mut header = [0; 16];
        held(area.address.wrapping_add(512), &mut header);
        out.clear();
        out.push(Access {
            len: HEADED as u64,
            ..area
        });
        let part = |(at, len): (usize, usize)| Access {
            address: area.address.wrapping_add(at as u64),
            len: len as u64,
            ..area
        };
        out.extend(
            restored(&self.saves, before.0, &header)
                .into_iter()
                .map(part),
        );
    }
}

/// The parts of an area behind its header that `xrstor` reads, as pairs of offset and length. Components that
/// the area does not have are reset, not read.
fn restored(saves: &Layout, cpu: &CpuState, header: &[u8; 16]) -> Vec<(usize, usize)> {
    let word = |n: usize| u64::from_le_bytes(core::array::from_fn(|i| header[8 * n + i]));
    let (present, layout) = (word(0), word(1));
    let compact = layout >> 63 != 0;
    let asked = (cpu.gpr[RAX] & 0xffff_ffff | cpu.gpr[RDX] << 32) & present;
    let mut out = Vec::new();
    for (component, len) in LENGTHS {
        let bit = 1 << component;
        let at = match compact {
            true if layout & bit == 0 => continue,
            true => Some(compact_offset(layout, component)),
            false => saves.offset(component),
        };
        if let Some(at) = at.filter(|_| asked & bit != 0) {
            out.push((at, len));
        }
    }
    out
}

/// Whether an access reads, and whether it writes.
pub fn kinds(a: OpAccess) -> (bool, bool) {
    match a {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// Bytes of an access. Covers instructions for which the library gives no size.
fn size(i: &Instruction, m: &UsedMemory, cpu: &CpuState, saves: &Layout) -> usize {
    use Mnemonic::*;
    match (m.memory_size().size(), i.mnemonic()) {
        (0, Fxsave | Fxsave64 | Fxrstor | Fxrstor64) => 512,
        (0, Xsave | Xsave64 | Xsaveopt | Xsaveopt64) => saves.len(asked(cpu), false),
        (0, Xsavec | Xsavec64) => saves.len(asked(cpu), true),
        // Only the area says which form is read and where its components are. So this is the upper bound.
        (0, Xrstor | Xrstor64) if saves.len(asked(cpu), true) > HEADED => LONGEST,
        (0, Xrstor | Xrstor64) => HEADED,
        (n, _) => n,
    }
}

/// At least the bytes of each XSAVE area.
const LONGEST: usize = AREA_LEN;

/// The components that the registers ask an instruction to save or to restore.
fn asked(cpu: &CpuState) -> u64 {
    cpu.gpr[RAX] & 0xffff_ffff | cpu.gpr[RDX] << 32
}

/// Element size in bytes, and mask, of a masked access.
fn masked(i: &Instruction, vec: &VecState) -> Option<(u64, u64)> {
    use Mnemonic::*;
    let signs = |register: Register, step: usize| {
        let n = register.number();
        let bits = (0..64 / step).filter(|e| vec.zmm[n][e * step + step - 1] & 0x80 != 0);
        (step as u64, bits.fold(0, |m, e| m | 1 << e))
    };
    let width = |r: Register| {
        if r.size() < 64 {
            (1u64 << (r.size() as u64)) - 1
        } else {
            u64::MAX
        }
    };
    match i.mnemonic() {
        Vmaskmovps | Vpmaskmovd | Vmaskmovpd | Vpmaskmovq => {
            let wide = matches!(i.mnemonic(), Vmaskmovpd | Vpmaskmovq);
            let (step, bits) = signs(i.op1_register(), if wide { 8 } else { 4 });
            Some((step, bits & (width(i.op1_register()))))
        }
        Maskmovq => {
            let n = i.op1_register().number();
            let bits = (0..8).filter(|e| vec.st[n][*e] & 0x80 != 0);
            Some((1, bits.fold(0, |m, e| m | 1 << e)))
        }
        Maskmovdqu | Vmaskmovdqu => {
            let (step, bits) = signs(i.op1_register(), 1);
            Some((step, bits & 0xffff))
        }
        _ if i.op_mask() != Register::None && !i.is_broadcast() => {
            let step = i.memory_size().element_size().max(1) as u64;
            let bits = vec.k[i.op_mask().number()];
            let count = (i.memory_size().size() as u64 / step).min(64);
            let within = if count == 64 {
                u64::MAX
            } else {
                (1 << count) - 1
            };
            let bits = bits & within;
            Some(match i.mnemonic() {
                Vpcompressb | Vpcompressw | Vpcompressd | Vpcompressq | Vcompressps
                | Vcompresspd | Vpexpandb | Vpexpandw | Vpexpandd | Vpexpandq | Vexpandps
                | Vexpandpd => match bits.count_ones() {
                    64 => (step, u64::MAX),
                    n => (step, (1 << n) - 1),
                },
                _ => (step, bits),
            })
        }
        _ => None,
    }
}

/// The parts of an access that its mask leaves.
fn elements(whole: Access, step: u64, bits: u64, out: &mut Vec<Access>) {
    let count = whole.len.checked_div(step).unwrap_or(0);
    let mut e = 0;
    while e < count.min(64) {
        let run = (bits >> e).trailing_ones() as u64;
        if run == 0 {
            e += 1;
            continue;
        }
        let run = run.min(count - e);
        out.push(Access {
            address: whole.address.wrapping_add(e * step),
            len: run * step,
            ..whole
        });
        e += run;
    }
}

/// The source and destination of a string instruction, as far as it got.
fn string(op: &StringOp, before: &CpuState, after: &CpuState, out: &mut Vec<Access>) {
    let size = op.size as u64;
    let short = op.addr32;
    let count = match (op.repeat, short) {
        (Repeat::No, _) => 1,
        (_, false) => before.gpr[RCX].wrapping_sub(after.gpr[RCX]),
        (_, true) => (before.gpr[RCX] as u32).wrapping_sub(after.gpr[RCX] as u32) as u64,
    };
    if count == 0 {
        return;
    }
    let down = before.rflags & 0x400 != 0;
    let mut add = |register: usize, base: u64, read, write| {
        let at = before.gpr[register];
        let at = if short { at as u32 as u64 } else { at };
        let len = count.saturating_mul(size);
        let first = at.wrapping_add(base);
        let address = match down {
            false => first,
            true => first.wrapping_add(size).wrapping_sub(len),
        };
        out.push(Access {
            address,
            len,
            read,
            write,
            unknown: false,
        });
    };
    let base = op.segment.base(before.fs_base, before.gs_base);
    match op.kind {
        Kind::Movs => {
            add(RSI, base, true, false);
            add(RDI, 0, false, true);
        }
        Kind::Cmps => {
            add(RSI, base, true, false);
            add(RDI, 0, true, false);
        }
        Kind::Stos => add(RDI, 0, false, true),
        Kind::Lods => add(RSI, base, true, false),
        Kind::Scas => add(RDI, 0, true, false),
    }
}

//! Which bytes an instruction only copies, found by trying it.
//!
//! The interpreter executes the instruction again and again, each time with other bytes in one register or one operand in memory. A
//! byte that it leaves is a copy of one that it found if both are the same each time. So no table says what instructions do: moves,
//! extensions, shuffles, exchanges and conditional moves are all found alike. Memory has no addresses here: the instruction's first
//! access is its first one whatever the address is. So bytes of registers that make addresses can be others, too.

use crate::past::Step;
use crate::place::{Cell, Place, bytes_of, set_bytes, whole};
use hindsight_interp::{Code, Fault, Interpreter, Memory, Ran, Saved};
use hindsight_isa::string::{Kind, StringOp};
use hindsight_timeline::{Touch, VecState};
use iced_x86::{CpuidFeature, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use std::ops::Range;

/// So often each operand gets other bytes. Each time, a byte that is no copy is the same by chance in one of 256 cases.
const TRIALS: usize = 8;

/// Where bytes come from that an instruction leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gives {
    /// These of the wanted bytes are copies of those that were there before. Others say nothing, as the zeros of an extension.
    Copies(Vec<(Range<usize>, Place)>),
    /// The instruction itself says them.
    Constant,
    /// It computes them.
    Computed,
    /// It asks the processor.
    Processor,
    /// It cannot be tried, for this reason.
    Unknown(String),
}

/// Where one byte comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Byte {
    Copy(Cell),
    Constant,
    Computed,
}

/// Where bytes come from that an instruction leaves in a place. All of the place was written, or else was there before.
/// `value` is what they are, as far as that is known.
pub(crate) fn gives(step: &Step, vec: &VecState, wanted: &Place, value: &[Option<u8>]) -> Gives {
    if let Some(op) = StringOp::decode(&step.code) {
        return as_value(step, string(&op, step, wanted));
    }
    match Trial::new(step, vec) {
        Ok(mut trial) => match trial.sources(wanted, value) {
            Ok(bytes) => as_value(step, bytes),
            Err(why) => why,
        },
        Err(why) => why,
    }
}

/// Takes bytes together that make up a value.
fn as_value(step: &Step, bytes: Vec<Byte>) -> Gives {
    let mut runs: Vec<(Range<usize>, Place)> = Vec::new();
    for (i, b) in bytes.iter().enumerate() {
        let Byte::Copy(cell) = b else { continue };
        if let Some((range, place)) = runs.last_mut()
            && range.end == i
            && place.push(*cell)
        {
            range.end += 1;
            continue;
        }
        runs.push((i..i + 1, Place::from(*cell)));
    }
    let computed = bytes.contains(&Byte::Computed);
    match (runs.is_empty(), computed) {
        // The upper bytes of an extension follow from the others.
        (_, true) if runs.is_empty() || !extends(step) => Gives::Computed,
        (true, _) => Gives::Constant,
        (false, _) => Gives::Copies(runs),
    }
}

/// Whether the instruction extends a number by its sign.
fn extends(step: &Step) -> bool {
    use Mnemonic::*;
    matches!(
        step.instruction.mnemonic(),
        Movsx
            | Movsxd
            | Cbw
            | Cwde
            | Cdqe
            | Pmovsxbw
            | Pmovsxbd
            | Pmovsxbq
            | Pmovsxwd
            | Pmovsxwq
            | Pmovsxdq
            | Vpmovsxbw
            | Vpmovsxbd
            | Vpmovsxbq
            | Vpmovsxwd
            | Vpmovsxwq
            | Vpmovsxdq
    )
}

/// The register that only says where bytes go. Other bytes there lead to other copies, which says nothing of those that were made.
fn leads(step: &Step) -> Option<Register> {
    use Mnemonic::*;
    let i = &step.instruction;
    let n = match i.mnemonic() {
        Pshufb => 1,
        Vpshufb | Vpermilps | Vpermilpd => 2,
        Vpermb | Vpermw | Vpermd | Vpermq | Vpermps | Vpermpd => 1,
        Vpblendvb | Vblendvps | Vblendvpd => 3,
        Pblendvb | Blendvps | Blendvpd => return Some(Register::ZMM0),
        _ => return None,
    };
    (n < i.op_count()).then(|| i.op_register(n).full_register())
}

/// Where bytes come from that a string instruction leaves. It may have done its work many times.
fn string(op: &StringOp, step: &Step, wanted: &Place) -> Vec<Byte> {
    let touch = |write: bool| {
        let mut all = step.touches.iter().map(|t| &t.access);
        all.find(|a| if write { a.write } else { a.read })
    };
    let (read, write) = (touch(false), touch(true));
    let size = u64::from(op.size);
    let down = step.cpu.rflags & 0x400 != 0;
    let one = |cell: Cell| match (op.kind, cell) {
        (Kind::Movs, Cell::Memory(at)) => {
            let (Some(from), Some(to)) = (read, write) else {
                return Byte::Computed;
            };
            let within = at.wrapping_sub(to.address);
            if within >= to.len || from.len != to.len {
                return Byte::Computed;
            }
            // Where the places overlap, what is read may have been written by the same instruction.
            let source = match down {
                false => within % apart(to.address.wrapping_sub(from.address), to.len),
                true => {
                    let behind = to.len - 1 - within;
                    to.len - 1 - behind % apart(from.address.wrapping_sub(to.address), to.len)
                }
            };
            Byte::Copy(Cell::Memory(from.address.wrapping_add(source)))
        }
        (Kind::Stos, Cell::Memory(at)) => match write {
            Some(to) => {
                let byte = at.wrapping_sub(to.address) % size;
                Byte::Copy(Cell::Register(Register::RAX, byte as usize))
            }
            None => Byte::Computed,
        },
        (Kind::Lods, Cell::Register(Register::RAX, byte)) => match (byte as u64, read) {
            (b, Some(from)) if b < size => {
                let last = if down {
                    0
                } else {
                    from.len.saturating_sub(size)
                };
                Byte::Copy(Cell::Memory(from.address.wrapping_add(last + b)))
            }
            _ if size == 4 => Byte::Constant,
            _ => Byte::Copy(Cell::Register(Register::RAX, byte)),
        },
        _ => Byte::Computed,
    };
    wanted.cells().map(one).collect()
}

/// After how many bytes a copy repeats itself. The destination lies so far behind the source.
fn apart(distance: u64, len: u64) -> u64 {
    match distance {
        0 => len,
        d if d < len => d,
        _ => len,
    }
    .max(1)
}

/// Memory of one instruction, access by access.
struct Accesses<'a> {
    touches: &'a [Touch],
    /// What the instruction read first, second and so on, and is to read.
    reads: Vec<Vec<u8>>,
    given: usize,
    /// The addresses, while the instruction is executed for the first time.
    addresses: Option<Vec<u64>>,
    writes: Vec<(u64, Vec<u8>)>,
    /// It asked for something that the recording does not tell, or did something else than before.
    failed: bool,
}

impl Accesses<'_> {
    fn known(&self, addr: u64, buf: &mut [u8]) -> bool {
        (0..).zip(buf).all(|(i, byte)| {
            let at = addr.wrapping_add(i);
            let found = self.touches.iter().filter(|t| t.access.read).find_map(|t| {
                let within = at.wrapping_sub(t.access.address);
                t.bytes.as_ref()?.get(usize::try_from(within).ok()?)
            });
            found.map(|b| *byte = *b).is_some()
        })
    }
}

impl Memory for Accesses<'_> {
    fn load<const N: usize>(&mut self, addr: u64) -> [u8; N] {
        let mut out = [0; N];
        self.read(addr, &mut out);
        out
    }

    fn store<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        self.write(addr, &bytes);
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) {
        if self.addresses.is_some() {
            self.failed |= !self.known(addr, buf);
            self.reads.push(buf.to_vec());
            self.addresses.iter_mut().for_each(|a| a.push(addr));
            return;
        }
        match self.reads.get(self.given) {
            Some(bytes) if bytes.len() == buf.len() => buf.copy_from_slice(bytes),
            _ => self.failed = true,
        }
        self.given += 1;
    }

    fn write(&mut self, addr: u64, buf: &[u8]) {
        self.writes.push((addr, buf.to_vec()));
    }

    fn saved(&mut self, _addr: u64, _what: Saved) {
        self.failed = true;
    }
}

/// The code of one instruction.
struct One<'a>(u64, &'a [u8]);

impl Code for One<'_> {
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize {
        let from = usize::try_from(addr.wrapping_sub(self.0)).unwrap_or(usize::MAX);
        let bytes = self.1.get(from..).unwrap_or_default();
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        n
    }
}

/// Something that an instruction takes in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    Register(Register),
    /// The first, second, ... read of memory.
    Read(usize),
}

/// An instruction that is tried.
struct Trial<'a> {
    step: &'a Step,
    vec: &'a VecState,
    interpreter: Interpreter<Accesses<'a>>,
    /// What it reads, and from where.
    reads: Vec<Vec<u8>>,
    addresses: Vec<u64>,
    /// Where it writes.
    writes: Vec<(u64, usize)>,
    operands: Vec<Operand>,
    /// It takes in something that is not tried.
    more: bool,
    random: u64,
}

/// What a trial left.
struct Left {
    cpu: hindsight_timeline::CpuState,
    vec: VecState,
    writes: Vec<(u64, Vec<u8>)>,
}

impl<'a> Trial<'a> {
    fn new(step: &'a Step, vec: &'a VecState) -> Result<Trial<'a>, Gives> {
        let mut trial = Trial {
            step,
            vec,
            interpreter: Interpreter::new(),
            reads: Vec::new(),
            addresses: Vec::new(),
            writes: Vec::new(),
            operands: Vec::new(),
            more: false,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        let mut memory = trial.memory(Some(Vec::new()));
        let left = trial.execute(&mut memory, &step.cpu, vec)?;
        if memory.failed {
            return Err(Gives::Unknown("what it read is not known".into()));
        }
        (trial.reads, trial.addresses) = (memory.reads, memory.addresses.unwrap_or_default());
        trial.writes = left.writes.iter().map(|w| (w.0, w.1.len())).collect();
        trial.operands = (0..trial.reads.len()).map(Operand::Read).collect();
        let mut info = InstructionInfoFactory::new();
        let used = info.info(&step.instruction);
        // Their registers are not tried.
        let stack = [CpuidFeature::FPU, CpuidFeature::MMX];
        let features = step.instruction.cpuid_features();
        trial.more = features.iter().any(|f| stack.contains(f));
        let selects = step.instruction.op_mask().full_register();
        for u in used.used_registers() {
            // What is written in part keeps the rest.
            let takes_in = !matches!(u.access(), OpAccess::None | OpAccess::NoMemAccess);
            match whole(u.register()) {
                Some(r) if takes_in && r != selects => {
                    if !trial.operands.contains(&Operand::Register(r)) {
                        trial.operands.push(Operand::Register(r));
                    }
                }
                Some(_) => {}
                None => trial.more |= takes_in && !u.register().is_segment_register(),
            }
        }
        Ok(trial)
    }

    fn memory(&self, addresses: Option<Vec<u64>>) -> Accesses<'a> {
        Accesses {
            touches: &self.step.touches,
            reads: self.reads.clone(),
            given: 0,
            addresses,
            writes: Vec::new(),
            failed: false,
        }
    }

    fn execute(
        &mut self,
        memory: &mut Accesses<'a>,
        cpu: &hindsight_timeline::CpuState,
        vec: &VecState,
    ) -> Result<Left, Gives> {
        self.interpreter.set_registers(cpu);
        self.interpreter.set_vectors(vec);
        let code = One(self.step.cpu.rip, &self.step.code);
        match self.interpreter.run(memory, &code, 1) {
            (_, Ran::Fault(Fault::Outside(_))) => Err(Gives::Processor),
            (_, Ran::Fault(fault)) => Err(Gives::Unknown(fault.to_string())),
            (_, Ran::Done) => Ok(Left {
                cpu: self.interpreter.registers(),
                vec: self.interpreter.vectors(),
                writes: std::mem::take(&mut memory.writes),
            }),
        }
    }

    /// The byte that a run left. `None`: it was not there, as a register is always.
    fn left(&self, left: &Left, cell: Cell) -> Option<u8> {
        match cell {
            Cell::Register(r, byte) => bytes_of(r, &left.cpu, &left.vec).get(byte).copied(),
            Cell::Memory(at) => {
                // The last of several counts. Which write it is says the first run: now addresses may be others.
                let within = |w: &(u64, usize)| at.wrapping_sub(w.0) < w.1 as u64;
                let n = self.writes.iter().rposition(within)?;
                let (_, bytes) = left.writes.get(n)?;
                bytes
                    .get(at.wrapping_sub(self.writes[n].0) as usize)
                    .copied()
            }
        }
    }

    /// Where the bytes of a place come from.
    fn sources(&mut self, wanted: &Place, value: &[Option<u8>]) -> Result<Vec<Byte>, Gives> {
        let cells: Vec<Cell> = wanted.cells().collect();
        let mut memory = self.memory(None);
        let (cpu, vec) = (self.step.cpu, self.vec);
        let base = self.execute(&mut memory, &cpu, vec)?;
        let base: Vec<Option<u8>> = cells.iter().map(|c| self.left(&base, *c)).collect();
        if base.iter().zip(value).any(|(b, v)| v.is_some() && b != v) {
            return Err(Gives::Unknown("it left something else".into()));
        }
        let leads = leads(self.step);
        // What each byte may be a copy of, and whether it follows from operands at all.
        let mut copies: Vec<Vec<Cell>> = vec![Vec::new(); cells.len()];
        let mut follows = vec![0; cells.len()];
        for operand in self.operands.clone() {
            let Some((found, changes)) = self.vary(operand, &cells, &base) else {
                return Ok(vec![Byte::Computed; cells.len()]);
            };
            for (i, (c, changed)) in found.into_iter().zip(changes).enumerate() {
                let leads = leads.is_some_and(|r| operand == Operand::Register(r));
                follows[i] += usize::from(changed && (!leads || c.is_some()));
                copies[i].extend(c);
            }
        }
        let of = |i: usize| match (&copies[i][..], follows[i]) {
            ([one], 1) => Byte::Copy(*one),
            ([], 0) if base[i].is_some() && !self.more => Byte::Constant,
            _ => Byte::Computed,
        };
        Ok((0..cells.len()).map(of).collect())
    }

    /// Tries other bytes in an operand. For each wanted byte: of which byte there it is a copy, and whether it changed at all.
    /// `None`: the instruction did something else.
    fn vary(
        &mut self,
        operand: Operand,
        cells: &[Cell],
        base: &[Option<u8>],
    ) -> Option<(Vec<Option<Cell>>, Vec<bool>)> {
        let len = match operand {
            Operand::Register(r) => bytes_of(r, &self.step.cpu, self.vec).len(),
            Operand::Read(n) => self.reads[n].len(),
        };
        let mut tried: Vec<Vec<u8>> = Vec::new();
        let mut left: Vec<Vec<Option<u8>>> = Vec::new();
        for _ in 0..TRIALS {
            let bytes: Vec<u8> = (0..len).map(|_| self.byte()).collect();
            let (mut cpu, mut vec) = (self.step.cpu, *self.vec);
            let mut memory = self.memory(None);
            match operand {
                Operand::Register(r) => set_bytes(r, &bytes, &mut cpu, &mut vec),
                Operand::Read(n) => memory.reads[n].copy_from_slice(&bytes),
            }
            let Ok(run) = self.execute(&mut memory, &cpu, &vec) else {
                // Other bytes may not do, as for a division. Then they are no copies.
                return Some((vec![None; cells.len()], vec![true; cells.len()]));
            };
            let sizes = run.writes.iter().map(|w| w.1.len());
            if memory.failed || !sizes.eq(self.writes.iter().map(|w| w.1)) {
                return None;
            }
            left.push(cells.iter().map(|c| self.left(&run, *c)).collect());
            tried.push(bytes);
        }
        let copy = |i: usize| {
            let is = |byte: &usize| (0..TRIALS).all(|t| left[t][i] == Some(tried[t][*byte]));
            (0..len).find(is).map(|byte| match operand {
                Operand::Register(r) => Cell::Register(r, byte),
                Operand::Read(n) => Cell::Memory(self.addresses[n].wrapping_add(byte as u64)),
            })
        };
        let changed = |i: usize| left.iter().any(|l| l[i] != base[i]);
        let all = 0..cells.len();
        Some((all.clone().map(copy).collect(), all.map(changed).collect()))
    }

    /// Random bytes, always the same ones (splitmix64).
    fn byte(&mut self) -> u8 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27) as u8
    }
}

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
use iced_x86::{
    ConditionCode, CpuidFeature, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    RflagsBits,
};
use std::ops::Range;

/// So often each operand gets other bytes while the others stay, and as often while they are other ones, too. Each time, a byte that is
/// no copy is the same by chance in one of 256 cases.
const TRIALS: usize = 8;
/// Status flags: carry, parity, auxiliary carry, zero, sign, overflow.
const FLAGS: [u64; 6] = [1, 4, 0x10, 0x40, 0x80, 0x800];

/// Where bytes come from that an instruction leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gives {
    /// Some of the wanted bytes are copies, and so not all of these are [`Part::Made`].
    Copies(Vec<(Range<usize>, Part)>),
    /// The instruction itself says them.
    Constant,
    /// It computes them.
    Computed,
    /// It asks the processor.
    Processor,
    /// It cannot be tried, for this reason.
    Unknown(String),
}

/// Where some of the bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// They were here before.
    From(Place),
    /// The instruction made them, as the upper bytes of an extension.
    Made {
        /// From others. Otherwise it has them in itself.
        computed: bool,
    },
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
        if left_otherwise(step, wanted, value) {
            return Gives::Unknown("it left something else".into());
        }
        return as_value(step, string(&op, step, wanted));
    }
    if asks_processor(step) {
        return Gives::Processor;
    }
    match Trial::new(step, vec) {
        Ok(mut trial) => match trial.sources(wanted, value) {
            Ok(bytes) => as_value(step, bytes),
            Err(why) => why,
        },
        Err(why) => why,
    }
}

/// Whether an instruction wrote other bytes to memory than these, as far as both are known.
fn left_otherwise(step: &Step, wanted: &Place, value: &[Option<u8>]) -> bool {
    let wrote = |at: u64| {
        let here = step.touches.iter().filter(|t| t.access.write);
        here.rev().find_map(|t| {
            let within = usize::try_from(at.wrapping_sub(t.access.address)).ok()?;
            t.bytes.as_ref()?.get(within).copied()
        })
    };
    wanted.cells().zip(value).any(|(cell, value)| match cell {
        Cell::Memory(at) => value.is_some() && wrote(at).is_some_and(|b| Some(b) != *value),
        Cell::Register(..) => false,
    })
}

/// Whether an instruction reads registers that belong to the processor's control.
fn asks_processor(step: &Step) -> bool {
    use Mnemonic::*;
    let i = &step.instruction;
    matches!(
        i.mnemonic(),
        Rdfsbase | Rdgsbase | Stmxcsr | Vstmxcsr | Fnstcw | Fnstsw | Sldt | Str | Smsw
    ) || i.mnemonic() == Mov
        && i.op1_kind() == OpKind::Register
        && i.op1_register().is_segment_register()
}

/// Takes bytes together that make up a value.
fn as_value(step: &Step, bytes: Vec<Byte>) -> Gives {
    let copies = bytes.iter().any(|b| matches!(b, Byte::Copy(_)));
    let computed = bytes.contains(&Byte::Computed);
    // The upper bytes of an extension follow from the others.
    if computed && !(copies && extends(step)) {
        return Gives::Computed;
    }
    if !copies {
        return Gives::Constant;
    }
    let mut runs: Vec<(Range<usize>, Part)> = Vec::new();
    for (i, b) in bytes.iter().enumerate() {
        let part = match *b {
            Byte::Copy(cell) => Part::From(Place::from(cell)),
            Byte::Constant => Part::Made { computed: false },
            Byte::Computed => Part::Made { computed: true },
        };
        let goes_on = match (runs.last_mut(), *b) {
            (Some((_, Part::From(place))), Byte::Copy(cell)) => place.push(cell),
            (Some((_, last)), _) => *last == part && !matches!(b, Byte::Copy(_)),
            (None, _) => false,
        };
        match runs.last_mut() {
            Some((range, _)) if goes_on => range.end += 1,
            _ => runs.push((i..i + 1, part)),
        }
    }
    Gives::Copies(runs)
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

/// Values of the status flags to try: none, all, and each alone.
fn flags_of(n: usize) -> u64 {
    match n {
        0 => 0,
        1 => FLAGS.iter().fold(0, |all, f| all | f),
        n => FLAGS[(n - 2) % FLAGS.len()],
    }
}

/// A status flag, as the decoder numbers them.
fn flag_bits(flag: u64) -> u32 {
    match flag {
        1 => RflagsBits::CF,
        4 => RflagsBits::PF,
        0x10 => RflagsBits::AF,
        0x40 => RflagsBits::ZF,
        0x80 => RflagsBits::SF,
        _ => RflagsBits::OF,
    }
}

/// Whether a conditional instruction is a move. The others make a value of their condition, or jump.
fn is_move(m: Mnemonic) -> bool {
    format!("{m:?}").starts_with("Cmov")
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
            // Elements that overlap in part are put together of several others.
            let distance = match down {
                false => to.address.wrapping_sub(from.address),
                true => from.address.wrapping_sub(to.address),
            };
            if distance < to.len && !distance.is_multiple_of(size) {
                return Byte::Computed;
            }
            // Where the places overlap, what is read may have been written by the same instruction.
            let source = match down {
                false => within % apart(distance, to.len),
                true => {
                    let behind = to.len - 1 - within;
                    to.len - 1 - behind % apart(distance, to.len)
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
    /// The status flags.
    Flags,
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
        // A conditional move copies, whatever the condition says.
        let status = FLAGS.iter().fold(0, |all, f| all | flag_bits(*f));
        let conditional = step.instruction.condition_code() != ConditionCode::None
            && is_move(step.instruction.mnemonic());
        if step.instruction.rflags_read() & status != 0 && !conditional {
            trial.operands.push(Operand::Flags);
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
        // What each byte may be a copy of, and whether it follows from operands at all.
        let mut copies: Vec<Vec<Cell>> = vec![Vec::new(); cells.len()];
        let mut follows = vec![0; cells.len()];
        for operand in self.operands.clone() {
            let Some((found, changes)) = self.vary(operand, &cells, &base) else {
                return Ok(vec![Byte::Computed; cells.len()]);
            };
            for (i, (c, changed)) in found.into_iter().zip(changes).enumerate() {
                follows[i] += usize::from(changed && (!self.leads(operand) || c.is_some()));
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
        let len = self.held(operand).len();
        let mut tried: Vec<Vec<u8>> = Vec::new();
        let mut left: Vec<Vec<Option<u8>>> = Vec::new();
        let mut changed = vec![false; cells.len()];
        // A value may hide what others do: 0 times anything is 0. So the others are other ones in half of the trials.
        let others: Vec<Operand> = (self.operands.iter().copied())
            .filter(|o| *o != operand && *o != Operand::Flags && !self.leads(*o))
            .collect();
        for n in 0..2 * TRIALS {
            let bytes: Vec<u8> = match operand {
                Operand::Flags => flags_of(n % TRIALS).to_le_bytes().to_vec(),
                _ => (0..len).map(|_| self.byte()).collect(),
            };
            let mut all: Vec<(Operand, Vec<u8>)> = Vec::new();
            if n >= TRIALS {
                for o in &others {
                    let bytes = (0..self.held(*o).len()).map(|_| self.byte()).collect();
                    all.push((*o, bytes));
                }
            }
            let before = match n >= TRIALS {
                true => self.with(&all, cells),
                false => Ok(Some(base.to_vec())),
            };
            all.push((operand, bytes.clone()));
            let now = self.with(&all, cells);
            let (Ok(before), Ok(now)) = (before, now) else {
                // Other bytes may not do, as for a division. Then they are no copies.
                return Some((vec![None; cells.len()], vec![true; cells.len()]));
            };
            let (before, now) = (before?, now?);
            for (changed, (a, b)) in changed.iter_mut().zip(before.iter().zip(&now)) {
                *changed |= a != b;
            }
            left.push(now);
            tried.push(bytes);
        }
        let copy = |i: usize| {
            let is = |byte: &usize| (0..left.len()).all(|t| left[t][i] == Some(tried[t][*byte]));
            let byte = (0..len).find(is)?;
            match operand {
                Operand::Register(r) => Some(Cell::Register(r, byte)),
                Operand::Read(n) => Some(Cell::Memory(self.addresses[n].wrapping_add(byte as u64))),
                Operand::Flags => None,
            }
        };
        Some(((0..cells.len()).map(copy).collect(), changed))
    }

    /// What an operand held.
    fn held(&self, operand: Operand) -> Vec<u8> {
        match operand {
            Operand::Register(r) => bytes_of(r, &self.step.cpu, self.vec),
            Operand::Read(n) => self.reads[n].clone(),
            Operand::Flags => self.step.cpu.rflags.to_le_bytes().to_vec(),
        }
    }

    /// Whether an operand only says where bytes go.
    fn leads(&self, operand: Operand) -> bool {
        leads(self.step).is_some_and(|r| operand == Operand::Register(r))
    }

    /// What the instruction leaves if these operands hold these bytes. `None`: it did something else.
    #[allow(
        clippy::type_complexity,
        reason = "two ways in which there may be no answer"
    )]
    fn with(
        &mut self,
        operands: &[(Operand, Vec<u8>)],
        cells: &[Cell],
    ) -> Result<Option<Vec<Option<u8>>>, Gives> {
        let (mut cpu, mut vec) = (self.step.cpu, *self.vec);
        let mut memory = self.memory(None);
        for (operand, bytes) in operands {
            match *operand {
                Operand::Register(r) => set_bytes(r, bytes, &mut cpu, &mut vec),
                Operand::Read(n) => memory.reads[n].copy_from_slice(bytes),
                Operand::Flags => {
                    let flags = bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
                    let status = FLAGS.iter().fold(0, |all, f| all | f);
                    cpu.rflags = cpu.rflags & !status | flags & status;
                }
            }
        }
        let run = self.execute(&mut memory, &cpu, &vec)?;
        let sizes = run.writes.iter().map(|w| w.1.len());
        if memory.failed || !sizes.eq(self.writes.iter().map(|w| w.1)) {
            return Ok(None);
        }
        Ok(Some(cells.iter().map(|c| self.left(&run, *c)).collect()))
    }

    /// Random bytes, always the same ones (splitmix64).
    fn byte(&mut self) -> u8 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_timeline::{Access, CpuState, regs};
    use iced_x86::{Decoder, DecoderOptions};

    fn step(code: &[u8], touches: &[(u64, &[u8], bool)]) -> Step {
        let mut cpu = CpuState::default();
        for (i, r) in (0u64..).zip(&mut cpu.gpr) {
            *r = 0x0f0f_0f0f_0f0f_0f0f * (i + 1);
        }
        cpu.rip = 0x1000;
        Step {
            count: 0,
            instruction: Decoder::with_ip(64, code, cpu.rip, DecoderOptions::NONE).decode(),
            code: code.to_vec(),
            cpu,
            touches: touches.iter().map(touch).collect(),
            entered: false,
        }
    }

    /// Where, what, and whether it was written.
    fn touch((address, bytes, write): &(u64, &[u8], bool)) -> Touch {
        let access = Access {
            address: *address,
            len: bytes.len() as u64,
            read: !write,
            write: *write,
            unknown: false,
        };
        Touch::new(access, Some(bytes.to_vec()))
    }

    fn register(register: Register, first: usize, len: usize) -> Place {
        Place::Register {
            register,
            first,
            len,
        }
    }

    fn of(step: &Step, place: &Place) -> Gives {
        gives(step, &VecState::default(), place, &vec![None; place.len()])
    }

    #[test]
    fn copies_and_what_is_computed_are_told_apart() {
        let from = |at, len, place| (at..at + len, Part::From(place));
        let rax = register(Register::RAX, 0, 8);
        // mov al, bl: the rest stays.
        let found = of(&step(&[0x88, 0xd8], &[]), &rax);
        let rest = from(1, 7, register(Register::RAX, 1, 7));
        let want = vec![from(0, 1, register(Register::RBX, 0, 1)), rest];
        assert_eq!(found, Gives::Copies(want));
        // mov eax, ebx clears the rest.
        let found = of(&step(&[0x89, 0xd8], &[]), &rax);
        let low = from(0, 4, register(Register::RBX, 0, 4));
        let want = vec![low, (4..8, Part::Made { computed: false })];
        assert_eq!(found, Gives::Copies(want));
        // lea rax, [rbx+rcx]; add rax, rbx; xor eax, eax; mov eax, 7; rdtsc
        for (code, want) in [
            (&[0x48, 0x8d, 0x04, 0x0b][..], Gives::Computed),
            (&[0x48, 0x01, 0xd8], Gives::Computed),
            (&[0x31, 0xc0], Gives::Constant),
            (&[0xb8, 7, 0, 0, 0], Gives::Constant),
            (&[0x0f, 0x31], Gives::Processor),
        ] {
            assert_eq!(of(&step(code, &[]), &rax), want, "{code:x?}");
        }
        // xchg rax, rbx; mov rax, [rbx]
        let found = of(&step(&[0x48, 0x93], &[]), &rax);
        let want = vec![from(0, 8, register(Register::RBX, 0, 8))];
        assert_eq!(found, Gives::Copies(want));
        let address = 0x0f0f_0f0f_0f0f_0f0f * 4;
        let load = step(&[0x48, 0x8b, 0x03], &[(address, &[1; 8], false)]);
        let want = vec![from(
            0,
            8,
            Place::Memory {
                at: address,
                len: 8,
            },
        )];
        assert_eq!(of(&load, &rax), Gives::Copies(want));
        // pshufb xmm0, xmm1, with zeros in xmm1: all are the first byte.
        let shuffle = step(&[0x66, 0x0f, 0x38, 0x00, 0xc1], &[]);
        let found = of(&shuffle, &register(Register::ZMM0, 0, 2));
        let first = register(Register::ZMM0, 0, 1);
        assert_eq!(
            found,
            Gives::Copies(vec![from(0, 1, first), from(1, 1, first)])
        );
        // fstp qword [rbx]: registers of the x87 are not tried.
        let store = step(&[0xdd, 0x1b], &[(address, &[0; 8], true)]);
        let memory = Place::Memory {
            at: address,
            len: 8,
        };
        let found = of(&store, &memory);
        assert!(
            matches!(found, Gives::Computed | Gives::Unknown(_)),
            "{found:?}"
        );
    }

    #[test]
    fn what_it_left_must_be_the_value() {
        let s = step(&[0x48, 0x89, 0xd8], &[]);
        let rax = register(Register::RAX, 0, 8);
        let value = s.cpu.gpr[regs::RBX].to_le_bytes().map(Some);
        let told = |value: &[Option<u8>]| gives(&s, &VecState::default(), &rax, value);
        assert!(matches!(told(&value), Gives::Copies(_)));
        let mut other = value;
        other[3] = Some(1);
        assert!(matches!(told(&other), Gives::Unknown(_)));
    }

    #[test]
    fn copies_that_overlap_repeat_what_they_began_with() {
        let movs = |from: u64, to: u64, len: usize, down: bool| {
            let bytes = vec![0; len];
            let touches = [(from, &bytes[..], false), (to, &bytes[..], true)];
            // rep movsb
            let mut s = step(&[0xf3, 0xa4], &touches);
            s.cpu.rflags = u64::from(down) << 10;
            s
        };
        let source = |s: &Step, at: u64| match of(s, &Place::Memory { at, len: 1 }) {
            Gives::Copies(all) => all[0].1,
            other => panic!("{other:?}"),
        };
        let memory = |at: u64| Part::From(Place::Memory { at, len: 1 });
        let apart = movs(0x100, 0x200, 16, false);
        assert_eq!(source(&apart, 0x20f), memory(0x10f));
        // Three bytes, again and again.
        let pattern = movs(0x100, 0x103, 16, false);
        for i in 0..16 {
            assert_eq!(source(&pattern, 0x103 + i), memory(0x100 + i % 3));
        }
        // Downwards, the same way up is no pattern, and the other one is.
        let moved = movs(0x100, 0x103, 16, true);
        assert_eq!(source(&moved, 0x103 + 9), memory(0x109));
        let pattern = movs(0x103, 0x100, 16, true);
        for i in 0..16 {
            let behind = 15 - i;
            assert_eq!(source(&pattern, 0x100 + i), memory(0x103 + 15 - behind % 3));
        }
    }
}

//! Executes an instruction again and again with other bytes.

use super::{Byte, Gives};
use crate::past::Step;
use crate::place::{Cell, Place, bytes_of, set_bytes, whole};
use hindsight_interp::{Code, Fault, Interpreter, Memory, Ran};
use hindsight_timeline::{CpuState, Touch, VecState};
use iced_x86::{
    ConditionCode, CpuidFeature, InstructionInfoFactory, Mnemonic, OpAccess, Register, RflagsBits,
};

/// So often each operand gets other bytes while the others stay, and as often while they are other ones, too. Each time, a byte that is
/// no copy is the same by chance in one of 256 cases.
const TRIALS: usize = 8;
/// Status flags: carry, parity, auxiliary carry, zero, sign, overflow.
const FLAGS: [u64; 6] = [1, 4, 0x10, 0x40, 0x80, 0x800];

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

    fn saved(&mut self, _addr: u64, _len: u64) {
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
pub struct Trial<'a> {
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
    cpu: CpuState,
    vec: VecState,
    writes: Vec<(u64, Vec<u8>)>,
}

impl<'a> Trial<'a> {
    /// Executes the instruction with what it found.
    pub fn new(step: &'a Step, vec: &'a VecState) -> Result<Trial<'a>, Gives> {
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
        cpu: &CpuState,
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
    pub fn sources(&mut self, wanted: &Place, value: &[Option<u8>]) -> Result<Vec<Byte>, Gives> {
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

//! Runs a case in the interpreter, and compares with the processor.

use crate::case::{Case, Native};
use crate::compare::{compare_bytes, compare_cpu, compare_vec, iced_to_hardware};
use crate::memory::{DATA, PAGE};
use crate::prepare::short_string;
use crate::record::Outcome;
use hindsight_interp::{Code, Fault, Interpreter, Memory, Ran};
use hindsight_isa::approximate::{self, Kind};
use hindsight_isa::left_open::{self, Rule};
use hindsight_isa::state::STATUS_FLAGS;
use hindsight_translate::effective::stores_state;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, RflagsBits};
use std::collections::HashMap;

/// What the interpreter made of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Third {
    Same,
    /// There is nothing to compare with: the processor raised an exception, or an event says what happens.
    Nothing,
    /// It does not support the instruction.
    Unsupported(String),
    /// It does not support the instruction because makers of processors differ in the result.
    Approximate,
}

/// The memory of a case, by pages.
#[derive(Default)]
pub struct Pages {
    pages: HashMap<u64, Box<[u8; PAGE as usize]>>,
    /// Something else was accessed, which holds zeros here.
    strayed: bool,
}

impl Memory for Pages {
    fn load<const N: usize>(&mut self, addr: u64) -> [u8; N] {
        let mut out = [0; N];
        self.read(addr, &mut out);
        out
    }

    fn store<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        self.write(addr, &bytes);
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let (page, from, n) = piece(addr.wrapping_add(done as u64), buf.len() - done);
            let to = &mut buf[done..done + n];
            match self.pages.get(&page) {
                Some(page) => to.copy_from_slice(&page[from..from + n]),
                None => {
                    self.strayed = true;
                    to.fill(0);
                }
            }
            done += n;
        }
    }

    fn saved(&mut self, _: u64, _: u64) {}

    fn write(&mut self, addr: u64, buf: &[u8]) {
        let mut done = 0;
        while done < buf.len() {
            let (page, from, n) = piece(addr.wrapping_add(done as u64), buf.len() - done);
            match self.pages.get_mut(&page) {
                Some(page) => page[from..from + n].copy_from_slice(&buf[done..done + n]),
                None => self.strayed = true,
            }
            done += n;
        }
    }
}

/// The part of `len` bytes from `at` on that is in one page: the page, the offset in it, and the length.
fn piece(at: u64, len: usize) -> (u64, usize, usize) {
    let from = (at % PAGE) as usize;
    (at / PAGE, from, len.min(PAGE as usize - from))
}

/// The code of a case.
struct CaseCode<'a>(&'a Case);

impl Code for CaseCode<'_> {
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize {
        let from = addr.wrapping_sub(self.0.cpu.rip) as usize;
        let rest = self.0.code.get(from..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        n
    }
}

/// Whether the instruction writes what only an event says.
fn saves(m: Mnemonic) -> bool {
    stores_state(m) || m == Mnemonic::Syscall
}

/// Whether this processor is of the maker whose processors the interpreter follows where the manual leaves flags undefined.
fn is_model() -> bool {
    let id = std::arch::x86_64::__cpuid(0);
    [id.ebx, id.edx, id.ecx]
        .map(u32::to_le_bytes)
        .as_flattened()
        == b"AuthenticAMD"
}

/// The status flags, in the decoder's form.
const ALL_FLAGS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// The flags that the manual leaves undefined, in the decoder's form.
fn undefined(i: &Instruction) -> u32 {
    // The decoder takes a rotation by all bits for one by none, and one that goes round once for one by one. Some
    // processors leave OF alone there, others do not.
    let turns = match i.mnemonic() {
        Mnemonic::Rcl | Mnemonic::Rcr => {
            i.op1_kind() == OpKind::Immediate8 && i.immediate8() & 31 > 1
        }
        _ => false,
    };
    // So it takes no notice of shifts by more bits than there are.
    let beyond = match left_open::rule(i) {
        Some(Rule::DoubleShift) => ALL_FLAGS,
        _ => 0,
    };
    i.rflags_undefined() | beyond | if turns { RflagsBits::OF } else { 0 }
}

/// Runs the case.
///
/// # Errors
/// The interpreter's result is another one than the processor's. The text says how.
pub(crate) fn compare(
    interpreter: &mut Interpreter<Pages>,
    case: &Case,
    n: &Native,
) -> Result<Third, String> {
    // A sequence may read what is mapped in this process besides the case's memory.
    if n.end != Outcome::Boundary || case.instrs.len() > 1 {
        return Ok(Third::Nothing);
    }
    let open = |i: &Instruction| if is_model() { 0 } else { undefined(i) };
    let undefined = case.instrs.first().map_or(0, open);
    // See `compare::known`.
    let short = |i| short_string(i) && case.cpu.gpr[1] as u32 == 0;
    if case.instrs.iter().any(|i| saves(i.mnemonic()) || short(i)) {
        return Ok(Third::Nothing);
    }
    let mut memory = Pages::default();
    for at in (case.region.data..)
        .step_by(PAGE as usize)
        .take(DATA / PAGE as usize)
    {
        memory.pages.insert(at / PAGE, Box::new([0; PAGE as usize]));
    }
    memory.write(case.region.data, &case.data);
    for page in [case.cpu.rip, case.cpu.rip + PAGE] {
        interpreter.forget_page(page / PAGE * PAGE);
    }
    interpreter.set_registers(&case.cpu);
    interpreter.set_vectors(&case.vec);
    let (done, ran) = interpreter.run(&mut memory, &CaseCode(case), case.instrs.len() as u64);
    match ran {
        Ran::Done => {}
        Ran::Fault(Fault::Unsupported(what)) => return Ok(Third::Unsupported(what)),
        Ran::Fault(Fault::Approximate(_)) => return Ok(Third::Approximate),
        Ran::Fault(Fault::Outside(_)) => return Ok(Third::Nothing),
        Ran::Fault(Fault::Exception(3)) => return Ok(Third::Nothing),
        Ran::Fault(fault) => return Err(format!("the interpreter after {done}: {fault}\n")),
    }
    // Other memory of this process is there for the processor, too.
    if memory.strayed {
        return Ok(Third::Nothing);
    }
    let mut diff = String::new();
    let flags = STATUS_FLAGS & !iced_to_hardware(undefined);
    let found = interpreter.registers();
    compare_cpu(&mut diff, "processor", &n.cpu, "interpreter", &found, flags);
    let found = interpreter.vectors();
    compare_vec(&mut diff, "processor", &n.vec, "interpreter", &found);
    let mut data = vec![0; DATA];
    memory.read(case.region.data, &mut data);
    compare_bytes(&mut diff, case, "memory", &n.data, &data);
    match diff.is_empty() {
        true => Ok(Third::Same),
        false => Err(format!("the interpreter differs\n{diff}")),
    }
}

/// One instruction, again and again.
struct Again<'a>(&'a [u8]);

/// Where it is.
const AT: u64 = 0x40_0000;

impl Code for Again<'_> {
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize {
        let from = addr.wrapping_sub(AT) as usize;
        let bytes = self.0.get(from..).unwrap_or_default();
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        n
    }
}

/// Whether the interpreter knows this instruction, or gets what it does from the recording.
pub fn is_interpreted(bytes: &[u8]) -> bool {
    let mut interpreter = Interpreter::new();
    let mut registers = interpreter.registers();
    registers.rip = AT;
    // No division fails.
    registers.gpr = [1; 16];
    interpreter.set_registers(&registers);
    let (_, ran) = interpreter.run(&mut Pages::default(), &Again(bytes), 1);
    match ran {
        Ran::Done => true,
        Ran::Fault(Fault::Approximate(_)) => {
            let i = Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE).decode();
            approximate::kind(i.mnemonic()).is_some_and(|kind| kind != Kind::Other)
        }
        Ran::Fault(fault) => matches!(fault, Fault::Exception(_) | Fault::Outside(_)),
    }
}

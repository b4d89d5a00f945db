//! One case: a random instruction (or several) in a random state, run in all ways and compared.

use crate::generate::{encode, generate};
use crate::memory::{DATA, PAGE, Region, Window, code_cache};
use crate::native;
use crate::record::{self, End, Outcome, Program};
use crate::replay;
use crate::rng::Rng;
use crate::state::{aim, has_wide, random_cpu, random_target, random_vec};
use hindsight_isa::state::STATUS_FLAGS;
use hindsight_isa::xsave::Layout;
use hindsight_isa::{CpuState, Predictor, VecState};
use hindsight_translate::{Mode, Policy, Translator};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, Register};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// Looks as if all flags were needed, or none.
const TAILS: [&[u8]; 2] = [
    // pushfq
    &[0x9c, 0x90, 0x90, 0x90],
    // cmp eax, eax
    &[0x39, 0xc0, 0x90, 0x90],
];

/// Predictor sizes that are tried.
const BITS: [u8; 4] = [32, 16, 20, 12];

/// Everything that is made once.
pub struct Rig {
    regions: Vec<Region>,
    fs_base: u64,
    layout: Layout,
    windows: Vec<(Window, Window)>,
    caches: [u64; 2],
    translators: Vec<[Translator; 4]>,
    wide: bool,
}

/// What became of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Compared, equal.
    Same,
    /// The processor does not have it.
    Illegal,
    /// The runtime executes it, or it never returns to the program.
    Slow,
    /// Not supported under the shadow window.
    Unsupported,
    /// Not supported: a short address together with a segment that has a base.
    SegmentWithShortAddress,
    /// Not supported with this predictor size.
    UnsupportedHere,
    /// No such instruction could be made.
    NotMade,
}

/// A prepared case.
struct Case {
    instrs: Vec<Instruction>,
    code: Vec<u8>,
    region: Region,
    cpu: CpuState,
    vec: VecState,
    data: Vec<u8>,
    stale: Vec<u8>,
    /// Page to make read-only, if any.
    read_only: Option<u64>,
}

/// How the processor ended.
struct Native {
    end: End,
    cpu: CpuState,
    vec: VecState,
    data: Vec<u8>,
}

impl Rig {
    /// Maps everything and installs the signal handler for this thread.
    pub fn new() -> Rig {
        native::install();
        let layout = Layout::detect().expect("XSAVE");
        let has_vl = std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512dq");
        let policy = |mode, bits, wide_checks| Policy {
            mode,
            predictor: Predictor { bits },
            wide_checks,
        };
        let predictor = |bits| Predictor { bits };
        Rig {
            regions: Region::all(native::fs_base()),
            fs_base: native::fs_base(),
            layout,
            windows: BITS
                .iter()
                .map(|b| (Window::new(predictor(*b)), Window::new(predictor(*b))))
                .collect(),
            caches: [code_cache(), code_cache()],
            translators: BITS
                .iter()
                .map(|b| {
                    [
                        Translator::new(policy(Mode::Record, *b, false)),
                        Translator::new(policy(Mode::Record, *b, true)),
                        Translator::new(policy(Mode::Replay, *b, false)),
                        Translator::new(policy(Mode::Plain, *b, false)),
                    ]
                })
                .collect(),
            wide: has_vl && has_wide(layout.mask),
        }
    }

    /// Runs the case that `codes` and `seed` define.
    pub fn run(&mut self, codes: &[Code], seed: u64) -> Result<Verdict, String> {
        native::CASE.store(seed, Relaxed);
        native::CODE.store(codes.first().map_or(0, |c| *c as u64), Relaxed);
        let mut rng = Rng(seed);
        let Some(case) = self.prepare(codes, &mut rng) else {
            return Ok(Verdict::NotMade);
        };
        let n = self.native(&case);
        if matches!(n.end, End::Fault(t) if t.signo == libc::SIGILL) {
            return Ok(Verdict::Illegal);
        }
        let mut verdict = Verdict::Same;
        for k in 0..5 {
            let size = match k {
                0 | 1 | 4 => 0,
                _ => 1 + rng.below(3) as usize,
            };
            let wide = self.wide && (k == 1 || k == 3);
            match self.variant(&case, &n, &mut rng, (size, wide, k == 4)) {
                Ok(Verdict::Unsupported) if case.instrs.iter().any(short_in_segment) => {
                    return Ok(Verdict::SegmentWithShortAddress);
                }
                Ok(Verdict::Unsupported) if size != 0 => {
                    if verdict == Verdict::Same {
                        verdict = Verdict::UnsupportedHere;
                    }
                }
                Ok(Verdict::Same) => {}
                Ok(v) => return Ok(v),
                Err(e) => return Err(format!("{e}\n{}", case.describe(seed, BITS[size], wide))),
            }
        }
        Ok(verdict)
    }

    fn prepare(&mut self, codes: &[Code], rng: &mut Rng) -> Option<Case> {
        // In a sequence addresses come from anywhere: not next to the harness's own memory.
        let far = self.regions.len() - (codes.len() > 1) as usize;
        let region = rng.pick(&self.regions[..far]);
        let pc = region.code + rng.below(2048);
        let mut cpu = random_cpu(rng, &region, pc, self.fs_base);
        cpu.gs_base = region.data - rng.below(1 << 20);
        let mut vec = random_vec(rng, self.layout.mask);
        let mut data = vec![0; DATA];
        let mut bytes = Vec::new();
        let mut instrs = Vec::new();
        for code in codes {
            let at = pc + bytes.len() as u64;
            let mut i = generate(*code, rng, &region, at)?;
            settle_segment(&mut i, &region, &cpu, rng);
            let bits = matches!(
                i.mnemonic(),
                Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
            );
            if bits
                && (i.memory_base() == Register::EIP
                    || i.memory_displ_size() == 4 && i.memory_base() == Register::None)
            {
                // A bit offset may wrap such an address at 4 GiB, which is not followed.
                return None;
            }
            if codes.len() > 1 && unfit(&mut i) {
                return None;
            }
            let (b, i) = encode(&i, at)?;
            bytes.extend(b);
            instrs.push(i);
        }
        for c in data.chunks_mut(8) {
            c.copy_from_slice(&rng.value().to_le_bytes());
        }
        for i in instrs.iter().rev() {
            prepare_instruction(i, &region, &mut cpu, &mut vec, &mut data, rng);
        }
        let mut stale = data.clone();
        match rng.below(3) {
            0 => {}
            1 => stale
                .chunks_mut(8)
                .for_each(|c| c.copy_from_slice(&rng.u64().to_le_bytes())),
            _ => {
                for _ in 0..200 {
                    stale[rng.below(DATA as u64) as usize] ^= 1 << rng.below(8);
                }
            }
        }
        let read_only = match rng.below(20) {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        Some(Case {
            instrs,
            code: bytes,
            region,
            cpu,
            vec,
            data,
            stale,
            read_only,
        })
    }

    /// Regions that a sequence may stray into.
    fn others<'a>(regions: &'a [Region], case: &'a Case) -> impl Iterator<Item = &'a Region> {
        let some = case.instrs.len() > 1;
        regions
            .iter()
            .filter(move |r| some && r.data != case.region.data)
    }

    fn with_memory<T>(regions: &[Region], case: &Case, f: impl FnOnce() -> T) -> (T, Vec<u8>) {
        Self::others(regions, case).for_each(|r| r.set_data(&[0; DATA]));
        case.region.set_data(&case.data);
        if let Some(p) = case.read_only {
            case.region.protect(p, libc::PROT_READ);
        }
        let r = f();
        if let Some(p) = case.read_only {
            case.region.protect(p, libc::PROT_READ | libc::PROT_WRITE);
        }
        (r, case.region.get_data())
    }

    fn native(&mut self, case: &Case) -> Native {
        case.region.set_code(case.cpu.rip, &case.code);
        let ((trap, mut cpu, vec), data) = Self::with_memory(&self.regions, case, || {
            native::run(&case.cpu, &case.vec, &self.layout)
        });
        let end = if trap.signo == libc::SIGTRAP {
            cpu.rip -= 1;
            End::Boundary
        } else if trap.signo == libc::SIGSEGV && trap.addr == trap.pc {
            End::Boundary
        } else {
            End::Fault(trap)
        };
        Native {
            end,
            cpu,
            vec,
            data,
        }
    }

    fn variant(
        &mut self,
        case: &Case,
        n: &Native,
        rng: &mut Rng,
        (size, wide, plain): (usize, bool, bool),
    ) -> Result<Verdict, String> {
        let dead = rng.one_in(2);
        let self_check = rng.one_in(6);
        let tail = TAILS[dead as usize];
        let code = [&case.code[..], tail].concat();
        let p = Program {
            cpu: &case.cpu,
            vec: &case.vec,
            code: &code,
            peek: tail,
            instrs: case.instrs.len() as u64,
            self_check,
        };
        let (wr, wp) = &self.windows[size];
        for w in [wr, wp] {
            Self::others(&self.regions, case).for_each(|r| w.set_data(r.data, &[0; DATA]));
            w.set_data(case.region.data, &case.stale);
        }
        let tr = &mut self.translators[size][if plain { 3 } else { wide as usize }];
        let (r, data) = Self::with_memory(&self.regions, case, || {
            record::run(wr, self.caches[0], tr, self.layout, &p)
        });
        let how = format!(
            "plain {plain}, dead flags {dead}, self check {self_check}, exits {:?}",
            r.exits
        );
        match r.end {
            End::Unsupported => return Ok(Verdict::Unsupported),
            End::Slow => return Ok(Verdict::Slow),
            End::Wrong(what) => return Err(format!("{what}; {how}")),
            _ => {}
        }
        let live = if dead && !plain { 0 } else { STATUS_FLAGS };
        let mut diff = String::new();
        if known(n, &r, case) {
            return Ok(Verdict::Same);
        }
        compare_ends(&mut diff, n, &r, case);
        let faulted = matches!(r.end, End::Fault(_));
        let flags = if faulted {
            restart_flags(case, &r)
        } else {
            live
        };
        compare_cpu(&mut diff, "native", &n.cpu, "record", &r.cpu, flags);
        let vsib = case
            .instrs
            .iter()
            .any(|i| i.memory_index().is_vector_register());
        if !(vsib && faulted) {
            compare_vec(&mut diff, "native", &n.vec, "record", &r.vec);
        }
        compare_bytes(&mut diff, case, "memory", &n.data, &data);
        if !diff.is_empty() {
            return Err(format!("record differs from the processor; {how}\n{diff}"));
        }
        if plain || case.instrs.iter().any(|i| i.mnemonic() == Mnemonic::Int3) {
            return Ok(Verdict::Same);
        }
        if BITS[size] == 12 && case.instrs.iter().any(|i| i.mnemonic() == Mnemonic::Enter) {
            // A nested frame's reads and writes share cells, which one position cannot tell apart.
            return Ok(Verdict::Same);
        }
        // Replay from what was recorded.
        let step = if rng.one_in(2) { 1 } else { 64 };
        let tr = &mut self.translators[size][2];
        let (cpu, pvec) = replay::run(wp, self.caches[1], tr, self.layout, &p, &r, step)
            .map_err(|e| format!("{e}; {how}\n{:x?}", r.events))?;
        let flags = if faulted { 0 } else { live };
        compare_cpu(&mut diff, "record", &r.cpu, "replay", &cpu, flags);
        // An instruction that faults may have changed its state before; replay takes that with the
        // signal.
        if !faulted || n.vec == case.vec {
            compare_vec(&mut diff, "record", &r.vec, "replay", &pvec);
        }
        let (cr, cp) = (wr.get_data(case.region.data), wp.get_data(case.region.data));
        compare_bytes(&mut diff, case, "cells (record, replay)", &cr, &cp);
        // Cells either still hold what they held, or what memory holds.
        for (i, c) in cr.iter().enumerate() {
            let written = data[i] != case.data[i];
            let stray = *c != data[i] && (*c != case.stale[i] || written);
            // In the smallest predictor the two pages share their cells.
            if stray && !faulted && case.instrs.len() == 1 && BITS[size] > 12 {
                let _ = writeln!(diff, "cell {i:#x}: {c:02x}, memory {:02x}", data[i]);
                break;
            }
        }
        if !diff.is_empty() {
            return Err(format!(
                "replay differs from record; step {step}, {how}, events {:x?}\n{diff}",
                r.events
            ));
        }
        Ok(Verdict::Same)
    }
}

impl Default for Rig {
    fn default() -> Rig {
        Rig::new()
    }
}

/// Status flags that must be intact at a fault: those that the instruction needs when it is run again.
fn restart_flags(case: &Case, r: &Outcome) -> u64 {
    let i = case.instrs.iter().find(|i| i.ip() == r.cpu.rip);
    i.map_or(0, |i| i.rflags_read() as u64) & iced_to_hardware(i.map_or(0, |i| i.rflags_read()))
}

/// The hardware's positions of iced's flag bits.
fn iced_to_hardware(f: u32) -> u64 {
    use iced_x86::RflagsBits as B;
    let pairs = [
        (B::CF, 1),
        (B::PF, 4),
        (B::AF, 0x10),
        (B::ZF, 0x40),
        (B::SF, 0x80),
        (B::OF, 0x800),
    ];
    pairs
        .iter()
        .filter(|(b, _)| f & b != 0)
        .map(|(_, h)| h)
        .sum()
}

/// Makes the operand of `i`, explicit or not, lie in `region` and hold what makes sense.
fn prepare_instruction(
    i: &Instruction,
    region: &Region,
    cpu: &mut CpuState,
    vec: &mut VecState,
    data: &mut [u8],
    rng: &mut Rng,
) {
    let size = i.memory_size().size() as u64;
    let target = random_target(rng, region, size);
    let explicit = crate::case::memory_operand(i);
    use Mnemonic::*;
    match i.mnemonic() {
        Xlatb => {
            let segment = match i.segment_prefix() {
                Register::FS => cpu.fs_base,
                Register::GS => cpu.gs_base,
                _ => 0,
            };
            cpu.gpr[3] = target.wrapping_sub(segment).wrapping_sub(cpu.gpr[0] & 255);
        }
        Leave | Enter => cpu.gpr[5] = random_target(rng, region, 8),
        Maskmovq | Maskmovdqu | Vmaskmovdqu => cpu.gpr[7] = random_target(rng, region, 16),
        _ if i.is_string_instruction() => {
            cpu.gpr[1] = rng.below(70);
            cpu.gpr[6] = random_target(rng, region, 32);
            cpu.gpr[7] = random_target(rng, region, 32);
            if rng.one_in(4) {
                cpu.gpr[7] = cpu.gpr[6].wrapping_add(rng.below(16)).wrapping_sub(8);
            }
            if rng.one_in(2) {
                data.fill(cpu.gpr[0] as u8);
            }
        }
        Bt | Bts | Btr | Btc if explicit && i.op1_register().is_gpr() => {
            // Not so far that the harness's own memory is hit.
            let r = i.op1_register();
            let offset = rng.below(4000).wrapping_sub(2000);
            cpu.gpr[r.full_register().number()] = match r.size() {
                8 => offset,
                4 => offset & 0xffff_ffff | rng.u64() << 32,
                _ => offset & 0xffff | rng.u64() << 16,
            };
            aim(i, cpu, vec, target, rng);
        }
        Cmpxchg | Cmpxchg8b | Cmpxchg16b => {
            aim(i, cpu, vec, target, rng);
            let at = target.wrapping_sub(region.data) as usize;
            if rng.one_in(2) && at < data.len() - 16 {
                let a = cpu.gpr[0].to_le_bytes();
                data[at..at + 8].copy_from_slice(&a);
                let d = cpu.gpr[2].to_le_bytes();
                let k = if i.mnemonic() == Cmpxchg16b { 8 } else { 4 };
                if i.mnemonic() != Cmpxchg {
                    data[at + k..at + 2 * k].copy_from_slice(&d[..k]);
                }
            }
        }
        _ if explicit => aim(i, cpu, vec, target, rng),
        _ => {}
    }
    let indirect = matches!(
        i.flow_control(),
        FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return
    );
    let landing = region.code + PAGE + 16 + rng.below(PAGE - 64);
    if indirect {
        let phase = if explicit { target } else { cpu.gpr[4] } as usize % 8;
        for c in data[phase..].chunks_exact_mut(8) {
            c.copy_from_slice(&landing.to_le_bytes());
        }
        if i.op0_register().is_gpr() && i.op0_register() != Register::RSP {
            cpu.gpr[i.op0_register().full_register().number()] = landing;
        }
    }
    if matches!(i.mnemonic(), Popf | Popfq) {
        // No single stepping, alignment checks or nested tasks.
        let phase = cpu.gpr[4] as usize % 8;
        for c in data[phase..].chunks_exact_mut(8) {
            let mut v = u64::from_le_bytes(c.try_into().unwrap_or_default());
            v &= 0x20_0cd5;
            c.copy_from_slice(&v.to_le_bytes());
        }
    }
}

/// Keeps an operand in FS or GS away from the harness's own memory, next to which FS points: what
/// no register can aim gets an offset that leads into `region`, or no segment.
fn settle_segment(i: &mut Instruction, region: &Region, cpu: &CpuState, rng: &mut Rng) {
    if !matches!(i.segment_prefix(), Register::FS | Register::GS) || !memory_operand(i) {
        return;
    }
    let (base, index) = (i.memory_base(), i.memory_index());
    if matches!(base, Register::RIP | Register::EIP) {
        return i.set_segment_prefix(Register::None);
    }
    let bare = base == Register::None && index == Register::None;
    let short = base != Register::None && base.size() == 4
        || index != Register::None && index.size() == 4
        || bare && i.memory_displ_size() == 4;
    if short {
        // Short offsets are positive; the data lies behind the GS base.
        i.set_segment_prefix(Register::GS);
    }
    if bare {
        let from = match i.segment_prefix() {
            Register::FS => cpu.fs_base,
            _ => cpu.gs_base,
        };
        let offset = random_target(rng, region, 8).wrapping_sub(from);
        if i32::try_from(offset as i64).is_ok() {
            i.set_memory_displacement64(offset);
        } else {
            i.set_segment_prefix(Register::None);
        }
    }
}

/// Whether `i` may not follow instructions that change what it needs; takes the thread's own segment
/// away from it, where a wild offset would hit the harness.
fn unfit(i: &mut Instruction) -> bool {
    use Mnemonic::*;
    if i.segment_prefix() == Register::FS {
        i.set_segment_prefix(Register::None);
    }
    short_string(i)
        || matches!(
            i.mnemonic(),
            Popf | Popfq
                | Rdfsbase
                | Clflush
                | Clflushopt
                | Clwb
                | Enter
                | Fldenv
                | Frstor
                | Fldcw
                | Fxrstor
                | Fxrstor64
        )
        || matches!(i.mnemonic(), Bt | Bts | Btr | Btc) && i.op1_register().is_gpr()
}

/// Whether `i` is a string instruction with 32-bit addresses.
fn short_string(i: &Instruction) -> bool {
    use iced_x86::OpKind::*;
    (0..i.op_count()).any(|n| matches!(i.op_kind(n), MemorySegESI | MemoryESEDI))
}

/// Whether `i` uses a 32-bit address in FS or GS.
fn short_in_segment(i: &Instruction) -> bool {
    let short = i.memory_base().size() == 4 && i.memory_base() != Register::None
        || i.memory_index().size() == 4
        || i.memory_displ_size() == 4;
    short && matches!(i.segment_prefix(), Register::FS | Register::GS)
}

/// Whether `i` has an explicit memory operand.
pub fn memory_operand(i: &Instruction) -> bool {
    (0..i.op_count()).any(|n| i.op_kind(n) == iced_x86::OpKind::Memory)
}

/// Ends that differ without harm, or in ways that are documented as not emulated.
fn known(n: &Native, r: &Outcome, case: &Case) -> bool {
    use Mnemonic::*;
    let at = |rip: u64| case.instrs.iter().find(|i| i.ip() == rip);
    let last = case.instrs.last();
    let Some(i) = at(n.cpu.rip).or(at(r.cpu.rip)).or(last) else {
        return false;
    };
    match (n.end, r.end) {
        // Processors differ in whether no repetition at all truncates the address registers.
        (End::Boundary, End::Boundary) => short_string(i) && case.cpu.gpr[1] as u32 == 0,
        // Whether a misaligned operand or its missing page is noticed first.
        (End::Fault(a), End::Fault(b)) if (a.code == 0x80) != (b.code == 0x80) => {
            a.signo == libc::SIGSEGV && b.signo == libc::SIGSEGV
        }
        // A stack exception, told from a protection fault by the base register.
        (End::Fault(a), End::Fault(b)) if a.code == 0x80 && b.code == 0x80 => a.signo != b.signo,
        // Which element a string instruction faults at, and what it has done by then; where in
        // their operand the slow x87 and state instructions fault first, and what they have stored;
        // in which order `enter` goes over what it reads and writes.
        (End::Fault(a), End::Fault(b)) => {
            let slow = matches!(
                i.mnemonic(),
                Fbstp | Fstp | Frstor | Fldenv | Fxrstor | Fxrstor64
            );
            let slow = slow && i.memory_size().size() > 8 || i.mnemonic() == Enter;
            a.signo == b.signo && (i.is_string_instruction() || i.mnemonic() == Enter || slow)
        }
        // Flushing a line that is not mapped; `enter` probes the room it makes; a branch to an
        // address that is not canonical faults before it is taken.
        (End::Fault(_), End::Boundary) => {
            matches!(i.mnemonic(), Clflush | Clflushopt | Clwb | Cldemote | Enter)
                || i.flow_control() != FlowControl::Next && r.cpu.rip >> 47 != 0
        }
        _ => false,
    }
}

fn compare_ends(diff: &mut String, n: &Native, r: &Outcome, case: &Case) {
    let same = match (n.end, r.end) {
        (End::Boundary, End::Boundary) => {
            r.pos == case.instrs.len() as u64 || r.end != End::Boundary
        }
        (End::Fault(a), End::Fault(b)) => {
            // An operand across two pages, of which the second faults: which of its bytes is named
            // depends on the processor. For SIGFPE the address is that of the instruction.
            let near = a.addr.abs_diff(b.addr) < 64;
            let code = a.signo != libc::SIGSEGV && a.signo != libc::SIGBUS;
            let place = a.addr == b.addr || near || code && a.addr == a.pc && b.addr == b.pc;
            (a.signo, a.code) == (b.signo, b.code) && place
        }
        (End::Fault(a), End::Raise(hindsight_isa::desc::raise::GP)) => a.signo == libc::SIGSEGV,
        _ => false,
    };
    if !same {
        let _ = writeln!(
            diff,
            "native {:x?}, record {:x?} at position {}",
            n.end, r.end, r.pos
        );
    }
}

fn compare_cpu(diff: &mut String, a: &str, x: &CpuState, b: &str, y: &CpuState, flags: u64) {
    for i in 0..16 {
        if x.gpr[i] != y.gpr[i] {
            let _ = writeln!(
                diff,
                "register {i}: {a} {:#x}, {b} {:#x}",
                x.gpr[i], y.gpr[i]
            );
        }
    }
    if x.rip != y.rip {
        let _ = writeln!(diff, "rip: {a} {:#x}, {b} {:#x}", x.rip, y.rip);
    }
    let mask = hindsight_isa::state::RFLAGS_MASK & !STATUS_FLAGS | flags;
    if (x.rflags ^ y.rflags) & mask != 0 {
        let (x, y) = (x.rflags, y.rflags);
        let _ = writeln!(diff, "flags: {a} {x:#x}, {b} {y:#x} (of {mask:#x})");
    }
}

fn compare_vec(diff: &mut String, a: &str, x: &VecState, b: &str, y: &VecState) {
    for i in 0..32 {
        if x.zmm[i] != y.zmm[i] {
            let _ = writeln!(
                diff,
                "zmm{i}: {a} {:02x?}\n {b} {:02x?}",
                x.zmm[i], y.zmm[i]
            );
        }
    }
    for i in 0..8 {
        if x.k[i] != y.k[i] {
            let _ = writeln!(diff, "k{i}: {a} {:#x}, {b} {:#x}", x.k[i], y.k[i]);
        }
        if x.st[i] != y.st[i] {
            let _ = writeln!(diff, "st{i}: {a} {:02x?}, {b} {:02x?}", x.st[i], y.st[i]);
        }
    }
    let words = |v: &VecState| (v.mxcsr, v.fcw, v.fsw, v.ftw);
    if words(x) != words(y) {
        let _ = writeln!(
            diff,
            "mxcsr fcw fsw ftw: {a} {:x?}, {b} {:x?}",
            words(x),
            words(y)
        );
    }
}

fn compare_bytes(diff: &mut String, case: &Case, what: &str, x: &[u8], y: &[u8]) {
    if let Some(i) = (0..x.len()).find(|i| x[*i] != y[*i]) {
        let (at, end) = (case.region.data + i as u64, (i + 16).min(x.len()));
        let _ = writeln!(
            diff,
            "{what} at {at:#x}: {:02x?}, {:02x?}",
            &x[i..end],
            &y[i..end]
        );
    }
}

impl Case {
    fn describe(&self, seed: u64, bits: u8, wide: bool) -> String {
        let mut s = format!("seed {seed:#x}, 2^{bits} cells, wide checks {wide}\n");
        for i in &self.instrs {
            let at = (i.ip() - self.cpu.rip) as usize;
            let _ = writeln!(
                s,
                "  {:#x} {:?} {:02x?} base {:?} index {:?} scale {} disp {:#x} seg {:?} ops {:?} mask {:?}",
                i.ip(),
                i.code(),
                &self.code[at..at + i.len()],
                i.memory_base(),
                i.memory_index(),
                i.memory_index_scale(),
                i.memory_displacement64(),
                i.segment_prefix(),
                (0..i.op_count())
                    .map(|n| i.op_register(n))
                    .collect::<Vec<_>>(),
                i.op_mask(),
            );
        }
        let _ = write!(
            s,
            "  data {:#x}, read-only page {:?}, gpr",
            self.region.data, self.read_only
        );
        for g in self.cpu.gpr {
            let _ = write!(s, " {g:x}");
        }
        let _ = write!(s, " flags {:x}", self.cpu.rflags);
        s
    }
}

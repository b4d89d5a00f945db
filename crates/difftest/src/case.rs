//! One case: one or several random instructions in a random state. It is run in all ways, and the
//! results are compared.

use crate::compare::{compare_bytes, compare_cpu, compare_ends, compare_vec, known, restart_flags};
use crate::generate::{encode, generate};
use crate::interpret::{self, Pages, Third};
use crate::memory::{DATA, Region, Window, code_cache};
use crate::native;
use crate::prepare::{prepare_instruction, settle_segment, short_in_segment, unfit};
use crate::record::{self, Outcome, Program};
use crate::replay;
use crate::state::{has_wide, number, random_cpu, random_vec};
use hindsight_interp::Interpreter;
use hindsight_isa::state::STATUS_FLAGS;
use hindsight_isa::xsave::Layout;
use hindsight_isa::{Approximations, CpuState, Finer, LeftOpen, Predictor, VecState};
use hindsight_random::Rng;
use hindsight_translate::{Mode, Policy, Translator};
use iced_x86::{Code, Instruction, Mnemonic, Register};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Code behind the case. At branch targets it needs all flags, or none.
const TAILS: [&[u8]; 2] = [
    // pushfq
    &[0x9c, 0x90, 0x90, 0x90],
    // cmp eax, eax
    &[0x39, 0xc0, 0x90, 0x90],
];

/// The sizes of the shadow memory that are tried, in bits.
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
    interpreter: Interpreter<Pages>,
}

/// What became of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// All ways gave the same result.
    Same,
    /// The processor does not have the instruction.
    Illegal,
    /// The runtime executes the instruction, or it never returns to the program.
    Slow,
    /// Not supported with a window of 2^32 cells.
    Unsupported,
    /// Not supported: an address of 32 bits in a segment that has a base.
    SegmentWithShortAddress,
    /// Not supported with this number of cells, or left to the runtime there.
    UnsupportedHere,
    /// No such instruction could be made.
    NotMade,
}

/// A prepared case.
pub(crate) struct Case {
    pub(crate) instrs: Vec<Instruction>,
    pub(crate) code: Vec<u8>,
    pub(crate) region: Region,
    pub(crate) cpu: CpuState,
    pub(crate) vec: VecState,
    pub(crate) data: Vec<u8>,
    pub(crate) stale: Vec<u8>,
    /// Number of the data page that is read-only, if there is one.
    pub(crate) read_only: Option<u64>,
}

/// How the processor itself ended.
pub(crate) struct Native {
    pub(crate) end: Outcome,
    pub(crate) cpu: CpuState,
    pub(crate) vec: VecState,
    pub(crate) data: Vec<u8>,
}

/// An interpreter of what this processor does.
fn here() -> Interpreter<Pages> {
    let mut interpreter = Interpreter::new();
    interpreter.set_approximations(Approximations::here().map(Arc::new));
    interpreter.set_finer(Finer::here().map(Arc::new));
    interpreter.set_left_open(LeftOpen::here());
    interpreter
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
            interpreter: here(),
        }
    }

    /// Runs the case that `codes` and `seed` define. An error describes the case and how the
    /// results differ.
    pub fn run(&mut self, codes: &[Code], seed: u64) -> Result<Verdict, String> {
        native::CASE.store(seed, Relaxed);
        native::CODE.store(codes.first().map_or(0, |c| *c as u64), Relaxed);
        let mut rng = Rng(seed);
        let Some(case) = self.prepare(codes, &mut rng) else {
            return Ok(Verdict::NotMade);
        };
        let n = self.native(&case);
        if matches!(n.end, Outcome::Fault(t) if t.signo == libc::SIGILL) {
            return Ok(Verdict::Illegal);
        }
        self.third(&case, &n, seed)?;
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
                Ok(Verdict::Unsupported | Verdict::Slow) if size != 0 => {
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

    fn third(&mut self, case: &Case, n: &Native, seed: u64) -> Result<Third, String> {
        interpret::compare(&mut self.interpreter, case, n)
            .map_err(|e| format!("{e}\n{}", case.describe(seed, BITS[0], false)))
    }

    /// Like [`Rig::run`], but only on the processor and in the interpreter, which takes much less time. `None`: there is
    /// nothing to compare.
    pub fn interpret(&mut self, codes: &[Code], seed: u64) -> Result<Option<Third>, String> {
        native::CASE.store(seed, Relaxed);
        native::CODE.store(codes.first().map_or(0, |c| *c as u64), Relaxed);
        let mut rng = Rng(seed);
        let Some(case) = self.prepare(codes, &mut rng) else {
            return Ok(None);
        };
        let n = self.native(&case);
        self.third(&case, &n, seed).map(Some)
    }

    /// An instruction of this encoding as a case has it, and the state that it would run in.
    /// Nothing is run. `None` if no such instruction can be made.
    pub fn example(&mut self, code: Code, seed: u64) -> Option<(Vec<u8>, CpuState, VecState)> {
        let case = self.prepare(&[code], &mut Rng(seed))?;
        Some((case.code, case.cpu, case.vec))
    }

    fn prepare(&mut self, codes: &[Code], rng: &mut Rng) -> Option<Case> {
        // The addresses of a sequence are not controlled. So it must not lie beside the harness's
        // own memory.
        let far = self.regions.len() - (codes.len() > 1) as usize;
        let region = rng.pick(&self.regions[..far]);
        let pc = region.code + rng.below(2048);
        let mut cpu = random_cpu(rng, &region, pc, self.fs_base);
        cpu.gs_base = region.data - rng.below(1 << 20);
        let mut vec = random_vec(rng, self.layout.mask);
        if codes.len() == 1 && rng.one_in(4) {
            // Exceptions of the x87 that are not masked. The next instruction would raise them.
            vec.fcw &= !(rng.below(64) as u16);
        }
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
                // A bit offset may wrap such an address at 4 GiB. The harness does not follow that.
                return None;
            }
            if codes.len() > 1 && unfit(&mut i) {
                return None;
            }
            let (b, i) = encode(&i, at)?;
            bytes.extend(b);
            instrs.push(i);
        }
        let numbers = rng.one_in(3);
        for c in data.chunks_mut(8) {
            let v = if numbers { number(rng) } else { rng.value() };
            c.copy_from_slice(&v.to_le_bytes());
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

    /// Other regions, into which a sequence may stray.
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
            Outcome::Boundary
        } else if trap.signo == libc::SIGSEGV && trap.addr == trap.pc {
            Outcome::Boundary
        } else {
            Outcome::Fault(trap)
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
            Outcome::Unsupported => return Ok(Verdict::Unsupported),
            Outcome::Slow => return Ok(Verdict::Slow),
            Outcome::Wrong(what) => return Err(format!("{what}; {how}")),
            _ => {}
        }
        let live = if dead && !plain { 0 } else { STATUS_FLAGS };
        let mut diff = String::new();
        if known(n, &r, case) {
            return Ok(Verdict::Same);
        }
        compare_ends(&mut diff, n, &r, case);
        let faulted = matches!(r.end, Outcome::Fault(_));
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
            // A nested frame's reads and writes share cells. One position cannot tell them apart.
            return Ok(Verdict::Same);
        }
        // The replay of what was recorded.
        let step = if rng.one_in(2) { 1 } else { 64 };
        let tr = &mut self.translators[size][2];
        let (cpu, pvec) = replay::run(wp, self.caches[1], tr, self.layout, &p, &r, step)
            .map_err(|e| format!("{e}; {how}\n{:x?}", r.events))?;
        let flags = if faulted { 0 } else { live };
        compare_cpu(&mut diff, "record", &r.cpu, "replay", &cpu, flags);
        // An instruction that faults may have changed its state before. Replay gets that state with
        // the signal.
        if !faulted || n.vec == case.vec {
            compare_vec(&mut diff, "record", &r.vec, "replay", &pvec);
        }
        let (cr, cp) = (wr.get_data(case.region.data), wp.get_data(case.region.data));
        compare_bytes(&mut diff, case, "cells (record, replay)", &cr, &cp);
        // In the smallest shadow memory the two pages share their cells.
        if !faulted && case.instrs.len() == 1 && BITS[size] > 12 {
            compare_cells(&mut diff, case, &cr, &data);
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

/// Each cell holds what it held before, or what memory holds.
fn compare_cells(diff: &mut String, case: &Case, cells: &[u8], data: &[u8]) {
    for (i, c) in cells.iter().enumerate() {
        let written = data[i] != case.data[i];
        if *c != data[i] && (*c != case.stale[i] || written) {
            let _ = writeln!(diff, "cell {i:#x}: {c:02x}, memory {:02x}", data[i]);
            return;
        }
    }
}

//! Runs translated code as the recorder does, and serves its exits.

use crate::confined;
use crate::memory::{CACHE, Window};
use crate::native::{self, Trap};
use crate::thread::{Stop, Thread};
use hindsight_events::Event;
use hindsight_isa::desc::raise;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::string::{Regs, StringOp};
use hindsight_isa::xsave::{Area, Layout};
use hindsight_isa::{CpuState, Desc, DescKind, VecState};
use hindsight_recorder::shadow::{Both, Shadow};
use hindsight_recorder::{guard, precheck};
use hindsight_translate::{Block, Error, Input, Translator, completed};
use iced_x86::{Decoder, DecoderOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Between two instructions, at the address in the state.
    Boundary,
    /// At an instruction that raised a signal.
    Fault(Trap),
    /// At an instruction that raises an exception of [`raise`].
    Raise(u8),
    /// At an instruction that the recorder's runtime executes.
    Slow,
    /// At an instruction that is not supported.
    Unsupported,
    /// Translated code did what it must not do.
    Wrong(&'static str),
}

/// The state at the end of a run, and what was recorded.
#[derive(Clone)]
pub struct RunResult {
    /// How the run ended.
    pub end: Outcome,
    /// The guest's registers.
    pub cpu: CpuState,
    /// The guest's vector state.
    pub vec: VecState,
    /// Number of completed instructions.
    pub pos: u64,
    /// What was recorded: positions and events.
    pub events: Vec<(u64, crate::thread::Patch)>,
    /// Number of exits of each kind.
    pub exits: [u32; 16],
}

/// What to run.
pub struct Program<'a> {
    /// The registers. `rip` says where the code is.
    pub cpu: &'a CpuState,
    /// The vector state.
    pub vec: &'a VecState,
    /// The code, followed by what the translator may look at.
    pub code: &'a [u8],
    /// The code that the translator finds at branch targets.
    pub peek: &'static [u8],
    /// Number of instructions to run.
    pub instrs: u64,
    /// Compare the code with its source on each entry.
    pub self_check: bool,
}

impl<'a> Program<'a> {
    /// The code bytes at `pc`, for the translator to look ahead.
    pub fn code_at(&self, pc: u64) -> &'a [u8] {
        let off = pc.wrapping_sub(self.cpu.rip) as usize;
        self.code
            .get(off..)
            .filter(|c| !c.is_empty())
            .unwrap_or(self.peek)
    }
}

/// Why a block was not installed.
pub enum Refused {
    /// The block has an instruction that translated code never has.
    Unlisted,
    /// The block does what is not allowed. The translator should not have emitted it.
    Wrong(String),
}

/// Copies the translated block into the code cache at `cache`, if the code check allows it. Returns
/// where the hot half is.
pub fn install(t: &mut Translator, cache: u64, slide: u64) -> Result<u64, Refused> {
    let (hot, cold) = (cache + slide, cache + CACHE as u64 / 2);
    t.relocate(hot, cold, cache);
    if let Err(refusal) = confined::check(t, slide as u32, CACHE as u32 / 2) {
        return Err(match confined::is_unlisted(&refusal) {
            true => Refused::Unlisted,
            false => Refused::Wrong(refusal.to_string()),
        });
    }
    for (part, at) in [(&t.block.hot, hot), (&t.block.cold, cold)] {
        assert!(part.len() + 4096 < CACHE / 2);
        // SAFETY: both halves lie in the cache's mapping, in which no code runs now.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), at as *mut u8, part.len()) }
    }
    Ok(hot)
}

const START: u64 = 1000;

/// Runs `p`, translated for recording.
pub fn run(w: &Window, cache: u64, tr: &mut Translator, layout: Layout, p: &Program) -> RunResult {
    let mut area: Box<Area> = Box::default();
    layout.from_state(p.vec, &mut area);
    let mut t = Thread {
        ctx: w.ctx(),
        window: w.first(),
        predictor: w.predictor,
        wide_checks: tr.policy.wide_checks,
        mispredictions: 0,
        pos: 0,
        events: Vec::new(),
        area,
        layout,
    };
    t.ctx.gpr = p.cpu.gpr;
    t.ctx.rflags = p.cpu.rflags;
    t.ctx.rip = p.cpu.rip;
    t.ctx.fs_base = p.cpu.fs_base;
    t.ctx.gs_base = p.cpu.gs_base;
    (t.ctx.zmm31, t.ctx.k7) = (p.vec.zmm[31], p.vec.k[7]);
    t.ctx.spill = [0x5555_aaaa_5555_aaaa; 16];
    native::set_gs(w.gs());
    let mut exits = [0; 16];
    let mut fault = None;
    let end = loop {
        let off = t.ctx.rip.wrapping_sub(p.cpu.rip) as usize;
        if t.pos >= p.instrs || off >= p.code.len() {
            break Outcome::Boundary;
        }
        let input = Input {
            pc: t.ctx.rip,
            code: &p.code[off..],
            max_instrs: (p.instrs - t.pos) as u32,
            self_check: p.self_check,
            peeked: &[],
        };
        tr.want_map = false;
        match tr.translate(&input, &mut |pc| p.code_at(pc)) {
            Ok(()) => {}
            Err(Error::Truncated | Error::Lacking) => {
                break Outcome::Wrong("the code has no whole instruction");
            }
        }
        // The recorder finds an instruction in a block again by translating the block's own bytes
        // with a map. That must give the same code.
        let (first, peeked) = (tr.block.hot.clone(), tr.block.peeked.clone());
        tr.want_map = true;
        let code = &input.code[..tr.block.src_len as usize];
        let again = Input {
            code,
            max_instrs: u32::MAX,
            peeked: &peeked,
            ..input
        };
        if tr.translate(&again, &mut |_| &[]).is_err() || tr.block.hot != first {
            break Outcome::Wrong("the translation with a map differs");
        }
        let hot = match install(tr, cache, (p.cpu.rip & 3) * 16) {
            Ok(hot) => hot,
            Err(Refused::Unlisted) => break Outcome::Unsupported,
            Err(Refused::Wrong(what)) => {
                eprintln!("{what}");
                break Outcome::Wrong("a translation that is not allowed");
            }
        };
        t.ctx.count = START + t.pos;
        t.ctx.resume = hot;
        if let Some(end) = block(&mut t, p, &tr.block, cache, hot, &mut exits, &mut fault) {
            break end;
        }
    };
    let mut cpu = fault.unwrap_or(CpuState {
        gpr: t.ctx.gpr,
        rip: t.ctx.rip,
        rflags: t.ctx.rflags & RFLAGS_MASK,
        fs_base: t.ctx.fs_base,
        gs_base: t.ctx.gs_base,
    });
    cpu.rflags &= RFLAGS_MASK;
    RunResult {
        end,
        cpu,
        vec: t.vec(),
        pos: t.pos,
        events: core::mem::take(&mut t.events),
        exits,
    }
}

/// Runs one block to its end. `None`: continue at `Ctx::rip`.
fn block(
    t: &mut Thread,
    p: &Program,
    b: &Block,
    cache: u64,
    hot: u64,
    exits: &mut [u32; 16],
    fault: &mut Option<CpuState>,
) -> Option<Outcome> {
    for _ in 0..100_000 {
        let ctx: *mut _ = t.ctx;
        let area = &mut t.area;
        // SAFETY: `resume` is translated code for this window. A signal in it continues at the exit
        // trampoline, which returns from `enter_xsave`.
        let caught = unsafe {
            native::catching(hindsight_glue::exit_address(), || {
                hindsight_glue::enter_xsave(ctx, area)
            })
        };
        if let Some(c) = caught {
            let within = c.trap.pc.wrapping_sub(hot);
            let entry = b.map.iter().rev().find(|e| e.hot as u64 <= within);
            if within >= b.hot.len() as u64 {
                return Some(Outcome::Wrong(
                    if c.trap.pc.wrapping_sub(cache) < CACHE as u64 {
                        "fault in a stub"
                    } else {
                        "jumped out of the cache"
                    },
                ));
            }
            let Some(e) = entry else {
                return Some(Outcome::Wrong(
                    "a fault before the first instruction of a block",
                ));
            };
            let mut gpr = c.gpr;
            (gpr[10], gpr[11]) = (t.ctx.gpr[10], t.ctx.gpr[11]);
            for (i, r) in e.spilled.iter().enumerate().filter(|(_, r)| **r < 16) {
                gpr[*r as usize] = t.ctx.spill[i];
            }
            t.pos = c.gpr[11].wrapping_sub(e.ahead as u64).wrapping_sub(START);
            if let Some(iterations) = completed(p.code_at(e.pc), t.ctx, gpr[1]) {
                t.event(&Event::RepChunk { iterations });
            }
            let rflags = e
                .lazy_flags
                .map_or(c.rflags, |k| k.flags(c.rflags, t.ctx.flags));
            *fault = Some(CpuState {
                gpr,
                rip: e.pc,
                rflags,
                fs_base: t.ctx.fs_base,
                gs_base: t.ctx.gs_base,
            });
            return Some(Outcome::Fault(c.trap));
        }
        // SAFETY: exit stubs store the offsets of descriptors in the cache.
        let desc = unsafe { Desc::of_exit(cache, t.ctx.desc) };
        t.pos = t
            .ctx
            .count
            .wrapping_sub(desc.ahead as u64)
            .wrapping_sub(START);
        exits[desc.kind() as usize & 15] += 1;
        match exit(t, &desc) {
            Ok(true) => t.ctx.resume = cache + desc.resume as u64,
            Ok(false) => return None,
            Err(end) => return Some(end),
        }
    }
    Some(Outcome::Wrong("translated code does not end"))
}

fn at_runtime(f: guard::Fault, pc: u64) -> Outcome {
    Outcome::Fault(Trap {
        signo: f.signo as i32,
        code: f.code,
        addr: f.addr,
        pc,
    })
}

/// Serves an exit. True: resume behind it. False: the block has ended.
fn exit(t: &mut Thread, desc: &Desc) -> Result<bool, Outcome> {
    match desc.kind() {
        DescKind::Exit => {
            t.ctx.rip = desc.pc;
            Ok(false)
        }
        DescKind::Indirect => Ok(false),
        DescKind::Mispredicted => {
            if t.fill(t.ctx.ea, desc.size as u64).is_err() {
                return Err(Outcome::Wrong(
                    "a misprediction where memory cannot be read",
                ));
            }
            Ok(true)
        }
        // A single thread has no order, and the tests do not ask for it.
        DescKind::Sequence => Err(Outcome::Wrong(
            "an atomic operation asks for an order number",
        )),
        DescKind::MispredictedValue => {
            t.fill_value(t.ctx.ea, desc.size, t.ctx.value);
            Ok(true)
        }
        DescKind::PreCheck => {
            t.ctx.rip = desc.pc;
            let n = desc.ilen as usize;
            let i = Decoder::with_ip(64, &desc.bytes[..n], desc.pc, DecoderOptions::NONE).decode();
            match catch_unwind(AssertUnwindSafe(|| precheck::run(t, &i, desc.size as u64))) {
                Ok(Ok(true)) => Ok(true),
                Ok(Ok(false)) => Err(Outcome::Wrong("elements share cells")),
                Ok(Err(f)) => Err(at_runtime(f, desc.pc)),
                Err(e) => Err(match e.downcast_ref::<Stop>() {
                    Some(Stop::Unsupported) => Outcome::Unsupported,
                    None => Outcome::Wrong("the check before an instruction panics"),
                }),
            }
        }
        DescKind::Slow => {
            t.ctx.rip = desc.pc;
            match StringOp::decode(&desc.bytes[..desc.ilen as usize]) {
                Some(op) => string(t, desc, &op),
                None => Err(Outcome::Slow),
            }
        }
        DescKind::Raise => {
            t.ctx.rip = desc.pc;
            Err(match desc.size {
                raise::UNSUPPORTED => Outcome::Unsupported,
                raise::BP => {
                    t.pos += 1;
                    Outcome::Boundary
                }
                n => Outcome::Raise(n),
            })
        }
        DescKind::Syscall => {
            t.ctx.rip = desc.pc;
            Err(Outcome::Slow)
        }
        DescKind::Stale | DescKind::Budget | DescKind::Watch => {
            Err(Outcome::Wrong("an exit of replay, or stale code"))
        }
    }
}

fn string(t: &mut Thread, desc: &Desc, op: &StringOp) -> Result<bool, Outcome> {
    let base = op.segment.base(t.ctx.fs_base, t.ctx.gs_base);
    let mut regs = Regs::of(&t.ctx.gpr, t.ctx.rflags);
    if op.operands_collide(&regs, base, t.predictor) {
        return Err(Outcome::Slow);
    }
    let from = match desc.size {
        0 => 0,
        _ => completed(&desc.bytes[..desc.ilen as usize], t.ctx, regs.rcx).unwrap_or(0),
    };
    let result = op.execute(&mut regs, base, from, &mut Both::new(t, from));
    store_string_regs(t.ctx, &regs);
    match result {
        Ok(()) => Ok(true),
        Err((f, done)) => {
            t.event(&Event::RepChunk { iterations: done });
            Err(at_runtime(f, desc.pc))
        }
    }
}

/// Stores the registers of a string instruction.
pub fn store_string_regs(c: &mut hindsight_isa::Ctx, r: &Regs) {
    r.store(&mut c.gpr);
    c.rflags = r.rflags & RFLAGS_MASK;
}

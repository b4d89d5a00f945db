//! Replays what was recorded, with nothing but the window.

use crate::memory::Window;
use crate::native;
use crate::record::{Program, Refused, RunResult, install, store_string_regs};
use crate::thread::Patch;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::string::{Regs, StringMemory, StringOp};
use hindsight_isa::xsave::{Area, Layout};
use hindsight_isa::{CpuState, Desc, DescKind, VecState};
use hindsight_translate::{Input, Translator};
use std::iter::Peekable;
use std::slice::Iter;

fn apply(w: &Window, p: &Patch) {
    match *p {
        Patch::Word(addr, value) => w.write(addr, &value.to_le_bytes()),
        Patch::Bytes(addr, len, value) => w.write(addr, &value.to_le_bytes()[..len as usize]),
        Patch::Chunk(_) => {}
    }
}

/// Replays the instructions that `r` completed, at most `step` at a time. Applies each event at its
/// position.
pub fn run(
    w: &Window,
    cache: u64,
    tr: &mut Translator,
    layout: Layout,
    p: &Program,
    r: &RunResult,
    step: u64,
) -> Result<(CpuState, VecState), String> {
    let mut area: Box<Area> = Box::default();
    layout.from_state(p.vec, &mut area);
    let ctx = w.ctx();
    ctx.gpr = p.cpu.gpr;
    ctx.rflags = p.cpu.rflags;
    ctx.rip = p.cpu.rip;
    ctx.fs_base = p.cpu.fs_base;
    ctx.gs_base = p.cpu.gs_base;
    native::set_gs(w.gs());
    let mut queue = r.events.iter().peekable();
    let mut pos = 0;
    while pos < r.pos {
        while let Some((_, e)) = queue.next_if(|e| e.0 == pos && !matches!(e.1, Patch::Chunk(_))) {
            apply(w, e);
        }
        let off = ctx.rip.wrapping_sub(p.cpu.rip) as usize;
        if off >= p.code.len() {
            return Err(format!(
                "left the code at position {pos}, rip {:#x}",
                ctx.rip
            ));
        }
        let next = queue.peek().map_or(r.pos, |e| e.0).max(pos + 1);
        let n = step.min(next - pos).min(r.pos - pos);
        let input = Input {
            pc: ctx.rip,
            code: &p.code[off..],
            max_instrs: n as u32,
            self_check: false,
            peeked: &[],
        };
        tr.translate(&input, &mut |pc| p.code_at(pc))
            .map_err(|e| format!("replay: {e:?}"))?;
        ctx.resume = match install(tr, cache, (p.cpu.rip & 3) * 16) {
            Ok(hot) => hot,
            Err(Refused::Unlisted) => {
                return Err("replay: an instruction that no translated code has".into());
            }
            Err(Refused::Wrong(what)) => return Err(format!("replay: {what}")),
        };
        let done = play(
            w,
            cache,
            (tr.block.instrs as u64, pos),
            &mut area,
            &mut queue,
        )?;
        if done == 0 || done > n {
            return Err(format!("replay counts {done} instead of {n}"));
        }
        pos += done;
    }
    let last = p.code.get(ctx.rip.wrapping_sub(p.cpu.rip) as usize..);
    if let Some(op) = last
        .and_then(StringOp::decode)
        .filter(|_| queue.peek().is_some())
    {
        let base = op.segment.base(ctx.fs_base, ctx.gs_base);
        let mut regs = Regs::of(&ctx.gpr, ctx.rflags);
        while let Some((_, e)) = queue.next_if(|e| !matches!(e.1, Patch::Chunk(_))) {
            apply(w, e);
        }
        let _ = op.execute(
            &mut regs,
            base,
            0,
            &mut Cells {
                w,
                queue: &mut queue,
                at: pos,
            },
        );
        store_string_regs(ctx, &regs);
    }
    for (at, e) in queue {
        if *at != pos {
            return Err(format!("an event at {at} behind the end"));
        }
        apply(w, e);
    }
    let cpu = CpuState {
        gpr: ctx.gpr,
        rip: ctx.rip,
        rflags: ctx.rflags & RFLAGS_MASK,
        fs_base: ctx.fs_base,
        gs_base: ctx.gs_base,
    };
    Ok((cpu, layout.to_state(&area)))
}

/// What was recorded, by position.
type Events<'a> = Peekable<Iter<'a, (u64, Patch)>>;

/// Runs the block at the context's entry, of so many instructions, for the thread at this position.
/// Returns how many instructions it has executed.
fn play(
    w: &Window,
    cache: u64,
    (block, pos): (u64, u64),
    area: &mut Area,
    queue: &mut Events,
) -> Result<u64, String> {
    let ctx = w.ctx();
    // First with a budget of one instruction too few: the block must not begin. Then with
    // exactly enough.
    let (short, start) = (0u64.wrapping_sub(block), (!0u64).wrapping_sub(block));
    let (entry, before) = (ctx.resume, ctx.gpr);
    let mut probing = true;
    ctx.count = short;
    loop {
        let to: *mut _ = ctx;
        // SAFETY: translated code for this window. A signal continues at the exit trampoline.
        let caught = unsafe {
            native::catching(hindsight_glue::exit_address(), || {
                hindsight_glue::enter_xsave(to, area)
            })
        };
        if let Some(c) = caught {
            return Err(format!("replay raises {:?} at position {pos}", c.trap));
        }
        // SAFETY: exit stubs store the offsets of descriptors in the cache.
        let desc = unsafe { Desc::of_exit(cache, ctx.desc) };
        if std::mem::take(&mut probing) {
            let same = ctx.gpr == before && ctx.count == short && desc.pc == ctx.rip;
            if desc.kind() != DescKind::Budget || !same {
                return Err(format!(
                    "replay began {block} instructions that its budget does not cover"
                ));
            }
            (ctx.count, ctx.resume) = (start, entry);
            continue;
        }
        match desc.kind() {
            DescKind::Exit => ctx.rip = desc.pc,
            DescKind::Indirect => {}
            DescKind::Slow => {
                let Some(op) = StringOp::decode(&desc.bytes[..desc.ilen as usize]) else {
                    return Err("replay: the runtime must execute an instruction".into());
                };
                let base = op.segment.base(ctx.fs_base, ctx.gs_base);
                let mut regs = Regs::of(&ctx.gpr, ctx.rflags);
                let at = pos + ctx.count.wrapping_sub(start) - desc.ahead as u64;
                let mut cells = Cells { w, queue, at };
                let _ = op.execute(&mut regs, base, 0, &mut cells);
                store_string_regs(ctx, &regs);
                ctx.resume = cache + desc.resume as u64;
                continue;
            }
            k => return Err(format!("replay: {k:?} at position {pos}")),
        }
        break;
    }
    Ok(ctx.count.wrapping_sub(start))
}

/// The cells, with the events that were recorded between chunks of a string instruction.
struct Cells<'a, 'q> {
    w: &'a Window,
    queue: &'a mut Events<'q>,
    at: u64,
}

impl Cells<'_, '_> {
    /// Iterations up to the next chunk for which something was recorded.
    fn most(&mut self, done: u64) -> u64 {
        match self.queue.peek() {
            Some((at, Patch::Chunk(n))) if *at == self.at && *n > done => n - done,
            _ => u64::MAX,
        }
    }
}

impl StringMemory for Cells<'_, '_> {
    type Stop = ();

    fn chunk(&mut self, done: u64) -> Result<u64, ()> {
        let at = self.at;
        let Some((_, Patch::Chunk(n))) = self
            .queue
            .next_if(|e| e.0 == at && e.1 == Patch::Chunk(done))
        else {
            return Ok(self.most(done));
        };
        // A fault ends the instruction here.
        if self
            .queue
            .peek()
            .is_none_or(|e| matches!(e.1, Patch::Chunk(m) if m == *n))
        {
            return Err(());
        }
        while let Some((_, e)) = self
            .queue
            .next_if(|e| e.0 == at && !matches!(e.1, Patch::Chunk(_)))
        {
            apply(self.w, e);
        }
        // A chunk whose cells were brought up to date may have faulted nevertheless.
        if self
            .queue
            .next_if(|e| e.0 == at && e.1 == Patch::Chunk(done))
            .is_some()
        {
            return Err(());
        }
        Ok(self.most(done))
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), ()> {
        self.w.read(addr, buf);
        Ok(())
    }

    fn write(&mut self, addr: u64, buf: &[u8]) -> Result<(), ()> {
        self.w.write(addr, buf);
        Ok(())
    }
}

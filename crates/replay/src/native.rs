//! Executes instructions by translating them into instructions of the host, which then run in the window.

mod aside;
mod blocks;
mod cache;
mod executable;
mod host;
mod slow;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::access::Finder;
use crate::code::Code;
use crate::cpu::{Cpu, Observe};
use crate::features;
use crate::interpreted::Ended;
use crate::library::{Key, Library};
use crate::processor::{Model, Processor};
use crate::queue::{Op, Queue};
use crate::window::AccessKind;
use aside::Aside;
use cache::Cache;
use hindsight_confine::{Checker, Refusal};
use hindsight_isa::ctx::table;
use hindsight_isa::xsave::{Area, COMPONENTS, Layout};
use hindsight_isa::{Desc, DescKind, Executed, Lacking, Predictor, VecState, observe};
use hindsight_translate::{Mode, Policy, Translator};
use host::{Fault, Held, HostFloat, Prepared, SignalStack};
use std::collections::HashMap;
use std::sync::Arc;

const PAGE: u64 = 4096;
/// Most instructions for which translated code is entered at once.
const FAR: u64 = 1 << 31;

const OUT_OF_BOUNDS: &str = "a link out of bounds";

/// Why the inner loop ended.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// The target was reached, an event that is not a patch is due, or no more entries are prepared.
    Events,
    Translate(Key),
    /// This displacement can be linked to this block, but memory for the link must be allocated first.
    Link(u32, u32),
    Slow(Desc),
    /// A fault, and the instruction counter as a position.
    Fault(Fault, u64),
    /// The next instruction has a breakpoint.
    Break,
    /// The run is near enough to its target.
    Near,
    /// Translated code did something that it must not do.
    Wrong(&'static str),
}

/// Everything that translates code and runs it.
pub(crate) struct Native {
    pub cache: Cache,
    pub translator: Translator,
    pub library: Option<Arc<Library>>,
    pub(crate) checker: Checker,
    /// Why the translation of the instruction at an address was refused.
    pub(crate) refusals: HashMap<u64, Refusal>,
    /// The recording has what transcendental instructions gave.
    knows_transcendental: bool,
    area: Box<Area>,
    layout: Layout,
    /// What executes instructions that this machine cannot execute, if there may be any.
    aside: Option<Box<Aside>>,
    /// A host address to continue at instead of the guest's address, and the counter there as a position.
    resume: Option<(u64, u64)>,
    /// A displacement that leads to the next instruction and is not linked yet.
    link: Option<u32>,
    /// An indirect branch led to the next instruction, and the lookup table did not have it.
    lookup: bool,
    stack: SignalStack,
    finder: Finder,
    /// This thread of the host, prepared to run translated code, for this run.
    host: Option<Held>,
    /// The same for several runs.
    held: Option<Held>,
}

impl Native {
    /// Makes a translator for a machine with this window. Code that it makes leaves through what it tells the window. `there`: what
    /// programs ran on.
    pub fn new(predictor: Predictor, there: &Model, cpu: &mut Cpu) -> Result<Native, Error> {
        let Some(layout) = features::layout() else {
            let what = "this processor has no XSAVE".to_string();
            return Err(Error::Unsupported {
                position: 0,
                pc: 0,
                what,
            });
        };
        let mut translator = Translator::new(Policy {
            mode: Mode::Replay,
            predictor,
            wide_checks: false,
        });
        let aside = Aside::new(&layout, there, there.lacking(&layout)).map(Box::new);
        translator.lacking = aside.as_ref().map_or(Lacking::default(), |a| a.lacking());
        let marking = cpu.marking;
        translator.observe = marking.marks();
        translator.runs = marking == Observe::Runs;
        translator.near = marking == Observe::Near;
        let ctx = cpu.window.ctx_mut();
        ctx.search_ptr = hindsight_glue::searches();
        ctx.exit_ptr = hindsight_glue::exit_address();
        Ok(Native {
            cache: Cache::new()?,
            translator,
            library: None,
            checker: Checker::new(),
            refusals: HashMap::new(),
            knows_transcendental: there.transcendental,
            area: Box::default(),
            layout,
            aside,
            resume: None,
            link: None,
            lookup: false,
            stack: SignalStack::new(),
            finder: Finder::new(there.saves),
            host: None,
            held: None,
        })
    }

    /// Prepares this thread to run translated code.
    fn prepare(&mut self, cpu: &mut Cpu) -> Result<Held, Error> {
        let range = self.cache.range();
        Prepared::new(&mut cpu.window, range, &mut self.stack).map(Held::new)
    }

    /// Forgets how the next instruction was reached. What is remembered of it may refer to blocks that were dropped.
    pub fn lose_way(&mut self) {
        self.resume = None;
        self.link = None;
        self.lookup = false;
    }

    /// Sets the x87 state as FNINIT does.
    pub fn x87_init(&mut self) {
        let mut v = self.vectors();
        v.set_status(0);
        (v.fcw, v.ftw) = (0x37f, 0);
        self.set_vectors(&v);
    }

    /// Masks all x87 exceptions.
    pub fn x87_mask(&mut self) {
        let mut v = self.vectors();
        v.fcw |= 0x3f;
        self.set_vectors(&v);
    }

    /// [`Processor::run`] in a prepared thread.
    fn run_in(
        &mut self,
        cpu: &mut Cpu,
        queue: &mut Queue,
        target: u64,
        host: &Prepared,
    ) -> Result<bool, Error> {
        if cpu.take_jumped() {
            self.lose_way();
        }
        loop {
            if self.aside.as_ref().is_some_and(|a| a.is_wide()) {
                match self.step_aside(cpu, queue, target)? {
                    Ended::Behind => continue,
                    Ended::Events | Ended::Break => return Ok(true),
                }
            }
            let before = cpu.pos;
            let left = self.inner(cpu, queue, target, host);
            cpu.executed += cpu.pos.saturating_sub(before);
            match left {
                Left::Events | Left::Break => return Ok(true),
                Left::Near => return Ok(false),
                Left::Translate(_) if self.is_aside(cpu) => {
                    if self.step_aside(cpu, queue, target)? != Ended::Behind {
                        return Ok(true);
                    }
                }
                Left::Translate(key) => self.translate(cpu, key)?,
                Left::Link(patch, id) => {
                    self.cache.reserve_links();
                    if !self.cache.link(patch, id) {
                        return Err(wrong(cpu, OUT_OF_BOUNDS));
                    }
                }
                Left::Slow(desc) if desc.kind() == DescKind::Watch => {
                    cpu.watched = true;
                    return Ok(true);
                }
                Left::Slow(desc) => self.slow(cpu, &desc)?,
                Left::Fault(fault, counter) => return Err(self.fault(cpu, fault, counter)),
                Left::Wrong(what) => return Err(wrong(cpu, what)),
            }
        }
    }

    /// Runs the inner loop with the guest's vector state in the processor.
    fn inner(&mut self, cpu: &mut Cpu, queue: &mut Queue, target: u64, host: &Prepared) -> Left {
        if let Some(aside) = &self.aside {
            aside.lend(&mut cpu.window.ctx_mut().high);
        }
        let float = HostFloat::save();
        let avx = self.layout.mask & 4 != 0;
        let area = &raw mut self.area.0;
        // SAFETY: both hold sixteen registers of sixteen bytes; XMM state begins at offset 160. XSAVE or
        // `from_state` has filled the area.
        unsafe {
            let xmm = (&raw mut (*cpu.window.ctx_ptr()).xmm).cast::<u8>();
            std::ptr::copy_nonoverlapping(area.cast::<u8>().add(160), xmm, 256);
            hindsight_glue::load_area(&self.area);
        }
        let left = self.spin(cpu, queue, target, host);
        // SAFETY: an area with a valid header; the instruction only reads registers.
        unsafe {
            std::arch::asm!("xsave64 [{}]", in(reg) area, in("eax") COMPONENTS as u32, in("edx") 0, options(nostack));
        }
        float.restore(avx);
        // The context block has the low halves of xmm0 to xmm15.
        self.area.0[512] |= 2;
        // SAFETY: as above.
        unsafe {
            let xmm = (&raw const (*cpu.window.ctx_ptr()).xmm).cast::<u8>();
            std::ptr::copy_nonoverlapping(xmm, area.cast::<u8>().add(160), 256);
        }
        if let Some(aside) = &mut self.aside {
            aside.take_back(&cpu.window.ctx().high);
        }
        left
    }

    /// The inner loop: runs translated code and applies patches until something else is due.
    ///
    /// The guest's vector state stays in the processor all the time. Here nothing may use vector registers
    /// beyond the low halves of xmm0 to xmm15, which `enter` loads and stores. The C library's memory
    /// functions do use them. So nothing here may call it: no allocation, and no copy of variable length.
    // Long: its state is in local variables, so that the loop around translated code keeps them in registers.
    #[inline(never)]
    fn spin(&mut self, cpu: &mut Cpu, queue: &mut Queue, target: u64, host: &Prepared) -> Left {
        const {
            assert!(
                !cfg!(target_feature = "avx"),
                "replay must be compiled for the x86-64 baseline: this function must leave ymm registers alone"
            );
        }
        let ctx = cpu.window.ctx_ptr();
        let marks = cpu.window.has_marks().then(|| cpu.window.read_marks_base());
        if cpu.log.is_some() != (cpu.marking == Observe::Runs) {
            return Left::Wrong("it logs, and there is no log");
        }
        let base = self.cache.base();
        let size = self.cache.range().end - base - Desc::LONG as u64;
        // The instruction was already announced as one that may write to watched memory.
        let announced = self.translator.watch.is_some() && cpu.has_passed();
        let mut key = Key {
            pc: cpu.rip,
            limit: if announced { Key::UNWATCHED } else { 0 },
        };
        loop {
            let Some(next) = queue.peek() else {
                return Left::Events;
            };
            if cpu.pos >= target {
                return Left::Events;
            }
            if cpu.at_break() {
                return Left::Break;
            }
            if next.pos <= cpu.pos {
                match next.op {
                    Op::Word(addr, value) if next.pos == cpu.pos => {
                        cpu.window.give_word_prepared(addr, value);
                    }
                    Op::Bytes(addr, len, value) if next.pos == cpu.pos => {
                        cpu.window.give_bytes_prepared(addr, len, value);
                    }
                    _ => return Left::Events,
                }
                queue.advance();
                continue;
            }
            // While the counter is negative, its upper half must be all ones.
            let mut limit = next.pos.min(target).min(cpu.pos.saturating_add(FAR));
            if next.changes_code && limit == next.pos {
                // The last instruction before the change runs alone. Otherwise the check of the budget behind
                // it might change flags that only the new code needs.
                match self.resume {
                    Some((_, counter)) if counter >= limit => {}
                    None if limit - cpu.pos == 1 => key.limit = key.limit.max(1),
                    _ => limit -= 1,
                }
            }
            let (entry, counter) = match self.resume.take() {
                Some(r) => r,
                None => {
                    let Some((id, entry)) = self.cache.find(key) else {
                        if !self.translator.atomics
                            && let Some(aside) = &mut self.aside
                            && aside.run_apart(cpu, limit - cpu.pos)
                        {
                            key = Key {
                                pc: cpu.rip,
                                limit: 0,
                            };
                            (self.link, self.lookup) = (None, false);
                            continue;
                        }
                        return Left::Translate(key);
                    };
                    // A stop must be seen each time, so nothing may lead around this loop to its address.
                    if key.limit == 0 && !cpu.breaks_at(key.pc) {
                        if let Some(patch) = self.link.take() {
                            if !self.cache.can_link() {
                                return Left::Link(patch, id);
                            }
                            if !self.cache.link(patch, id) {
                                return Left::Wrong(OUT_OF_BOUNDS);
                            }
                        }
                        if std::mem::take(&mut self.lookup) {
                            cpu.window.ctx_mut().ibl[table::CHECKED].set(key.pc, entry, false);
                        }
                    }
                    (entry, cpu.pos)
                }
            };
            // SAFETY: the context is this window's, and `Prepared` set the GS base. The entry is a block, or
            // an address in one at which to resume. Replayed code touches only the window and its access
            // marks.
            let (desc, count) = unsafe {
                (*ctx).count = counter.wrapping_sub(limit).wrapping_sub(1);
                (*ctx).resume = entry;
                match (marks, &cpu.log) {
                    (Some(at), _) => host.enter_marking(ctx, at),
                    (None, Some(log)) => host.enter_marking(ctx, log.fs_base(limit)),
                    (None, None) => hindsight_glue::enter(ctx),
                }
                if let Some(fault) = host.take_fault() {
                    let counter = (*ctx).count.wrapping_add(limit).wrapping_add(1);
                    return Left::Fault(fault, counter);
                }
                let offset = (*ctx).desc;
                if offset > size && offset != Desc::NOT_FOUND {
                    return Left::Wrong("a descriptor out of bounds");
                }
                (Desc::of_exit(base, offset), (*ctx).count)
            };
            let counter = count.wrapping_add(limit).wrapping_add(1);
            let pos = counter.wrapping_sub(desc.ahead as u64);
            if counter > limit || pos < cpu.pos || pos > limit {
                return Left::Wrong("the counter passed its limit");
            }
            let stuck = pos == cpu.pos && key.limit != 0;
            cpu.pos = pos;
            match desc.kind() {
                DescKind::Exit => {
                    cpu.rip = desc.pc;
                    // Behind a limited block another block is needed.
                    self.link = (key.limit == 0 && desc.patch != 0).then_some(desc.patch);
                    self.lookup = false;
                    key = Key {
                        pc: desc.pc,
                        limit: 0,
                    };
                }
                DescKind::Indirect => {
                    // SAFETY: no translated code is running.
                    cpu.rip = unsafe { (*ctx).rip };
                    self.link = None;
                    self.lookup = true;
                    key = Key {
                        pc: cpu.rip,
                        limit: 0,
                    };
                }
                DescKind::Budget => {
                    if stuck {
                        return Left::Wrong("a limited block does not fit its limit");
                    }
                    cpu.rip = desc.pc;
                    self.link = None;
                    self.lookup = false;
                    if cpu.near && limit == target {
                        return Left::Near;
                    }
                    key = Key {
                        pc: desc.pc,
                        limit: (limit - pos).min(u16::MAX as u64) as u32,
                    };
                }
                _ => {
                    cpu.rip = desc.pc;
                    self.link = None;
                    self.lookup = false;
                    return Left::Slow(desc);
                }
            }
        }
    }

    /// Executes an instruction that translated code leaves to the runtime. No event is due at it.
    fn slow(&mut self, cpu: &mut Cpu, desc: &Desc) -> Result<(), Error> {
        let counter = cpu.pos + desc.ahead as u64;
        match desc.kind() {
            DescKind::Slow => {}
            DescKind::PreCheck => {
                self.mark_all(cpu, &desc.bytes[..(desc.ilen as usize).min(15)]);
                self.resume = Some((self.cache.base() + desc.resume as u64, counter));
                return Ok(());
            }
            DescKind::Syscall => return Err(cpu.difference("no event", "a system call")),
            DescKind::Raise => {
                return Err(match desc.size {
                    hindsight_isa::desc::raise::UNSUPPORTED => match self.refusals.get(&cpu.rip) {
                        Some(refusal) => cpu.unsupported(refusal.to_string()),
                        None => cpu.unsupported("not supported"),
                    },
                    n => cpu.difference(
                        "no event",
                        format!("an instruction that raises exception {n}"),
                    ),
                });
            }
            _ => return Err(cpu.unsupported("an exit that does not belong to replay")),
        }
        let bytes = &desc.bytes[..(desc.ilen as usize).min(15)];
        slow::execute(self, cpu, bytes)?;
        let resume = (self.cache.base() + desc.resume as u64, counter);
        cpu.complete(bytes.len() as u64);
        cpu.take_jumped();
        self.lose_way();
        // No event can be due within the segment, so the limit is unchanged.
        if cpu.pos < counter {
            self.resume = Some(resume);
        }
        Ok(())
    }

    /// Sets marks for the accesses of the next instruction, which is in `bytes`.
    fn mark_all(&mut self, cpu: &mut Cpu, bytes: &[u8]) {
        let (regs, vec) = (cpu.registers(), self.vectors());
        let mut list = Vec::new();
        let window = &cpu.window;
        let held = |at: u64, buf: &mut [u8]| window.read(at, buf);
        (self.finder).find_in(bytes, (&regs, &vec), &regs, &held, &mut list);
        for a in list {
            let w = &mut cpu.window;
            if a.read {
                w.set_marks(AccessKind::Reads, a.address, a.len, observe::MARK);
            }
            if a.unknown {
                w.unknown(a.address, a.len);
            } else if a.write {
                w.set_marks(AccessKind::Writes, a.address, a.len, observe::MARK);
            }
        }
    }
}

fn wrong(cpu: &Cpu, what: &str) -> Error {
    cpu.unsupported(format!("translated code is wrong: {what}"))
}

impl Processor for Native {
    fn enter(&mut self, cpu: &mut Cpu) -> Result<(), Error> {
        if self.held.as_ref().is_none_or(|h| h.get().is_none()) {
            self.host = Some(self.prepare(cpu)?);
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.host = None;
    }

    fn hold(&mut self, cpu: &mut Cpu) -> Result<(), Error> {
        if self.held.is_none() {
            self.held = Some(self.prepare(cpu)?);
        }
        Ok(())
    }

    fn release(&mut self) {
        self.held = None;
    }

    fn run(&mut self, cpu: &mut Cpu, queue: &mut Queue, target: u64) -> Result<bool, Error> {
        // Out of `self`, which the run changes. A panic then also restores the thread.
        let (host, held) = (self.host.take(), self.held.take());
        let prepared = host.as_ref().or(held.as_ref()).and_then(Held::get);
        let done = match prepared {
            Some(p) => self.run_in(cpu, queue, target, p),
            None => Err(cpu.unsupported("the thread is not prepared")),
        };
        (self.host, self.held) = (host, held);
        done
    }

    fn vectors(&self) -> VecState {
        let mut v = self.layout.to_state(&self.area);
        if let Some(aside) = &self.aside {
            aside.complete(&self.layout, &mut v);
        }
        v
    }

    fn set_vectors(&mut self, v: &VecState) {
        // XRSTOR would fault on reserved bits.
        let v = VecState {
            mxcsr: v.mxcsr & 0xffff,
            ..*v
        };
        self.layout.from_state(&v, &mut self.area);
        if let Some(aside) = &mut self.aside {
            aside.set_vectors(&v);
        }
    }

    fn set_epoch(&mut self, cpu: &mut Cpu, epoch: u64) {
        if !self.cache.is_empty() {
            for page in cpu.code.changed(cpu.epoch, epoch) {
                self.cache.drop_page(page, cpu.window.ctx_mut());
            }
        }
        if let Some(aside) = &mut self.aside {
            aside.interpreted.change_epoch(cpu, epoch);
            aside.forget();
        }
        cpu.epoch = epoch;
        self.translator.refused.clear();
        self.lose_way();
    }

    fn set_code(&mut self, cpu: &mut Cpu, code: Arc<Code>) {
        if !Arc::ptr_eq(&cpu.code, &code) {
            let old = std::mem::replace(&mut cpu.code, code);
            self.translator.refused.clear();
            let (new, epoch) = (&cpu.code, cpu.epoch);
            if let Some(aside) = &mut self.aside {
                aside.interpreted.change_code(&old, new, epoch);
                aside.forget();
            }
            self.cache
                .keep_pages(cpu.window.ctx_mut(), |page| new.covers(&old, page, epoch));
            self.lose_way();
        }
    }

    fn set_breaks(&mut self, cpu: &mut Cpu, breaks: Vec<u64>) {
        self.translator.breaks.clone_from(&breaks);
        let old = cpu.replace_breaks(breaks);
        let new = cpu.breaks();
        let one = |a: &[u64], b: &u64| a.binary_search(b).is_err();
        let changed = old
            .iter()
            .filter(|a| one(new, a))
            .chain(new.iter().filter(|a| one(&old, a)));
        let mut any = false;
        for page in changed.map(|a| a / PAGE * PAGE).collect::<Vec<_>>() {
            // A block that reaches across the end of a page belongs to both pages.
            self.cache.drop_page(page, cpu.window.ctx_mut());
            any = true;
        }
        if any {
            self.lose_way();
        }
    }

    fn watch(&mut self, table: Option<u64>) {
        self.translator.atomics = true;
        self.translator.watch = table;
    }

    fn count(&mut self) {
        self.translator.count = true;
    }

    fn counted(&self, cpu: &Cpu) -> Executed {
        cpu.window.ctx().executed
    }

    fn share(&mut self, cpu: &Cpu, library: Arc<Library>) {
        library.serve(cpu.marking);
        self.library = Some(library);
    }
}

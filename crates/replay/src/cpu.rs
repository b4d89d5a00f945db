//! One virtual processor: registers, window, translation cache, and the loop that runs translated code
//! between events.

mod registers;

use crate::access::Finder;
use crate::cache::{Cache, Key};
use crate::code::Code;
use crate::host::{Fault, HostFloat, Prepared, SignalStack};
use crate::library::Library;
use crate::queue::{Op, Queue};
use crate::window::{AccessKind, Window};
use crate::{Difference, Error};
use hindsight_confine::{Checker, Refusal};
use hindsight_isa::ctx::table;
use hindsight_isa::xsave::{Area, COMPONENTS, Layout};
use hindsight_isa::{Desc, DescKind, Executed, Predictor, observe};
use hindsight_translate::{Mode, Policy, Translator};
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

/// Whether and where a processor sets access marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observe {
    Not,
    Anywhere,
    /// See [`Window::observed_near`].
    Near,
}

/// The state of a virtual processor and everything that runs it.
pub(crate) struct Cpu {
    pub code: Arc<Code>,
    pub window: Window,
    pub cache: Cache,
    pub translator: Translator,
    pub library: Option<Arc<Library>>,
    pub(crate) checker: Checker,
    /// Why the translation of the instruction at an address was refused.
    pub(crate) refusals: HashMap<u64, Refusal>,
    area: Box<Area>,
    layout: Layout,
    pub rip: u64,
    pub pos: u64,
    pub epoch: u64,
    /// A host address to continue at instead of `rip`, and the counter there as a position.
    resume: Option<(u64, u64)>,
    /// A displacement that leads to `rip` and is not linked yet.
    link: Option<u32>,
    /// An indirect branch led to `rip`, and the lookup table did not have it.
    lookup: bool,
    stack: SignalStack,
    finder: Finder,
    /// Position and address of the instruction at which the run must not stop again.
    passed: Option<(u64, u64)>,
    /// Number of instructions that were run.
    pub executed: u64,
    watched: bool,
    /// A run may end before its target if the last part would need a block of its own.
    pub near: bool,
}

impl Cpu {
    /// Makes a processor. `observe` says which access marks it sets.
    pub fn new(code: Arc<Code>, predictor: Predictor, observe: Observe) -> Result<Cpu, Error> {
        let Some(layout) = Layout::detect() else {
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
        let window = match observe {
            Observe::Not => Window::new(predictor)?,
            Observe::Anywhere => Window::observed()?,
            Observe::Near => Window::observed_near()?,
        };
        translator.observe = observe != Observe::Not;
        translator.near = window.is_near();
        Ok(Cpu {
            code,
            window,
            cache: Cache::new()?,
            translator,
            library: None,
            checker: Checker::new(),
            refusals: HashMap::new(),
            finder: Finder::new(),
            area: Box::default(),
            layout,
            rip: 0,
            pos: 0,
            epoch: 0,
            resume: None,
            link: None,
            lookup: false,
            stack: SignalStack::new(),
            passed: None,
            executed: 0,
            watched: false,
            near: false,
        })
    }

    /// Which access marks the processor sets.
    pub fn marking(&self) -> Observe {
        match (self.translator.observe, self.translator.near) {
            (false, _) => Observe::Not,
            (true, false) => Observe::Anywhere,
            (true, true) => Observe::Near,
        }
    }

    /// Executes `code` from now on. Blocks of pages that are the same in it stay.
    pub fn set_code(&mut self, code: Arc<Code>) {
        if !Arc::ptr_eq(&self.code, &code) {
            let old = std::mem::replace(&mut self.code, code);
            self.translator.refused.clear();
            let (new, epoch) = (&self.code, self.epoch);
            self.cache
                .keep_pages(self.window.ctx_mut(), |page| new.covers(&old, page, epoch));
            self.jump(self.rip);
        }
    }

    /// Stops before instructions at these addresses (ascending) from now on.
    pub fn set_breaks(&mut self, breaks: Vec<u64>) {
        let old = std::mem::replace(&mut self.translator.breaks, breaks);
        let new = &self.translator.breaks;
        let one = |a: &[u64], b: &u64| a.binary_search(b).is_err();
        let changed = old
            .iter()
            .filter(|a| one(new, a))
            .chain(new.iter().filter(|a| one(&old, a)));
        let mut any = false;
        for page in changed.map(|a| a / PAGE * PAGE).collect::<Vec<_>>() {
            // A block that reaches across the end of a page belongs to both pages.
            self.cache.drop_page(page, self.window.ctx_mut());
            any = true;
        }
        if any {
            // `link` and `resume` may refer to dropped blocks.
            self.jump(self.rip);
        }
    }

    /// Stops before atomic operations. With a table, also stops before instructions that may write to memory
    /// in it (see the translator). To be called before anything is played.
    pub fn watch(&mut self, table: Option<u64>) {
        self.translator.atomics = true;
        self.translator.watch = table;
    }

    /// Whether the last run ended before an instruction that may write to watched memory.
    pub fn take_watched(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// Does not stop before the next instruction if it comes at this position.
    pub fn pass(&mut self) {
        self.passed = Some((self.pos, self.rip));
    }

    /// Undoes [`Cpu::pass`].
    pub fn look_again(&mut self) {
        self.passed = None;
    }

    /// Whether to stop before the next instruction.
    #[inline(always)]
    pub fn at_break(&self) -> bool {
        !self.translator.breaks.is_empty()
            && self.passed != Some((self.pos, self.rip))
            && self.translator.breaks.binary_search(&self.rip).is_ok()
    }

    /// The code epoch at present.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Prepares this thread to run translated code.
    pub fn prepare(&mut self) -> Result<Prepared, Error> {
        Prepared::new(&mut self.window, self.cache.range(), &mut self.stack)
    }

    /// Copies the known code bytes at the current instruction. Returns their number, at least 1.
    pub fn fetch(&self, buf: &mut [u8]) -> Result<usize, Error> {
        match self.code.fetch(self.rip, self.epoch, buf) {
            0 => Err(self.missing_code()),
            n => Ok(n),
        }
    }

    /// Copies the known code bytes at `addr`. Returns their number.
    pub fn code_at(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.code.fetch(addr, self.epoch, buf)
    }

    pub fn missing_code(&self) -> Error {
        Error::MissingCode {
            position: self.pos,
            pc: self.rip,
        }
    }

    /// Makes the processor count what [`Cpu::executed`] returns. To be called before anything is played.
    pub fn count(&mut self) {
        self.translator.count = true;
    }

    /// What all runs have executed so far.
    pub fn executed(&self) -> Executed {
        self.window.ctx().executed
    }

    /// From here on, executes the code of this epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        if !self.cache.is_empty() {
            for page in self.code.changed(self.epoch, epoch) {
                self.cache.drop_page(page, self.window.ctx_mut());
            }
        }
        self.epoch = epoch;
        self.translator.refused.clear();
        // `link` and `resume` may refer to dropped blocks.
        self.jump(self.rip);
    }

    pub fn difference(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Difference(Box::new(Difference {
            position: self.pos,
            pc: self.rip,
            expected: expected.into(),
            found: found.into(),
            unread: false,
        }))
    }

    /// The same for memory that the program may never have read.
    pub fn unread(&self, expected: String, found: String) -> Error {
        Error::Difference(Box::new(Difference {
            position: self.pos,
            pc: self.rip,
            expected,
            found,
            unread: true,
        }))
    }

    pub fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Unsupported {
            position: self.pos,
            pc: self.rip,
            what: what.into(),
        }
    }

    /// Runs until position `target`, an event that is not a patch, or the end of the prepared entries.
    /// Applies patches on the way. `false`: it stopped near the target.
    pub fn run(&mut self, queue: &mut Queue, target: u64, host: &Prepared) -> Result<bool, Error> {
        loop {
            let before = self.pos;
            let left = self.inner(queue, target, host);
            self.executed += self.pos.saturating_sub(before);
            match left {
                Left::Events | Left::Break => return Ok(true),
                Left::Near => return Ok(false),
                Left::Translate(key) => self.translate(key)?,
                Left::Link(patch, id) => {
                    self.cache.reserve_links();
                    if !self.cache.link(patch, id) {
                        return Err(self.wrong(OUT_OF_BOUNDS));
                    }
                }
                Left::Slow(desc) if desc.kind() == DescKind::Watch => {
                    self.watched = true;
                    return Ok(true);
                }
                Left::Slow(desc) => self.slow(&desc)?,
                Left::Fault(fault, counter) => return Err(self.fault(fault, counter)),
                Left::Wrong(what) => return Err(self.wrong(what)),
            }
        }
    }

    fn wrong(&self, what: &str) -> Error {
        self.unsupported(format!("translated code is wrong: {what}"))
    }

    /// Runs the inner loop with the guest's vector state in the processor.
    fn inner(&mut self, queue: &mut Queue, target: u64, host: &Prepared) -> Left {
        let float = HostFloat::save();
        let avx = self.layout.mask & 4 != 0;
        let area = &raw mut self.area.0;
        // SAFETY: both hold sixteen registers of sixteen bytes; XMM state begins at offset 160. XSAVE or
        // `from_state` has filled the area.
        unsafe {
            let xmm = (&raw mut (*self.window.ctx_ptr()).xmm).cast::<u8>();
            std::ptr::copy_nonoverlapping(area.cast::<u8>().add(160), xmm, 256);
            hindsight_glue::load_area(&self.area);
        }
        let left = self.spin(queue, target, host);
        // SAFETY: an area with a valid header; the instruction only reads registers.
        unsafe {
            std::arch::asm!("xsave64 [{}]", in(reg) area, in("eax") COMPONENTS as u32, in("edx") 0, options(nostack));
        }
        float.restore(avx);
        // The context block has the low halves of xmm0 to xmm15.
        self.area.0[512] |= 2;
        // SAFETY: as above.
        unsafe {
            let xmm = (&raw const (*self.window.ctx_ptr()).xmm).cast::<u8>();
            std::ptr::copy_nonoverlapping(xmm, area.cast::<u8>().add(160), 256);
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
    fn spin(&mut self, queue: &mut Queue, target: u64, host: &Prepared) -> Left {
        const {
            assert!(
                !cfg!(target_feature = "avx"),
                "replay must be compiled for the x86-64 baseline: this function must leave ymm registers alone"
            );
        }
        let ctx = self.window.ctx_ptr();
        let marks = self
            .window
            .has_marks()
            .then(|| self.window.read_marks_base());
        let base = self.cache.base();
        let size = self.cache.range().end - base - Desc::LONG as u64;
        // The instruction was already announced as one that may write to watched memory.
        let announced =
            self.translator.watch.is_some() && self.passed == Some((self.pos, self.rip));
        let mut key = Key {
            pc: self.rip,
            limit: if announced { Key::UNWATCHED } else { 0 },
        };
        loop {
            let Some(next) = queue.peek() else {
                return Left::Events;
            };
            if self.pos >= target {
                return Left::Events;
            }
            if self.at_break() {
                return Left::Break;
            }
            if next.pos <= self.pos {
                match next.op {
                    Op::Word(addr, value) if next.pos == self.pos => {
                        self.window.give_word(addr, value);
                    }
                    Op::Bytes(addr, len, value) if next.pos == self.pos => {
                        self.window.give_bytes(addr, len, value);
                    }
                    _ => return Left::Events,
                }
                queue.advance();
                continue;
            }
            // While the counter is negative, its upper half must be all ones.
            let mut limit = next.pos.min(target).min(self.pos.saturating_add(FAR));
            if next.changes_code && limit == next.pos {
                // The last instruction before the change runs alone. Otherwise the check of the budget behind
                // it might change flags that only the new code needs.
                match self.resume {
                    Some((_, counter)) if counter >= limit => {}
                    None if limit - self.pos == 1 => key.limit = key.limit.max(1),
                    _ => limit -= 1,
                }
            }
            let (entry, counter) = match self.resume.take() {
                Some(r) => r,
                None => {
                    let Some((id, entry)) = self.cache.find(key) else {
                        return Left::Translate(key);
                    };
                    // A stop must be seen each time, so nothing may lead around this loop to its address.
                    if key.limit == 0 && !self.breaks_at(key.pc) {
                        if let Some(patch) = self.link.take() {
                            if !self.cache.can_link() {
                                return Left::Link(patch, id);
                            }
                            if !self.cache.link(patch, id) {
                                return Left::Wrong(OUT_OF_BOUNDS);
                            }
                        }
                        if std::mem::take(&mut self.lookup) {
                            self.window.ctx_mut().ibl[table::CHECKED].set(key.pc, entry, false);
                        }
                    }
                    (entry, self.pos)
                }
            };
            // SAFETY: the context is this window's, and `Prepared` set the GS base. The entry is a block, or
            // an address in one at which to resume. Replayed code touches only the window and its access
            // marks.
            let (desc, count) = unsafe {
                (*ctx).count = counter.wrapping_sub(limit).wrapping_sub(1);
                (*ctx).resume = entry;
                match marks {
                    Some(at) => host.enter_marking(ctx, at),
                    None => hindsight_glue::enter(ctx),
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
            if counter > limit || pos < self.pos || pos > limit {
                return Left::Wrong("the counter passed its limit");
            }
            let stuck = pos == self.pos && key.limit != 0;
            self.pos = pos;
            match desc.kind() {
                DescKind::Exit => {
                    self.rip = desc.pc;
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
                    self.rip = unsafe { (*ctx).rip };
                    self.link = None;
                    self.lookup = true;
                    key = Key {
                        pc: self.rip,
                        limit: 0,
                    };
                }
                DescKind::Budget => {
                    if stuck {
                        return Left::Wrong("a limited block does not fit its limit");
                    }
                    self.rip = desc.pc;
                    self.link = None;
                    self.lookup = false;
                    if self.near && limit == target {
                        return Left::Near;
                    }
                    key = Key {
                        pc: desc.pc,
                        limit: (limit - pos).min(u16::MAX as u64) as u32,
                    };
                }
                _ => {
                    self.rip = desc.pc;
                    self.link = None;
                    self.lookup = false;
                    return Left::Slow(desc);
                }
            }
        }
    }

    fn breaks_at(&self, pc: u64) -> bool {
        self.translator.breaks.binary_search(&pc).is_ok()
    }

    /// Executes an instruction that translated code leaves to the runtime. No event is due at it.
    fn slow(&mut self, desc: &Desc) -> Result<(), Error> {
        let counter = self.pos + desc.ahead as u64;
        match desc.kind() {
            DescKind::Slow => {}
            DescKind::PreCheck => {
                self.mark_all(&desc.bytes[..(desc.ilen as usize).min(15)]);
                self.resume = Some((self.cache.base() + desc.resume as u64, counter));
                return Ok(());
            }
            DescKind::Syscall => return Err(self.difference("no event", "a system call")),
            DescKind::Raise => {
                return Err(match desc.size {
                    hindsight_isa::desc::raise::UNSUPPORTED => match self.refusals.get(&self.rip) {
                        Some(refusal) => self.unsupported(refusal.to_string()),
                        None => self.unsupported("not supported"),
                    },
                    n => self.difference(
                        "no event",
                        format!("an instruction that raises exception {n}"),
                    ),
                });
            }
            _ => return Err(self.unsupported("an exit that does not belong to replay")),
        }
        let bytes = &desc.bytes[..(desc.ilen as usize).min(15)];
        crate::slow::execute(self, bytes)?;
        let resume = (self.cache.base() + desc.resume as u64, counter);
        self.complete(bytes.len() as u64);
        // No event can be due within the segment, so the limit is unchanged.
        if self.pos < counter {
            self.resume = Some(resume);
        }
        Ok(())
    }

    /// Sets access marks, if the processor sets any.
    pub fn mark(&mut self, kind: AccessKind, addr: u64, len: usize) {
        if self.window.has_marks() {
            self.window.set_marks(kind, addr, len as u64, observe::MARK);
        }
    }

    /// Sets marks for the accesses of the next instruction, which is in `bytes`.
    fn mark_all(&mut self, bytes: &[u8]) {
        let (cpu, vec) = (self.registers(), self.vectors());
        let mut list = Vec::new();
        let window = &self.window;
        let held = |at: u64, buf: &mut [u8]| window.read(at, buf);
        (self.finder).find_in(bytes, (&cpu, &vec), &cpu, &held, &mut list);
        for a in list {
            let w = &mut self.window;
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

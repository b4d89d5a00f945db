//! One virtual processor: registers, window, code cache, and the loop that runs translated code
//! between events.

mod registers;

use crate::access::Finder;
use crate::cache::{Cache, Key};
use crate::code::Code;
use crate::host::{Fault, HostFloat, Prepared, SignalStack};
use crate::library::Library;
use crate::queue::{Op, Queue};
use crate::window::{Marks, Window};
use crate::{Difference, Error};
use hindsight_confine::{Checker, Refusal};
use hindsight_isa::ctx::table;
use hindsight_isa::xsave::{Area, COMPONENTS, Layout};
use hindsight_isa::{Desc, DescKind, Executed, Predictor, observe};
use hindsight_translate::{Mode, Policy, Translator};
use std::collections::HashMap;
use std::sync::Arc;

const PAGE: u64 = 4096;
/// Most instructions for which translated code is entered.
const FAR: u64 = 1 << 31;

const OUT_OF_BOUNDS: &str = "a link out of bounds";

/// Why the inner loop was left.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// The target, an event that is no patch, or the end of what is prepared.
    Events,
    Translate(Key),
    /// A displacement leads to this block and can be linked, for which there is no memory at hand.
    Link(u32, u32),
    Slow(Desc),
    /// A fault, and the counter as a position.
    Fault(Fault, u64),
    /// The next instruction is one to stop before.
    Break,
    /// The target is near enough.
    Near,
    /// Translated code did what it must not do.
    Wrong(&'static str),
}

/// Whether and where a processor marks what it accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observe {
    Not,
    Anywhere,
    /// See [`Window::observed_near`].
    Near,
}

/// The state of a virtual processor, and everything needed to run it.
pub(crate) struct Cpu {
    pub code: Arc<Code>,
    pub window: Window,
    pub cache: Cache,
    pub translator: Translator,
    pub library: Option<Arc<Library>>,
    pub(crate) checker: Checker,
    /// What was wrong with the translation of the instruction at an address.
    pub(crate) refusals: HashMap<u64, Refusal>,
    area: Box<Area>,
    layout: Layout,
    pub rip: u64,
    pub pos: u64,
    pub epoch: u64,
    /// Continue here, with the counter at this position, instead of at `rip`.
    resume: Option<(u64, u64)>,
    /// A displacement that leads to `rip` and has not been linked.
    link: Option<u32>,
    /// `rip` was reached by an indirect branch whose target was not in the table.
    lookup: bool,
    stack: SignalStack,
    finder: Finder,
    /// Position and address of the instruction that is not to be stopped before again.
    passed: Option<(u64, u64)>,
    /// Sum of the instructions run.
    pub executed: u64,
    watched: bool,
    /// A run may end before its target where no whole segment comes before it.
    pub near: bool,
}

impl Cpu {
    /// With `observe` all accesses are marked.
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

    /// How accesses are marked.
    pub fn marking(&self) -> Observe {
        match (self.translator.observe, self.translator.near) {
            (false, _) => Observe::Not,
            (true, false) => Observe::Anywhere,
            (true, true) => Observe::Near,
        }
    }

    /// Executes other code from now on. Blocks of pages that are the same in it are kept.
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
            // A block that reaches over the page's end is known by both.
            self.cache.drop_page(page, self.window.ctx_mut());
            any = true;
        }
        if any {
            // What `link` and `resume` name may be gone.
            self.jump(self.rip);
        }
    }

    /// Stops before atomic operations and, if there is a table, before what may write to places in it
    /// (see the translator). Before anything is played.
    pub fn watch(&mut self, table: Option<u64>) {
        self.translator.atomics = true;
        self.translator.watch = table;
    }

    /// Whether the last run ended before an instruction that may write to a watched place.
    pub fn take_watched(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// Does not stop before the instruction that comes next, if it comes at this position.
    pub fn pass(&mut self) {
        self.passed = Some((self.pos, self.rip));
    }

    /// Takes [`Cpu::pass`] back.
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

    /// As of when the code is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Prepares this thread to run translated code.
    pub fn prepare(&mut self) -> Result<Prepared, Error> {
        Prepared::new(&mut self.window, self.cache.range(), &mut self.stack)
    }

    /// Code bytes at the current instruction, as far as known; at least one.
    pub fn fetch(&self, buf: &mut [u8]) -> Result<usize, Error> {
        match self.code.fetch(self.rip, self.epoch, buf) {
            0 => Err(self.missing_code()),
            n => Ok(n),
        }
    }

    /// Code bytes at `addr`, as far as known.
    pub fn code_at(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.code.fetch(addr, self.epoch, buf)
    }

    pub fn missing_code(&self) -> Error {
        Error::MissingCode {
            position: self.pos,
            pc: self.rip,
        }
    }

    /// Counts what [`Cpu::executed`] says. Before anything is played.
    pub fn count(&mut self) {
        self.translator.count = true;
    }

    /// What has been executed so far in all runs.
    pub fn executed(&self) -> Executed {
        self.window.ctx().executed
    }

    /// Code is from here on as of this epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        if !self.cache.is_empty() {
            for page in self.code.changed(self.epoch, epoch) {
                self.cache.drop_page(page, self.window.ctx_mut());
            }
        }
        self.epoch = epoch;
        self.translator.refused.clear();
        // What `link` and `resume` name may be gone.
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

    /// The same about memory that need not have been read.
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

    /// Runs until position `target`, an event that is no patch, or the end of the queue's prepared
    /// entries. Patches on the way are applied. Whether it went as far as it was to.
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
        // SAFETY: both hold sixteen times sixteen bytes; XMM state begins at offset 160. The area is
        // one that XSAVE or `from_state` has filled.
        unsafe {
            let xmm = (&raw mut (*self.window.ctx_ptr()).xmm).cast::<u8>();
            std::ptr::copy_nonoverlapping(area.cast::<u8>().add(160), xmm, 256);
            hindsight_glue::load_area(&self.area);
        }
        let left = self.spin(queue, target, host);
        // SAFETY: an area with a valid header; the registers are only read.
        unsafe {
            std::arch::asm!("xsave64 [{}]", in(reg) area, in("eax") COMPONENTS as u32, in("edx") 0, options(nostack));
        }
        float.restore(avx);
        // The low halves of xmm0 to xmm15 are in the context block.
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
    /// The guest's vector state stays in the processor throughout. Nothing in here may use vector
    /// registers beyond the low halves of xmm0 to xmm15, which `enter` loads and stores; so nothing
    /// may call the C library, whose memory functions do: no allocation, no copy of any length.
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
        // An instruction that was announced as one that may write watched memory is not again.
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
            // The counter's upper half must be all ones as long as it is negative.
            let mut limit = next.pos.min(target).min(self.pos.saturating_add(FAR));
            if next.changes_code && limit == next.pos {
                // The last instruction before goes alone: a look at the budget of what comes behind might
                // change flags that only the new code needs.
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
                    // What leads to a place to stop at has to come here each time.
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
            // SAFETY: the context is this window's; the GS base was set by `Prepared`; the entry is
            // a block or a place to resume in one; replayed code touches only the window and its marks.
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
                    // What leaves a limited block will not fit the limit either.
                    self.link = (key.limit == 0 && desc.patch != 0).then_some(desc.patch);
                    self.lookup = false;
                    key = Key {
                        pc: desc.pc,
                        limit: 0,
                    };
                }
                DescKind::Indirect => {
                    // SAFETY: no translated code runs now.
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

    /// Handles an instruction that translated code does not execute. No event is due at it.
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
        // Within the segment no event can be due, so the limit stays as it was.
        if self.pos < counter {
            self.resume = Some(resume);
        }
        Ok(())
    }

    /// Marks memory, if accesses are marked.
    pub fn mark(&mut self, marks: Marks, addr: u64, len: usize) {
        if self.window.has_marks() {
            self.window
                .set_marks(marks, addr, len as u64, observe::MARK);
        }
    }

    /// Marks what the instruction in `bytes`, which comes next, accesses.
    fn mark_all(&mut self, bytes: &[u8]) {
        let (cpu, vec) = (self.registers(), self.vectors());
        let mut list = Vec::new();
        let window = &self.window;
        let held = |at: u64, buf: &mut [u8]| window.read(at, buf);
        (self.finder).find_in(bytes, (&cpu, &vec), &cpu, &held, &mut list);
        for a in list {
            let w = &mut self.window;
            if a.read {
                w.set_marks(Marks::Reads, a.address, a.len, observe::MARK);
            }
            if a.unknown {
                w.unknown(a.address, a.len);
            } else if a.write {
                w.set_marks(Marks::Writes, a.address, a.len, observe::MARK);
            }
        }
    }
}

//! One recorded thread: its context block, predictor window, register state and event stream.

pub mod borrowers;
pub mod call;
pub mod clone;
pub mod end;
pub mod filter_list;
pub mod forbidden;
pub mod gap;
pub mod inbox;
pub mod owners;
pub mod pass;
pub mod pending;
pub mod plan;
pub mod rseq;
pub mod selection;
pub mod shared_pages;
pub mod signal_actions;
pub mod signal_state;
pub mod threads;
pub mod timing;
pub mod trap_flag;

mod slot;

use slot::{FREE, map_shared};
pub use slot::{SHARED, STACK, ThreadSlot, all as all_slots, hold, set_first_stack};

use crate::stream::ring::Emitter;
use crate::sys::lock::Lock;
use crate::sys::{self, config};
use crate::thread::gap::Gap;
use crate::thread::inbox::Inbox;
use crate::thread::shared_pages::SharedPages;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};
use hindsight_events::Event;
use hindsight_events::ring::wish;
use hindsight_events::unborn::Unborn;
use hindsight_isa::ctx::{CTX_SIZE, table};
use hindsight_isa::ibl::LookupTable;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::xsave::{Area, Layout};
use hindsight_isa::{CpuState, Ctx, Predictor, VecState};

/// Ranges longer than this are not cleared in the predictor when they are mapped; what is stale
/// there shows as mispredictions.
pub const ZERO_LIMIT: u64 = 1 << 30;

/// Instructions between key frames per byte of the program's memory.
const KEYFRAME_COST: u64 = 128;

/// What threads do: run the program.
pub type Run = fn(&mut Thread) -> !;

/// A recorded thread. Lives at a fixed address for the thread's whole life; `ctx.runtime` points to it.
pub struct Thread {
    /// The context block below the window.
    pub ctx: &'static mut Ctx,
    /// Address of the first predictor cell.
    pub window: u64,
    pub predictor: Predictor,
    /// Event stream of this thread.
    pub emit: Emitter,
    /// Instructions completed. Current whenever the runtime runs.
    pub pos: u64,
    /// Vector state while it is not in the processor's registers (see [`Thread::area`]).
    area: Area,
    /// Whether zmm31 and k7 belong to the translator; the guest's are in the context block then.
    pub wide_checks: bool,
    pub layout: Layout,
    /// What it does all its life.
    pub run: Run,
    /// What the thread's signal handlers have to say.
    pub inbox: &'static Inbox,
    pub signals: signal_state::State,
    /// Position from which on [`Thread::observe`] has something to do.
    pub next_observation: u64,
    pub next_keyframe: u64,
    pub next_digest: u64,
    /// Code epoch that this thread's stream has announced.
    pub code_epoch: u64,
    /// Reads that differed from their prediction.
    pub mispredictions: u64,
    /// Generation of translated code that the thread has noticed.
    pub generation: u64,
    /// The same for other threads to see; the greatest number while it runs no translated code.
    pub seen: AtomicU64,
    /// Code epoch of which the stream has said that the thread runs it, for other threads to see.
    pub announced: AtomicU64,
    /// Where it lives.
    pub slot: &'static ThreadSlot,
    /// The window has not been touched since it was made or emptied.
    untouched: bool,
    /// Nothing is recorded of it.
    pub is_silent: bool,
    /// It is a process of its own in its parent's memory, until it executes a program or ends.
    pub borrows: bool,
    /// It is such a process, and has no ring yet.
    pub unborn: Option<Unborn>,
    /// A second lock that its atomic operation holds (see [`crate::code::sequence`]).
    pub second: Option<usize>,
    /// Its first act is to set its handlers to the default.
    pub clear_handlers: bool,
    /// Its ring, as long as the thread has not itself ended the stream; otherwise -1.
    pub ring: AtomicI32,
    /// The kernel's number; 0 as long as the thread has not begun.
    pub tid: i32,
    /// Runs plain code: in a gap, or since nothing is recorded at all.
    pub gap: Option<Box<Gap>>,
    /// The memory of the last gap.
    pub spare_gap: Option<Box<Gap>>,
    /// Its reads are not checked (see [`crate::memory::regime`]).
    pub quiet: bool,
    /// The collector may not yet have read files that are in memory.
    pub files_told: bool,
    /// It is quiet, and executes code that is checked all the same.
    pub in_vdso: bool,
    /// Positions from which on the next digests of registers and of output are due while it is quiet.
    pub next_check: u64,
    pub next_passed: u64,
    /// Times that it comes to the runtime between two instructions until that ends; 0: nobody counts.
    pub leaves_after: u64,
    /// What [`crate::stream::ring::meddling`] was when that began.
    pub meddling: u32,
    /// Position at which it was last said what all memory holds.
    pub restated: u64,
    /// Why that is to end as soon as the thread stands between two instructions.
    pub ends_quiet: Option<crate::sys::quiet::Reason>,
    /// Which of its code is wanted.
    pub selection: crate::thread::selection::SelectionState,
    /// How its timing is disturbed.
    pub chaos: crate::thread::timing::State,
    /// Limits that the kernel does not know.
    pub limits: crate::sys::resources::Shared,
    pub forbidden: crate::thread::forbidden::Forbidden,
    /// Filters of system calls that the program has set.
    pub filters: crate::thread::filter_list::Filters,
    /// The area of restartable sequences that the program has registered.
    pub rseq: Option<crate::thread::rseq::Rseq>,
    /// What it is about to execute.
    pub plan: Option<alloc::boxed::Box<crate::thread::plan::Plan>>,
    /// Path of a program that is executed and not recorded.
    pub leaving: Option<alloc::ffi::CString>,
    /// Pages that memory shares with its cells.
    pub shared_pages: SharedPages,
}

impl Thread {
    /// Makes the context block and window of a thread. `Err` is the errno of the failed mapping.
    pub fn make(
        predictor: Predictor,
        emit: Emitter,
        layout: Layout,
        wide_checks: bool,
        run: Run,
    ) -> Result<&'static mut Thread, i32> {
        let slot = ThreadSlot::take(predictor)?;
        let window = slot.window;
        let base = window - CTX_SIZE as u64;
        // SAFETY: a free slot has CTX_SIZE zeroed, writable bytes below the window that nothing else uses.
        let ctx = unsafe { &mut *(base as *mut Ctx) };
        ctx.ibl.iter_mut().for_each(LookupTable::begin);
        ctx.search_ptr = hindsight_glue::searches();
        ctx.exit_ptr = hindsight_glue::exit_address();
        ctx.cell_mask = predictor.size() - 1;
        let t = alloc::boxed::Box::leak(alloc::boxed::Box::new(Thread {
            ctx,
            window,
            predictor,
            emit,
            pos: 0,
            area: Area::default(),
            wide_checks,
            layout,
            run,
            inbox: &slot.inbox,
            signals: signal_state::State::new(),
            next_observation: u64::MAX,
            next_keyframe: u64::MAX,
            next_digest: u64::MAX,
            code_epoch: 0,
            mispredictions: 0,
            generation: crate::sys::generation::present(),
            seen: AtomicU64::new(crate::sys::generation::present()),
            announced: AtomicU64::new(0),
            slot,
            untouched: true,
            is_silent: false,
            borrows: false,
            unborn: None,
            second: None,
            clear_handlers: false,
            ring: AtomicI32::new(-1),
            tid: 0,
            gap: None,
            spare_gap: None,
            quiet: false,
            files_told: false,
            in_vdso: false,
            next_check: 0,
            next_passed: 0,
            leaves_after: 0,
            meddling: 0,
            restated: 0,
            ends_quiet: None,
            selection: crate::thread::selection::SelectionState::new(),
            chaos: crate::thread::timing::State::new(),
            limits: Arc::new(Lock::new(config::get().limits)),
            forbidden: crate::thread::forbidden::Forbidden::default(),
            filters: crate::thread::filter_list::Filters::new(),
            rseq: None,
            plan: None,
            leaving: None,
            shared_pages: SharedPages::new(),
        }));
        t.ctx.runtime = t as *mut Thread as u64;
        t.ctx.sequence_ptr = hindsight_glue::sequence_address();
        t.attach_sequence();
        Ok(t)
    }

    /// Has memory ready for the indirect jumps of a program that begins: the first part of their table
    /// has a page for each 256 bytes of code, and most are needed soon.
    pub fn prepare_lookup(&self) {
        let table = match crate::sys::quiet::possible() || config::get().plain != 0 {
            true => &self.ctx.ibl[table::PLAIN],
            false => &self.ctx.ibl[table::CHECKED],
        };
        let range = table.first_entries();
        let start = range.start & !(sys::PAGE - 1);
        let end = range.end.next_multiple_of(sys::PAGE);
        sys::madvise_populate(start, end - start);
        if crate::sys::quiet::possible() {
            self.wipe_lookup();
        }
    }

    /// Has the table of plain code empty in the child of a `fork`, which rarely runs such code, instead of
    /// copying it (see [`crate::memory::regime::forked`]).
    fn wipe_lookup(&self) {
        for range in self.ctx.ibl[table::PLAIN].zero_when_empty() {
            let start = range.start.next_multiple_of(sys::PAGE);
            let end = range.end & !(sys::PAGE - 1);
            sys::madvise_wipe_on_fork(start, end - start);
        }
    }

    /// Continues in another stream.
    pub fn set_emitter(&mut self, emit: Emitter) {
        self.emit = emit;
        self.attach_sequence();
    }

    /// Appends an event at the present position.
    pub fn event(&mut self, ev: &Event) {
        if self.gap.as_mut().is_none_or(|g| g.lets_pass(ev)) {
            self.emit.emit(self.pos, ev);
        }
    }

    /// Whether it is not recorded: in a gap, or where nothing is recorded at all.
    pub fn is_unrecorded(&self) -> bool {
        self.gap.is_some() || config::get().plain != 0
    }

    /// Whether it runs plain code, which leaves the window alone.
    pub fn is_plain(&self) -> bool {
        self.is_unrecorded() || self.quiet && !self.in_vdso
    }

    /// Number of its table of indirect jumps.
    pub fn table(&self) -> usize {
        if self.is_plain() {
            table::PLAIN
        } else {
            table::CHECKED
        }
    }

    /// The instruction at hand is done.
    pub fn complete(&mut self) {
        self.pos += 1;
    }

    /// Guest registers; `ctx.rip` is the instruction about to run.
    pub fn cpu(&self) -> CpuState {
        CpuState {
            gpr: self.ctx.gpr,
            rip: self.ctx.rip,
            rflags: self.ctx.rflags & RFLAGS_MASK,
            fs_base: self.ctx.fs_base,
            gs_base: self.ctx.gs_base,
        }
    }

    /// Sets all guest registers.
    pub fn set_cpu(&mut self, s: &CpuState) {
        self.ctx.gpr = s.gpr;
        self.ctx.rip = s.rip;
        self.ctx.rflags = s.rflags & RFLAGS_MASK;
        self.ctx.gs_base = s.gs_base;
        if self.ctx.fs_base != s.fs_base {
            self.ctx.fs_base = s.fs_base;
            sys::set_fs_base(s.fs_base);
        }
    }

    /// The guest's vector state in the processor's own format, complete. x87 instruction and data
    /// pointers (which would be the translator's) are zero.
    pub fn area(&mut self) -> &mut Area {
        let wide = self.wide_checks.then_some(&self.layout);
        save(&mut self.area, self.ctx, wide);
        &mut self.area
    }

    /// Writes what [`Thread::area`] gives to `area`.
    pub fn save_area(&self, area: &mut Area) {
        save(area, self.ctx, self.wide_checks.then_some(&self.layout));
    }

    /// Loads the guest's vector state.
    pub fn set_area(&mut self, a: &Area) {
        if self.wide_checks {
            (self.ctx.zmm31, self.ctx.k7) = self.layout.wide(a);
        }
        for (i, x) in self.ctx.xmm.iter_mut().enumerate() {
            if a.0[512] & 2 != 0 {
                x.copy_from_slice(&a.0[160 + 16 * i..176 + 16 * i]);
            } else {
                *x = [0; 16];
            }
        }
        // SAFETY: the runtime runs, not translated code; callers pass areas that XSAVE or `Layout` made.
        unsafe { hindsight_glue::load_area(a) };
    }

    /// The guest's vector state.
    pub fn vec(&mut self) -> VecState {
        let l = self.layout;
        l.to_state(self.area())
    }

    /// Address of the predictor cell of guest address `a`.
    pub fn cell(&self, a: u64) -> *mut u8 {
        (self.window + self.predictor.cell(a)) as *mut u8
    }

    /// Writes the first key frame: the state in which the recording begins.
    pub fn begin(&mut self) {
        let gap = self.gap.take();
        self.keyframe();
        self.schedule();
        if let Some(g) = gap {
            gap::begin(self, g.reason);
        }
    }

    /// Whether what is due is worth bringing the thread to rest for, which takes a dozen single steps: a key
    /// frame, or a digest that has been due for long.
    pub fn is_pressed(&self) -> bool {
        const LATE: u64 = 16;
        let late = self
            .next_digest
            .saturating_add(config::get().digest_interval.saturating_mul(LATE));
        self.pos >= self.next_keyframe || self.pos >= late || self.emit.wishes() != 0
    }

    /// Says when [`Thread::observe`] has something to do.
    pub fn schedule(&mut self) {
        let due = self.next_keyframe.min(self.next_digest);
        self.next_observation = due.min(self.shared_pages.next());
    }

    /// Key frames are due after so many instructions more: there, memory has to be restated.
    pub fn schedule_quiet(&mut self, instructions: u64) {
        self.next_keyframe = self.pos.saturating_add(instructions);
        self.shared_pages.pause();
        self.schedule();
    }

    /// Begins the checked regime.
    pub fn begin_checked(&mut self) {
        self.keyframe();
        self.schedule();
    }

    /// Writes a key frame.
    pub fn keyframe(&mut self) {
        let (cpu, vec) = (self.cpu().to_bytes(), self.vec().to_bytes());
        let code_epoch = self.code_epoch;
        self.emit.grant(wish::KEYFRAME);
        self.event(&Event::KeyFrame {
            code_epoch,
            cpu: &cpu,
            vec: &vec,
        });
        if !core::mem::take(&mut self.untouched) {
            self.empty_window();
        }
        let later = |n: u64| {
            if n == 0 {
                u64::MAX
            } else {
                self.pos.saturating_add(n)
            }
        };
        // An emptied predictor is filled again from the trace: not before the program has done
        // enough to pay for that.
        let resident = sys::peak_memory() / 2;
        self.next_keyframe = later(config::get().keyframe_interval)
            .max(later((resident * KEYFRAME_COST).min(1 << 60)));
        if config::get().keyframe_interval == 0 {
            self.next_keyframe = u64::MAX;
        }
        self.next_digest = later(config::get().digest_interval);
        self.shared_pages.begin(self.pos);
    }

    /// Makes the cells at these offsets in the window zero.
    pub fn zero_cells(&mut self, start: u64, len: u64) {
        self.shared_pages
            .drop_cells(self.window, start..start + len);
        let (start, end) = (self.window + start, self.window + start + len);
        // The first pages are shared with their alias and must be written; the rest can be given back.
        let shared = self.window + SHARED;
        let whole = (start.max(shared).next_multiple_of(4096), end & !4095);
        let clear = |a: u64, b: u64| {
            if a < b {
                // SAFETY: `a..b` lies in the window, which is writable and referenced by nothing.
                unsafe { core::ptr::write_bytes(a as *mut u8, 0, (b - a) as usize) }
            }
        };
        if whole.0 < whole.1 {
            clear(start, whole.0.min(end));
            sys::madvise_dontneed(whole.0, whole.1 - whole.0);
            clear(whole.1, end);
        } else {
            clear(start, end);
        }
    }

    /// Gives the thread's slot, zeroed, to the next thread, which waits for [`ThreadSlot::taken`].
    pub fn give_back_slot(&mut self) {
        self.empty_window();
        let ctx = self.window - CTX_SIZE as u64;
        let whole = (ctx.next_multiple_of(4096), self.window);
        // SAFETY: the part of the context block before its first whole page, which nothing uses now.
        unsafe { core::ptr::write_bytes(ctx as *mut u8, 0, (whole.0 - ctx) as usize) };
        sys::madvise_dontneed(whole.0, whole.1 - whole.0);
        FREE.lock().push(self.slot);
    }

    /// In a child that has a copy of the memory: begins a stream of its own. The window is empty
    /// already, except for what is still shared with the parent.
    pub fn forked(&mut self, emit: Emitter) -> Result<(), i32> {
        self.emit.release();
        self.set_emitter(emit);
        (self.pos, self.mispredictions) = (0, 0);
        self.ctx.count = 0;
        self.tid = sys::gettid();
        // The number of a ring was the parent's.
        self.ring.store(-1, Release);
        self.slot.arrive(false);
        slot::abandon_free();
        map_shared(self.window, self.predictor)
    }

    /// Counters for the collector.
    pub fn publish(&self) {
        if let Some(c) = self.emit.ctl() {
            c.position.store(self.pos, Relaxed);
            c.mispredictions.store(self.mispredictions, Relaxed);
        }
    }

    /// Empties the whole predictor (the stream's key frame says so).
    pub fn empty_window(&mut self) {
        self.zero_cells(0, self.predictor.size());
    }
}

/// Saves the guest's vector state. `wide`: zmm31 and k7 are in the context block.
fn save(area: &mut Area, ctx: &Ctx, wide: Option<&Layout>) {
    hindsight_glue::save_area(area);
    complete(area, ctx, wide);
}

/// Adds what is in the context block to an area with what is in the processor.
pub fn complete(area: &mut Area, ctx: &Ctx, wide: Option<&Layout>) {
    let a = &mut area.0;
    for (i, x) in ctx.xmm.iter().enumerate() {
        a[160 + 16 * i..176 + 16 * i].copy_from_slice(x);
    }
    a[512] |= 2;
    a[6..24].fill(0);
    if let Some(layout) = wide {
        layout.set_wide(area, &ctx.zmm31, ctx.k7);
    }
}

//! One recorded thread: its context block, window, registers and event stream.

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

/// Bytes. The cells of a longer range are not cleared when memory is mapped there. What is stale in
/// them shows as mispredictions.
pub const ZERO_LIMIT: u64 = 1 << 30;

/// A key frame costs as much as this many instructions per byte of the program's memory.
const KEYFRAME_COST: u64 = 128;

/// What a thread does all its life: it runs the program.
pub type Run = fn(&mut Thread) -> !;

/// A recorded thread. It stays at one address for the thread's whole life; `ctx.runtime` points to
/// it.
pub struct Thread {
    /// The context block below the window.
    pub ctx: &'static mut Ctx,
    /// Address of the window's first cell.
    pub window: u64,
    /// Geometry of the window.
    pub predictor: Predictor,
    /// Its event stream.
    pub emit: Emitter,
    /// Number of instructions completed. Up to date whenever the runtime runs.
    pub pos: u64,
    /// The vector state while it is not in the processor's registers (see [`Thread::area`]).
    area: Area,
    /// Whether translated code uses zmm31 and k7 for itself. Then the guest's are in the context
    /// block.
    pub wide_checks: bool,
    /// Where the vector state's components lie in an area.
    pub layout: Layout,
    /// The main loop.
    pub run: Run,
    /// What the thread and its signal handlers tell each other.
    pub inbox: &'static Inbox,
    /// What it knows of its signals.
    pub signals: signal_state::State,
    /// Position from which on [`Thread::observe`] has something to do. The maximum: never.
    pub next_observation: u64,
    /// Position from which on a key frame is due.
    pub next_keyframe: u64,
    /// Position from which on a digest is due.
    pub next_digest: u64,
    /// The code epoch that its stream has announced last.
    pub code_epoch: u64,
    /// Number of mispredictions.
    pub mispredictions: u64,
    /// The generation of the translation cache that it has noticed.
    pub generation: u64,
    /// The same, for other threads. The maximum while it runs no translated code.
    pub seen: AtomicU64,
    /// The code epoch that its stream has announced, for other threads.
    pub announced: AtomicU64,
    /// Where it lives in the address space.
    pub slot: &'static ThreadSlot,
    /// Nothing was written to the window since it was made or emptied.
    untouched: bool,
    /// Nothing of it is recorded, ever.
    pub is_silent: bool,
    /// It is a process of its own in its parent's memory, as after `vfork`, until it executes a
    /// program or ends.
    pub borrows: bool,
    /// It is such a process and has no ring yet.
    pub unborn: Option<Unborn>,
    /// A second lock that its atomic operation holds (see [`crate::code::sequence`]).
    pub second: Option<usize>,
    /// Before it runs anything, it sets its signal handlers to the default.
    pub clear_handlers: bool,
    /// Number of its ring. -1 before it has one, and after the thread itself has ended the stream.
    pub ring: AtomicI32,
    /// The kernel's number of the thread. 0 until the thread has begun.
    pub tid: i32,
    /// The gap in which it runs plain code. `None` while it is recorded.
    pub gap: Option<Box<Gap>>,
    /// The memory of the last gap, for the next one.
    pub spare_gap: Option<Box<Gap>>,
    /// It is in the quiet regime: its reads are not checked (see [`crate::memory::regime`]).
    pub quiet: bool,
    /// Events say that memory holds files which the collector may not have read yet.
    pub files_told: bool,
    /// It is quiet and is in the vDSO, whose code is checked all the same.
    pub in_vdso: bool,
    /// Position from which on the next digest of the registers is due in the quiet regime.
    pub next_check: u64,
    /// The same for a digest of what the program writes.
    pub next_passed: u64,
    /// The quiet regime ends when the thread has come to the runtime this many times between two
    /// instructions. 0: no limit.
    pub leaves_after: u64,
    /// What [`crate::stream::ring::meddling`] was when the quiet regime began.
    pub meddling: u32,
    /// Position at which the memory was last restated.
    pub restated: u64,
    /// Why the quiet regime is to end as soon as the thread stands between two instructions.
    pub ends_quiet: Option<crate::sys::quiet::Reason>,
    /// Which of its code is to be recorded.
    pub selection: crate::thread::selection::SelectionState,
    /// How `--chaos` disturbs its timing.
    pub chaos: crate::thread::timing::State,
    /// Limits that the recorder holds in the kernel's place.
    pub limits: crate::sys::resources::Shared,
    /// Instructions that the program has forbidden it.
    pub forbidden: crate::thread::forbidden::Forbidden,
    /// Filters of system calls that the program has set.
    pub filters: crate::thread::filter_list::Filters,
    /// The area of restartable sequences that the program has registered.
    pub rseq: Option<crate::thread::rseq::Rseq>,
    /// The program that it is about to execute.
    pub plan: Option<alloc::boxed::Box<crate::thread::plan::Plan>>,
    /// Path of a program that it executes unrecorded.
    pub leaving: Option<alloc::ffi::CString>,
    /// Pages that memory shares with its cells.
    pub shared_pages: SharedPages,
}

impl Thread {
    /// Makes a thread in a free or new slot. The error is the errno of the failed mapping.
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
        // SAFETY: `ThreadSlot::take` gives the slot to this thread alone. There, `CTX_SIZE` zeroed and
        // writable bytes lie directly below the window, and zeros are a valid `Ctx`.
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

    /// Makes memory ready for the indirect jumps of a program that begins. The first part of the
    /// lookup table has a page for each 256 bytes of code, and most pages are needed soon.
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

    /// Makes the plain code's lookup table empty in the child of a `fork`. The child rarely runs
    /// plain code, so a copy would be wasted (see [`crate::memory::regime::forked`]).
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

    /// Appends an event at the present position. In a gap only what [`Gap::lets_pass`] is recorded.
    pub fn event(&mut self, ev: &Event) {
        if self.gap.as_mut().is_none_or(|g| g.lets_pass(ev)) {
            self.emit.emit(self.pos, ev);
        }
    }

    /// Whether it is not recorded: it is in a gap, or nothing is recorded at all.
    pub fn is_unrecorded(&self) -> bool {
        self.gap.is_some() || config::get().plain != 0
    }

    /// Whether it runs plain code, which does not touch the window.
    pub fn is_plain(&self) -> bool {
        self.is_unrecorded() || self.quiet && !self.in_vdso
    }

    /// Index of the lookup table that it uses.
    pub fn table(&self) -> usize {
        if self.is_plain() {
            table::PLAIN
        } else {
            table::CHECKED
        }
    }

    /// Counts the instruction at which the thread stands as completed.
    pub fn complete(&mut self) {
        self.pos += 1;
    }

    /// The guest's registers. `rip` is the address of the next instruction.
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

    /// The guest's complete vector state, in the processor's own format. The x87 instruction and
    /// data pointers are zero, since they would be those of translated code.
    pub fn area(&mut self) -> &mut Area {
        let wide = self.wide_checks.then_some(&self.layout);
        save(&mut self.area, self.ctx, wide);
        &mut self.area
    }

    /// Writes what [`Thread::area`] returns to `area`.
    pub fn save_area(&self, area: &mut Area) {
        save(area, self.ctx, self.wide_checks.then_some(&self.layout));
    }

    /// Loads the guest's vector state from `a`, an area that XSAVE or `Layout` made.
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
        // SAFETY: the runtime runs, not translated code.
        unsafe { hindsight_glue::load_area(a) };
    }

    /// The guest's vector state.
    pub fn vec(&mut self) -> VecState {
        let l = self.layout;
        l.to_state(self.area())
    }

    /// Address of the cell of guest address `a`.
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

    /// Whether what is due is worth stopping the thread for, which takes a dozen single steps. A
    /// key frame is. A digest is when it has been due for long.
    pub fn is_pressed(&self) -> bool {
        const LATE: u64 = 16;
        let late = self
            .next_digest
            .saturating_add(config::get().digest_interval.saturating_mul(LATE));
        self.pos >= self.next_keyframe || self.pos >= late || self.emit.wishes() != 0
    }

    /// Computes from which position on [`Thread::observe`] has something to do.
    pub fn schedule(&mut self) {
        let due = self.next_keyframe.min(self.next_digest);
        self.next_observation = due.min(self.shared_pages.next());
    }

    /// Key frames are due after so many instructions more. In the quiet regime they restate the
    /// memory.
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

    /// Writes a key frame and empties the window.
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
        // An emptied window is filled again from the trace. So the program first has to do enough
        // to pay for that.
        let resident = sys::peak_memory() / 2;
        self.next_keyframe = later(config::get().keyframe_interval)
            .max(later((resident * KEYFRAME_COST).min(1 << 60)));
        if config::get().keyframe_interval == 0 {
            self.next_keyframe = u64::MAX;
        }
        self.next_digest = later(config::get().digest_interval);
        self.shared_pages.begin(self.pos);
    }

    /// Makes the cells at offsets `start..start + len` in the window zero.
    pub fn zero_cells(&mut self, start: u64, len: u64) {
        self.shared_pages
            .drop_cells(self.window, start..start + len);
        let (start, end) = (self.window + start, self.window + start + len);
        // The first pages are shared with their alias, so they must be written. The rest can be
        // given back.
        let shared = self.window + SHARED;
        let whole = (start.max(shared).next_multiple_of(4096), end & !4095);
        let clear = |a: u64, b: u64| {
            if a < b {
                // SAFETY: callers below pass parts of `start..end`, which lies in the window. The
                // window is writable and no reference points into it.
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

    /// Gives the thread's slot, zeroed, to the next thread. That one waits until [`ThreadSlot::taken`]
    /// is 0.
    pub fn give_back_slot(&mut self) {
        self.empty_window();
        let ctx = self.window - CTX_SIZE as u64;
        let whole = (ctx.next_multiple_of(4096), self.window);
        // SAFETY: these bytes lie in the context block, below its first whole page. The thread has
        // ended, so nothing uses the block now.
        unsafe { core::ptr::write_bytes(ctx as *mut u8, 0, (whole.0 - ctx) as usize) };
        sys::madvise_dontneed(whole.0, whole.1 - whole.0);
        FREE.lock().push(self.slot);
    }

    /// Begins a stream of its own, in a child that has a copy of the memory. The window is empty
    /// already, except for the pages that are still shared with the parent. The error is the errno
    /// of a failed mapping.
    pub fn forked(&mut self, emit: Emitter) -> Result<(), i32> {
        self.emit.release();
        self.set_emitter(emit);
        (self.pos, self.mispredictions) = (0, 0);
        self.ctx.count = 0;
        self.tid = sys::gettid();
        // The ring of that number is the parent's.
        self.ring.store(-1, Release);
        self.slot.arrive(false);
        slot::abandon_free();
        map_shared(self.window, self.predictor)
    }

    /// Writes its counters where the collector reads them.
    pub fn publish(&self) {
        if let Some(c) = self.emit.ctl() {
            c.position.store(self.pos, Relaxed);
            c.mispredictions.store(self.mispredictions, Relaxed);
        }
    }

    /// Empties the whole window. The key frame in the stream says so.
    pub fn empty_window(&mut self) {
        self.zero_cells(0, self.predictor.size());
    }
}

/// Saves the guest's vector state. With `wide` zmm31 and k7 come from the context block.
fn save(area: &mut Area, ctx: &Ctx, wide: Option<&Layout>) {
    hindsight_glue::save_area(area);
    complete(area, ctx, wide);
}

/// Completes an area that holds what is in the processor with what is in the context block.
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

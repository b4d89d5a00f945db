//! One recorded thread: its context block, window, registers and event stream.

pub mod ahead;
pub mod borrowers;
pub mod call;
pub mod clone;
pub mod code_state;
pub mod emulated;
pub mod end;
pub mod exec;
pub mod filter_list;
pub mod fresh;
pub mod gap;
pub mod inbox;
pub mod mapped_file;
pub mod owners;
pub mod pass;
pub mod pending;
pub mod regime_state;
pub mod rseq;
pub mod schedule;
pub mod selection;
pub mod shared_pages;
pub mod signal_actions;
pub mod signal_state;
pub mod task;
pub mod threads;
pub mod timing;
pub mod trap_flag;

mod slot;
mod vectors;
mod window;

use slot::map_shared;
pub use slot::{SHARED, STACK, ThreadSlot, all as all_slots, hold, set_first_stack};
pub use task::Run;
pub use vectors::complete;

use crate::stream::ring::Emitter;
use crate::sys::{self, config};
use crate::thread::ahead::Ahead;
use crate::thread::code_state::CodeState;
use crate::thread::emulated::Emulated;
use crate::thread::exec::Exec;
use crate::thread::fresh::FreshState;
use crate::thread::gap::Gaps;
use crate::thread::inbox::Inbox;
use crate::thread::mapped_file::MappedFile;
use crate::thread::regime_state::RegimeState;
use crate::thread::schedule::Schedule;
use crate::thread::selection::SelectionState;
use crate::thread::shared_pages::SharedPages;
use crate::thread::task::Task;
use crate::thread::vectors::Vectors;
use crate::thread::window::Window;
use core::sync::atomic::Ordering::*;
use hindsight_events::Event;
use hindsight_events::ring::wish;
use hindsight_isa::ctx::{CTX_SIZE, table};
use hindsight_isa::ibl::LookupTable;
use hindsight_isa::state::{CPU_STATE_LEN, RFLAGS_MASK, VEC_STATE_LEN};
use hindsight_isa::xsave::Layout;
use hindsight_isa::{CpuState, Ctx, Predictor};

/// Bytes. The cells of a longer range are not cleared when memory is mapped there. What is stale in
/// them shows as mispredictions.
pub const ZERO_LIMIT: u64 = 1 << 30;

/// A recorded thread. It stays at one address for the thread's whole life; `ctx.runtime` points to
/// it.
pub struct Thread {
    /// The context block below the window: the guest's registers, and what translated code needs.
    /// Translated code and the runtime both write to it, each while it runs.
    pub ctx: &'static mut Ctx,
    /// Number of instructions completed. Up to date whenever the runtime runs. In translated code
    /// it is in a register.
    pub pos: u64,
    /// Number of mispredictions since the stream began.
    pub mispredictions: u64,
    /// Writes the thread's event stream. Translated code uses it, too, for atomic operations.
    pub emit: Emitter,
    /// A second lock that its atomic operation holds, by number (see [`crate::code::sequence`]).
    pub second_lock: Option<usize>,
    /// Where it lives in the address space. Handed on when it ends.
    pub slot: &'static ThreadSlot,
    /// What its signal handlers and its runtime tell each other. It belongs to the slot.
    pub inbox: &'static Inbox,
    /// What it knows of the program's signals. Signal handlers and other threads read it, too.
    pub signals: signal_state::State,
    /// What it is to the kernel and to other threads.
    pub task: Task,
    /// Its shadow memory.
    pub window: Window,
    /// Where the guest's vector registers are.
    pub vectors: Vectors,
    /// Which translated code it may be running.
    pub code: CodeState,
    /// When key frames and digests are due.
    pub schedule: Schedule,
    /// In which regime it is recorded.
    pub regime: RegimeState,
    /// Pages that memory shares with its cells.
    pub shared_pages: SharedPages,
    /// Where it goes through memory line by line.
    pub ahead: Ahead,
    /// Which of its code is to be recorded.
    pub selection: SelectionState,
    /// What it knows of memory that it gets and has not written yet.
    pub fresh: FreshState,
    /// The gap in which it is, if it is in one.
    pub gaps: Gaps,
    /// How `--chaos` disturbs its timing.
    pub chaos: timing::State,
    /// What the recorder keeps of it in the kernel's place.
    pub emulated: Emulated,
    /// The program that it is about to execute.
    pub exec: Exec,
    /// The file that it mapped last.
    pub mapped_file: MappedFile,
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
            pos: 0,
            mispredictions: 0,
            emit,
            second_lock: None,
            slot,
            inbox: &slot.inbox,
            signals: signal_state::State::new(),
            task: Task::new(run),
            window: Window::new(window, predictor),
            vectors: Vectors::new(layout, wide_checks),
            code: CodeState::new(),
            schedule: Schedule::new(),
            regime: RegimeState::default(),
            shared_pages: SharedPages::new(),
            ahead: Ahead::new(),
            selection: SelectionState::new(),
            fresh: FreshState::default(),
            gaps: Gaps::default(),
            chaos: timing::State::new(),
            emulated: Emulated::new(),
            exec: Exec::default(),
            mapped_file: MappedFile::default(),
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

    /// Appends an event at the present position. In a gap only what [`Gaps::lets_pass`] is recorded.
    pub fn event(&mut self, ev: &Event) {
        if self.gaps.lets_pass(ev) {
            self.emit.emit(self.pos, ev);
        }
    }

    /// Whether it is not recorded: it is in a gap, or nothing is recorded at all.
    pub fn is_unrecorded(&self) -> bool {
        self.gaps.is_open() || config::get().plain != 0
    }

    /// Whether it runs plain code, which does not touch the window.
    pub fn is_plain(&self) -> bool {
        self.is_unrecorded() || self.regime.quiet && !self.regime.in_vdso
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

    /// Writes the first key frame: the state in which the recording begins.
    pub fn begin(&mut self) {
        let gap = self.gaps.abandon();
        self.begin_checked();
        if let Some(reason) = gap {
            gap::begin(self, reason);
        }
    }

    /// Begins the checked regime.
    pub fn begin_checked(&mut self) {
        self.keyframe();
        self.reschedule();
    }

    /// Writes a key frame and empties the window.
    pub fn keyframe(&mut self) {
        log!(Debug, "key frame at {:#x}", self.ctx.rip);
        let (cpu, vec) = (self.cpu().to_bytes(), self.vec().to_bytes());
        let state = self.state(&cpu, &vec);
        self.event(&state);
        self.begin_frame();
    }

    /// Says where the thread stands, with all its registers, as a key frame does.
    pub fn tell_state(&mut self, say: &mut dyn FnMut(&Event)) {
        let (cpu, vec) = (self.cpu().to_bytes(), self.vec().to_bytes());
        say(&self.state(&cpu, &vec));
    }

    fn state<'a>(&self, cpu: &'a [u8; CPU_STATE_LEN], vec: &'a [u8; VEC_STATE_LEN]) -> Event<'a> {
        Event::KeyFrame {
            code_epoch: self.code.epoch,
            cpu,
            vec,
        }
    }

    /// Empties the window: there is a key frame here.
    pub fn begin_frame(&mut self) {
        self.emit.grant(wish::KEYFRAME);
        if !core::mem::take(&mut self.window.untouched) {
            self.empty_window();
        }
        self.emit.framed();
        self.schedule.keyframe_written(self.pos);
        self.shared_pages.begin(self.pos);
    }

    /// Begins a stream of its own, in a child that has a copy of the memory. The window is empty
    /// already, except for the pages that are still shared with the parent. The error is the errno
    /// of a failed mapping.
    pub fn forked(&mut self, emit: Emitter) -> Result<(), i32> {
        self.emit.release();
        self.set_emitter(emit);
        (self.pos, self.mispredictions) = (0, 0);
        self.ctx.count = 0;
        self.task.tid = sys::gettid();
        self.shared_pages.forked();
        // The ring of that number is the parent's.
        self.task.set_ring(None);
        self.slot.arrive(false);
        slot::abandon_free();
        map_shared(self.window.start(), self.window.predictor())
    }

    /// Writes its counters where the collector reads them.
    pub fn publish(&self) {
        if let Some(c) = self.emit.ctl() {
            c.position.store(self.pos, Relaxed);
            c.mispredictions.store(self.mispredictions, Relaxed);
        }
    }
}

//! Gaps: stretches that a thread runs unrecorded. It runs plain code, without comparisons and
//! without a window.
//!
//! At the end of a gap the registers are recorded. Nothing has touched the window. So memory that
//! changed meanwhile differs from it, and shows as mispredictions when it is read.

use crate::thread::Thread;
use alloc::boxed::Box;
use hindsight_events::{Event, GapReason};
use hindsight_isa::CpuState;
use hindsight_isa::ctx::table;
use hindsight_isa::state::VEC_STATE_LEN;
use hindsight_isa::xsave::Area;

/// `fork`, `vfork`, `clone`, `clone3`: recorded in a gap too, since the collector waits for the
/// processes that they make.
const FORKS: [u64; 4] = [56, 57, 58, 435];

/// The gap in which a thread is, if it is in one. Only the thread itself uses it, and only in the
/// runtime.
#[derive(Default)]
pub struct Gaps {
    /// The present gap.
    open: Option<Box<Gap>>,
    /// The memory of the last gap, for the next one.
    spare: Option<Box<Gap>>,
}

impl Gaps {
    /// Whether the thread is in a gap: it runs plain code, and is not recorded.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Why the thread is in a gap, if it is.
    pub fn reason(&self) -> Option<GapReason> {
        self.open.as_ref().map(|g| g.reason)
    }

    /// Whether the thread has come out of a gap. If so it may have run plain code.
    pub fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// Whether this event is recorded, although the thread may not be.
    pub(super) fn lets_pass(&mut self, ev: &Event) -> bool {
        self.open.as_mut().is_none_or(|g| g.lets_pass(ev))
    }

    /// Forgets the gap, since another stream begins: nothing will say in this one where the gap
    /// ends. Returns why it had begun.
    pub(super) fn abandon(&mut self) -> Option<GapReason> {
        self.open.take().map(|g| g.reason)
    }
}

/// The gap in which a thread is.
struct Gap {
    /// Why it goes on.
    reason: GapReason,
    /// The registers at its beginning.
    cpu: CpuState,
    vec: Area,
    /// A system call has been recorded, so its result has to be.
    call: bool,
    /// Room for the registers that have changed at its end.
    out: [u8; VEC_STATE_LEN],
}

impl Gap {
    /// Whether this event is recorded although the thread is not.
    fn lets_pass(&mut self, ev: &Event) -> bool {
        match ev {
            Event::Syscall { nr, .. } => {
                self.call = FORKS.contains(&(*nr as u32 as u64));
                self.call
            }
            Event::SyscallRet { .. } => core::mem::take(&mut self.call),
            Event::End { .. } | Event::Mark { .. } | Event::GapBegin { .. } => true,
            _ => false,
        }
    }
}

/// Begins a gap. The thread stands between two instructions.
pub fn begin(t: &mut Thread, reason: GapReason) {
    invariant!(!t.gaps.is_open(), "a gap begins outside of gaps");
    log!(Debug, "a gap begins at {:#x}: {reason:?}", t.ctx.rip);
    t.sequence();
    t.event(&Event::GapBegin { reason });
    if !t.gaps.has_spare() {
        // Since plain code was last run, new generations of code were not noted in its lookup
        // table.
        t.ctx.ibl[table::PLAIN].clear();
    }
    let mut gap = t.gaps.spare.take().unwrap_or_else(|| {
        Box::new(Gap {
            reason,
            cpu: CpuState::default(),
            vec: Area::default(),
            call: false,
            out: [0; VEC_STATE_LEN],
        })
    });
    (gap.reason, gap.call) = (reason, false);
    gap.cpu = t.cpu();
    t.save_area(&mut gap.vec);
    t.gaps.open = Some(gap);
    t.schedule.pause();
}

/// Gives the gap that goes on another reason.
pub fn widen(t: &mut Thread, reason: GapReason) {
    t.event(&Event::GapBegin { reason });
    if let Some(g) = &mut t.gaps.open {
        g.reason = reason;
    }
}

/// Ends the gap. The thread stands between two instructions.
pub fn end(t: &mut Thread) {
    let Some(mut gap) = t.gaps.open.take() else {
        return;
    };
    log!(Debug, "the gap ends at {:#x}", t.ctx.rip);
    let cpu = t.cpu();
    let values = cpu.words();
    // Always the flags: where they were not needed, those of replay may differ.
    let mut mask = 1 << 17;
    for (i, (new, old)) in values.iter().zip(gap.cpu.words()).enumerate() {
        if *new != old {
            mask |= 1 << i;
        }
    }
    let layout = *t.vectors.layout();
    let (parts, len) = layout.changes(&gap.vec, t.area(), &mut gap.out);
    t.event(&Event::GapEnd {
        mask,
        values,
        parts,
        vec: &gap.out[..len],
    });
    t.gaps.spare = Some(gap);
    t.sequence();
    t.reschedule();
}

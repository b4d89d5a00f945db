//! Stretches that a thread runs unrecorded: plain code, with no comparison and no window. When one
//! ends, the registers are recorded; what changed in memory meanwhile differs from the window, which
//! nothing has touched, and so shows when it is read.

use crate::thread::Thread;
use alloc::boxed::Box;
use hindsight_events::{Event, GapReason};
use hindsight_isa::CpuState;
use hindsight_isa::ctx::table;
use hindsight_isa::state::VEC_STATE_LEN;
use hindsight_isa::xsave::Area;

/// `fork`, `vfork`, `clone`, `clone3`: the collector waits for what they make.
const FORKS: [u64; 4] = [56, 57, 58, 435];

/// A gap at hand.
pub struct Gap {
    pub reason: GapReason,
    /// The registers with which it began.
    cpu: CpuState,
    vec: Area,
    /// A system call has been recorded, and its result is to be.
    call: bool,
    /// Room for the registers that have changed when it ends.
    out: [u8; VEC_STATE_LEN],
}

impl Gap {
    /// Whether an event is recorded although the thread is not.
    pub fn lets_pass(&mut self, ev: &Event) -> bool {
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

/// The thread, which stands between two instructions, is not recorded from here on.
pub fn begin(t: &mut Thread, reason: GapReason) {
    t.sequence();
    t.event(&Event::GapBegin { reason });
    if t.spare_gap.is_none() {
        // New generations of code have not been noted there since plain code was last run.
        t.ctx.ibl[table::PLAIN].clear();
    }
    let mut gap = t.spare_gap.take().unwrap_or_else(|| {
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
    t.gap = Some(gap);
    t.next_observation = u64::MAX;
}

/// The gap goes on, and not only for the reason for which it began.
pub fn widen(t: &mut Thread, reason: GapReason) {
    t.event(&Event::GapBegin { reason });
    if let Some(g) = &mut t.gap {
        g.reason = reason;
    }
}

/// The thread, which stands between two instructions, is recorded again.
pub fn end(t: &mut Thread) {
    let Some(mut gap) = t.gap.take() else { return };
    let cpu = t.cpu();
    let values = words(&cpu);
    // What replay has of the flags may differ where they were not needed.
    let mut mask = 1 << 17;
    for (i, (new, old)) in values.iter().zip(words(&gap.cpu)).enumerate() {
        if *new != old {
            mask |= 1 << i;
        }
    }
    let layout = t.layout;
    let (parts, len) = layout.changes(&gap.vec, t.area(), &mut gap.out);
    t.event(&Event::GapEnd {
        mask,
        values,
        parts,
        vec: &gap.out[..len],
    });
    t.spare_gap = Some(gap);
    t.sequence();
    t.schedule();
}

/// In the order of the serialized form.
fn words(s: &CpuState) -> [u64; 20] {
    let mut w = [0; 20];
    w[..16].copy_from_slice(&s.gpr);
    w[16..].copy_from_slice(&[s.rip, s.rflags, s.fs_base, s.gs_base]);
    w
}

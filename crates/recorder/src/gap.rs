//! Stretches that a thread runs unrecorded: plain code, with no comparison and no window. When one
//! ends, the registers are recorded; what changed in memory meanwhile differs from the window, which
//! nothing has touched, and so shows when it is read.

use crate::thread::Thread;
use alloc::boxed::Box;
use hindsight_events::{Event, GapReason};
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN, changes};

/// `fork`, `vfork`, `clone`, `clone3`: the collector waits for what they make.
const FORKS: [u64; 4] = [56, 57, 58, 435];

/// A gap at hand.
pub struct Gap {
    pub reason: GapReason,
    /// The registers with which it began.
    cpu: [u8; CPU_STATE_LEN],
    vec: [u8; VEC_STATE_LEN],
    /// A system call has been recorded, and its result is to be.
    call: bool,
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
    let gap = Gap {
        reason,
        cpu: t.cpu().to_bytes(),
        vec: t.vec().to_bytes(),
        call: false,
    };
    t.gap = Some(match t.spare_gap.take() {
        Some(mut spare) => {
            *spare = gap;
            spare
        }
        None => Box::new(gap),
    });
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
    let Some(gap) = t.gap.take() else { return };
    let (cpu, vec) = (t.cpu().to_bytes(), t.vec().to_bytes());
    let mut values = [0; 20];
    // What replay has of the flags may differ where they were not needed.
    let mut mask = 1 << 17;
    for (i, v) in values.iter_mut().enumerate() {
        let word = |b: &[u8; CPU_STATE_LEN]| {
            let mut w = [0; 8];
            w.copy_from_slice(&b[8 * i..8 * i + 8]);
            u64::from_le_bytes(w)
        };
        *v = word(&cpu);
        if *v != word(&gap.cpu) {
            mask |= 1 << i;
        }
    }
    let mut out = [0; VEC_STATE_LEN];
    let (parts, len) = changes(&gap.vec, &vec, &mut out);
    t.event(&Event::GapEnd {
        mask,
        values,
        parts,
        vec: &out[..len],
    });
    t.spare_gap = Some(gap);
    t.sequence();
    t.schedule();
}

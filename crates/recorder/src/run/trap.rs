//! What is done before each instruction while the trap flag is set.

use crate::run::slow;
use crate::thread::Thread;
use crate::thread::trap_flag::Stepping;
use core::sync::atomic::Ordering::Relaxed;
use hindsight_isa::string::StringOp;
use iced_x86::Mnemonic;

/// Called when the thread stands before an instruction. True if one iteration of it has been
/// executed here. Then nothing else may be done before
/// [`deliver`](crate::signals::stepping::deliver).
pub fn begin(t: &mut Thread) -> bool {
    if !t.signals.stepping.set {
        return false;
    }
    let (pc, from) = (t.ctx.rip, t.pos);
    t.signals.stepping = Stepping {
        set: true,
        due: true,
        from,
        ..Stepping::default()
    };
    t.inbox.beyond.store(from, Relaxed);
    let (i, bytes, n) = slow::fetch(pc);
    match i.mnemonic() {
        // `popf` sets it again if it comes to `stepping::pop_flags`.
        Mnemonic::Popf | Mnemonic::Popfq => t.signals.stepping.set = false,
        Mnemonic::Pushf | Mnemonic::Pushfq => {
            t.signals.stepping.pushes = i.stack_pointer_increment().unsigned_abs() as u64;
        }
        _ => {
            if let Some(op) = StringOp::decode(&bytes[..n]) {
                t.signals.stepping.iterated = slow::iterate(t, op);
            }
        }
    }
    t.signals.stepping.iterated
}

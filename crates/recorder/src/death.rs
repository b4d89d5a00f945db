//! The program dies of a signal.

use crate::context::Info;
use crate::signals::{self, bit};
use crate::thread::Thread;
use crate::{cores, fail, joint, sigframe, sys, traced};
use hindsight_events::{EndKind, Event};

/// Ends the process by a signal. The kernel is given the program's registers before, since it may
/// write them to a core dump.
pub fn die(t: &mut Thread, info: &Info) -> ! {
    let signo = info.signo as u32;
    // Core dumps have no memory that is a file's.
    joint::end(t);
    let with_others = cores::begin(t, signo);
    t.event(&Event::Signal {
        signo: signo as u8,
        code: info.code,
        addr: info.addr(),
    });
    fail::finish(t, EndKind::Signal, signo, b"");
    sys::set_signal_mask(!0);
    // SAFETY: no handler.
    let _ = unsafe { sys::sigaction(info.signo, Some(&signals::NONE)) };
    if must_die() {
        if with_others {
            cores::prepare(t);
        }
        sys::queue_signal(info);
        if sys::pending_signals() & bit(signo) != 0 {
            sigframe::go_native(t, !bit(signo));
        }
    }
    sys::set_signal_mask(!bit(signo));
    sys::raise(info.signo);
    sys::exit_group(128 + info.signo)
}

/// Whether a signal that kills by default is sure to: neither the first process of a namespace, to which
/// the kernel does not deliver what it sends itself, nor one that is traced by another that may
/// withhold it.
fn must_die() -> bool {
    sys::getpid() != 1 && traced::is_traced() == Some(false)
}

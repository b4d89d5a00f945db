//! The death of the program by a signal.

use crate::memory::{page_sharing, regime};
use crate::signals::{actions, cores, frame, sharers, traced};
use crate::sys;
use crate::sys::context::Info;
use crate::thread::signal_state::bit;
use crate::thread::{Thread, end, signal_actions};
use core::arch::asm;
use hindsight_events::{EndKind, Event};
use linux_raw_sys::general::*;

/// Ends the process by a signal. Gives the kernel the program's registers first, since it may write
/// them to a core dump.
pub fn die(t: &mut Thread, info: &Info) -> ! {
    let signo = info.signo as u32;
    log!(Info, "dies of signal {signo} at {:#x}", t.ctx.rip);
    // Core dumps do not have memory that is mapped to a file.
    page_sharing::end(t);
    regime::end_copy();
    let with_others = cores::begin(t, signo);
    t.event(&Event::Signal {
        signo: signo as u8,
        code: info.code,
        addr: info.addr(),
    });
    end::finish(t, EndKind::Signal, signo, b"");
    sys::set_signal_mask(!0);
    // SAFETY: no handler is installed.
    let _ = unsafe { sys::sigaction(info.signo, Some(&signal_actions::NONE)) };
    if actions::is_first() {
        raise_exception(signo);
    }
    // A signal to a process that is traced may never be delivered.
    if traced::is_traced() == Some(false) {
        if with_others {
            cores::prepare(t);
        }
        sys::queue_signal(info);
        if sys::pending_signals() & bit(signo) != 0 {
            frame::go_native(t, !bit(signo));
        }
    }
    sharers::leave(t, || {
        sys::set_signal_mask(!bit(signo));
        sys::raise(info.signo);
    });
    sys::exit_group(128 + info.signo)
}

/// Executes an instruction that raises the signal. The kernel delivers such a signal also to the
/// first process of a namespace. A signal that this process sends itself would be dropped.
fn raise_exception(signo: u32) {
    // SAFETY: the action is the default, which kills. So the process does not go on behind the
    // instruction, and what the instructions change does not matter.
    unsafe {
        match signo {
            // An address that is not canonical.
            SIGSEGV => asm!("mov al, [{}]", in(reg) 1u64 << 63, out("al") _),
            SIGILL => asm!("ud2"),
            SIGTRAP => asm!("int3"),
            SIGFPE => asm!("xor ecx, ecx", "div ecx", out("ecx") _, out("eax") _, out("edx") _),
            // Checks alignment from here on.
            SIGBUS => asm!(
                "push rax",
                "pushfq",
                "or dword ptr [rsp], 0x40000",
                "popfq",
                "mov eax, [rsp + 1]",
                out("rax") _
            ),
            // A filter that kills at the next call.
            SIGSYS => {
                const RETURN_KILL: [u64; 1] = [0x8000_0000_0000_0006];
                sys::give_up_privileges();
                sys::install_filter(1, RETURN_KILL.as_ptr() as u64);
                sys::getpid();
            }
            _ => {}
        }
    }
}

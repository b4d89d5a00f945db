//! The program dies of a signal.

use crate::memory::page_sharing;
use crate::signals::{actions, cores, frame, sharers, traced};
use crate::sys;
use crate::sys::context::Info;
use crate::thread::signal_state::bit;
use crate::thread::{Thread, end, signal_actions};
use core::arch::asm;
use hindsight_events::{EndKind, Event};
use linux_raw_sys::general::*;

/// Ends the process by a signal. The kernel is given the program's registers before, since it may
/// write them to a core dump.
pub fn die(t: &mut Thread, info: &Info) -> ! {
    let signo = info.signo as u32;
    // Core dumps have no memory that is a file's.
    page_sharing::end(t);
    let with_others = cores::begin(t, signo);
    t.event(&Event::Signal {
        signo: signo as u8,
        code: info.code,
        addr: info.addr(),
    });
    end::finish(t, EndKind::Signal, signo, b"");
    sys::set_signal_mask(!0);
    // SAFETY: no handler.
    let _ = unsafe { sys::sigaction(info.signo, Some(&signal_actions::NONE)) };
    if actions::is_first() {
        raise_exception(signo);
    }
    // One that is traced by another may not get it.
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

/// Executes an instruction that raises the signal. The kernel delivers that to the first process of a namespace too,
/// to which it does not deliver what the process sends itself.
fn raise_exception(signo: u32) {
    // SAFETY: the action is the default, so the process does not go on behind the instruction.
    unsafe {
        match signo {
            // No canonical address.
            SIGSEGV => asm!("mov al, [{}]", in(reg) 1u64 << 63, out("al") _),
            SIGILL => asm!("ud2"),
            SIGTRAP => asm!("int3"),
            SIGFPE => asm!("xor ecx, ecx", "div ecx", out("ecx") _, out("eax") _, out("edx") _),
            // Alignment is checked.
            SIGBUS => asm!(
                "push rax",
                "pushfq",
                "or dword ptr [rsp], 0x40000",
                "popfq",
                "mov eax, [rsp + 1]",
                out("rax") _
            ),
            // A filter that lets no call pass.
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

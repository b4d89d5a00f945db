//! What the program tells the recorder through `hindsight.h`. The instruction does nothing where
//! nobody records. Its request is in registers.

use crate::code::select;
use crate::memory::regime;
use crate::run::dispatch::Next;
use crate::run::slow;
use crate::sys::guard;
use crate::thread::Thread;
use alloc::vec::Vec;
use hindsight_events::Event;
use hindsight_isa::Desc;
use hindsight_isa::mark::{NAME_MAX, PAYLOAD_MAX, request};
use hindsight_isa::regs::{R8, RAX, RCX, RDI, RDX, RSI, recorded};

/// Executes the instruction of `desc`. Its result, in rax, is 1 if the thread is recorded, 0 if
/// not.
pub fn execute(t: &mut Thread, desc: &Desc) -> Next {
    let g = &t.ctx.gpr;
    let (what, name, payload) = (g[RDI], (g[RSI], g[RDX]), (g[RCX], g[R8]));
    match what {
        request::START => select::set_stopped(t, false),
        request::STOP => select::set_stopped(t, true),
        request::MARK | request::STATE => {
            let mut bytes = Vec::new();
            if append(&mut bytes, name, NAME_MAX) {
                let name = bytes.len();
                if append(&mut bytes, payload, PAYLOAD_MAX) {
                    let bytes = &bytes;
                    t.event(&Event::Mark { name, bytes });
                }
            }
        }
        _ => {}
    }
    let mut values = [0; recorded::COUNT];
    values[RAX] = select::is_on(t) as u64;
    t.ctx.gpr[RAX] = values[RAX];
    let (mask, ilen) = (1 << RAX, desc.ilen);
    t.event(&Event::Regs { mask, ilen, values });
    match what {
        // A gap may begin or end.
        request::START | request::STOP => {}
        // At once, before a signal is delivered.
        request::STATE => regime::state_point(t),
        request::MARK => {
            t.regime.marked = t.pos + 1;
            return slow::finish(t, desc, Ok(()));
        }
        _ => return slow::finish(t, desc, Ok(())),
    }
    t.ctx.rip = desc.pc + desc.ilen as u64;
    t.complete();
    if what == request::STATE {
        t.observe();
    }
    Next::Boundary
}

/// Appends `len` bytes at `addr`, `most` at most. False if they cannot be read.
fn append(bytes: &mut Vec<u8>, (addr, len): (u64, u64), most: usize) -> bool {
    let at = bytes.len();
    bytes.resize(at + len.min(most as u64) as usize, 0);
    guard::read(addr, &mut bytes[at..]).is_ok()
}

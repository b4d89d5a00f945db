//! Compares two ways of running a case.

use crate::case::{Case, Native};
use crate::prepare::short_string;
use crate::record::{Outcome, RunResult};
use hindsight_isa::state::STATUS_FLAGS;
use hindsight_isa::{CpuState, VecState};
use iced_x86::{FlowControl, Mnemonic};
use std::fmt::Write;

/// The status flags that must be intact at a fault: those that the instruction needs when it is run
/// again.
pub(crate) fn restart_flags(case: &Case, r: &RunResult) -> u64 {
    let i = case.instrs.iter().find(|i| i.ip() == r.cpu.rip);
    i.map_or(0, |i| i.rflags_read() as u64) & iced_to_hardware(i.map_or(0, |i| i.rflags_read()))
}

/// The hardware's bits of iced's flag bits.
pub(crate) fn iced_to_hardware(f: u32) -> u64 {
    use iced_x86::RflagsBits as B;
    let pairs = [
        (B::CF, 1),
        (B::PF, 4),
        (B::AF, 0x10),
        (B::ZF, 0x40),
        (B::SF, 0x80),
        (B::OF, 0x800),
    ];
    pairs
        .iter()
        .filter(|(b, _)| f & b != 0)
        .map(|(_, h)| h)
        .sum()
}

/// Whether the ends differ without harm, or in a way that is documented as not emulated.
pub(crate) fn known(n: &Native, r: &RunResult, case: &Case) -> bool {
    use Mnemonic::*;
    let at = |rip: u64| case.instrs.iter().find(|i| i.ip() == rip);
    let last = case.instrs.last();
    let Some(i) = at(n.cpu.rip).or(at(r.cpu.rip)).or(last) else {
        return false;
    };
    match (n.end, r.end) {
        // Processors differ in whether a string instruction with no iterations truncates the
        // address registers.
        (Outcome::Boundary, Outcome::Boundary) => short_string(i) && case.cpu.gpr[1] as u32 == 0,
        // Which is noticed first: that the operand is misaligned, or that its page is missing.
        (Outcome::Fault(a), Outcome::Fault(b)) if (a.code == 0x80) != (b.code == 0x80) => {
            a.signo == libc::SIGSEGV && b.signo == libc::SIGSEGV
        }
        // The base register tells a stack exception from a protection fault.
        (Outcome::Fault(a), Outcome::Fault(b)) if a.code == 0x80 && b.code == 0x80 => {
            a.signo != b.signo
        }
        // Processors differ in
        //
        // - the element at which a string instruction faults, and what it has done by then;
        // - where slow x87 and state instructions fault first in their operand, and what they have
        //   stored;
        // - the order in which `enter` goes over what it reads and writes.
        (Outcome::Fault(a), Outcome::Fault(b)) => {
            let slow = matches!(
                i.mnemonic(),
                Fbstp | Fstp | Frstor | Fldenv | Fxrstor | Fxrstor64
            );
            let slow = slow && i.memory_size().size() > 8 || i.mnemonic() == Enter;
            a.signo == b.signo && (i.is_string_instruction() || i.mnemonic() == Enter || slow)
        }
        // Only the processor faults
        //
        // - when it flushes a line that is not mapped;
        // - in `enter`, which probes the room that it makes;
        // - at a branch to an address that is not canonical, before it is taken.
        (Outcome::Fault(_), Outcome::Boundary) => {
            matches!(i.mnemonic(), Clflush | Clflushopt | Clwb | Cldemote | Enter)
                || i.flow_control() != FlowControl::Next && r.cpu.rip >> 47 != 0
        }
        _ => false,
    }
}

pub(crate) fn compare_ends(diff: &mut String, n: &Native, r: &RunResult, case: &Case) {
    let same = match (n.end, r.end) {
        (Outcome::Boundary, Outcome::Boundary) => {
            r.pos == case.instrs.len() as u64 || r.end != Outcome::Boundary
        }
        (Outcome::Fault(a), Outcome::Fault(b)) => {
            // If the second page of an operand faults, processors differ in which of its bytes they
            // name. The address of a SIGFPE is that of the instruction.
            let near = a.addr.abs_diff(b.addr) < 64;
            let code = a.signo != libc::SIGSEGV && a.signo != libc::SIGBUS;
            let place = a.addr == b.addr || near || code && a.addr == a.pc && b.addr == b.pc;
            (a.signo, a.code) == (b.signo, b.code) && place
        }
        (Outcome::Fault(a), Outcome::Raise(hindsight_isa::desc::raise::GP)) => {
            a.signo == libc::SIGSEGV
        }
        _ => false,
    };
    if !same {
        let _ = writeln!(
            diff,
            "native {:x?}, record {:x?} at position {}",
            n.end, r.end, r.pos
        );
    }
}

pub(crate) fn compare_cpu(
    diff: &mut String,
    a: &str,
    x: &CpuState,
    b: &str,
    y: &CpuState,
    flags: u64,
) {
    for i in 0..16 {
        if x.gpr[i] != y.gpr[i] {
            let _ = writeln!(
                diff,
                "register {i}: {a} {:#x}, {b} {:#x}",
                x.gpr[i], y.gpr[i]
            );
        }
    }
    if x.rip != y.rip {
        let _ = writeln!(diff, "rip: {a} {:#x}, {b} {:#x}", x.rip, y.rip);
    }
    let mask = hindsight_isa::state::RFLAGS_MASK & !STATUS_FLAGS | flags;
    if (x.rflags ^ y.rflags) & mask != 0 {
        let (x, y) = (x.rflags, y.rflags);
        let _ = writeln!(diff, "flags: {a} {x:#x}, {b} {y:#x} (of {mask:#x})");
    }
}

pub(crate) fn compare_vec(diff: &mut String, a: &str, x: &VecState, b: &str, y: &VecState) {
    for i in 0..32 {
        if x.zmm[i] != y.zmm[i] {
            let _ = writeln!(
                diff,
                "zmm{i}: {a} {:02x?}\n {b} {:02x?}",
                x.zmm[i], y.zmm[i]
            );
        }
    }
    for i in 0..8 {
        if x.k[i] != y.k[i] {
            let _ = writeln!(diff, "k{i}: {a} {:#x}, {b} {:#x}", x.k[i], y.k[i]);
        }
        if x.st[i] != y.st[i] {
            let _ = writeln!(diff, "st{i}: {a} {:02x?}, {b} {:02x?}", x.st[i], y.st[i]);
        }
    }
    let words = |v: &VecState| (v.mxcsr, v.fcw, v.fsw, v.ftw);
    if words(x) != words(y) {
        let _ = writeln!(
            diff,
            "mxcsr fcw fsw ftw: {a} {:x?}, {b} {:x?}",
            words(x),
            words(y)
        );
    }
}

pub(crate) fn compare_bytes(diff: &mut String, case: &Case, what: &str, x: &[u8], y: &[u8]) {
    if let Some(i) = (0..x.len()).find(|i| x[*i] != y[*i]) {
        let (at, end) = (case.region.data + i as u64, (i + 16).min(x.len()));
        let _ = writeln!(
            diff,
            "{what} at {at:#x}: {:02x?}, {:02x?}",
            &x[i..end],
            &y[i..end]
        );
    }
}

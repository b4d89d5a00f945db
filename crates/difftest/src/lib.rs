//! Differential tests of the translator: one instruction (or a few) is run on the bare processor,
//! translated for recording, and replayed from what that recorded; registers, flags, vector state,
//! memory, predictor cells, faults and positions are compared.
//!
//! The runtime that serves translated code here shares its sources with the recorder where what
//! they do decides the outcome: line fills, checks ahead of masked instructions, guarded access.

extern crate alloc;

pub mod case;
mod compare;
pub mod confined;
pub mod generate;
pub mod memory;
pub mod native;
mod prepare;
pub mod record;
pub mod replay;
pub mod rng;
pub mod sequences;
pub mod state;
pub mod thread;

#[path = "../../recorder/src/guard.rs"]
#[allow(dead_code, missing_docs)]
pub mod guard;
#[path = "../../recorder/src/precheck.rs"]
#[allow(missing_docs)]
pub mod precheck;
#[path = "../../recorder/src/surprise.rs"]
#[allow(missing_docs)]
mod surprise;

/// A number from the environment, decimal or after `0x` hexadecimal.
pub fn setting(name: &str) -> Option<u64> {
    let v = std::env::var(name).ok()?;
    match v.strip_prefix("0x") {
        Some(h) => u64::from_str_radix(h, 16).ok(),
        None => v.parse().ok(),
    }
}

/// Stands for the recorder's module of this name.
pub mod slow {
    use crate::thread::{Stop, Thread};
    use iced_x86::Register;

    /// Ends the case: the recorder does not know the instruction.
    pub fn unsupported(_: &mut Thread, _: u64) -> ! {
        std::panic::resume_unwind(Box::new(Stop::Unsupported))
    }

    /// Value of a register, as addressing operands see it.
    pub fn value(t: &Thread, r: Register) -> Option<u64> {
        match r {
            Register::None => Some(0),
            Register::FS => Some(t.ctx.fs_base),
            Register::GS => Some(t.ctx.gs_base),
            _ if r.is_segment_register() => Some(0),
            _ => crate::state::gpr_value(&t.ctx.gpr, r),
        }
    }
}

/// The recorder's has a memory.
mod processor {
    pub use core::arch::x86_64::__cpuid_count as ask;
}

/// Stands for the recorder's module of this name.
mod nondet {
    /// The state components of this machine that belong to the guest.
    pub fn xcr0() -> u64 {
        hindsight_isa::xsave::Layout::detect().map_or(3, |l| l.mask)
    }
}

//! The registers in the forms that all virtual processors share.

use crate::core::{Core, slot};
use crate::flags::{Flags, STATUS};
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::{CpuState, VecState};

impl Core {
    /// General purpose registers, flags and segment bases.
    pub fn registers(&self) -> CpuState {
        let mut gpr = [0; 16];
        gpr.copy_from_slice(&self.gpr[..16]);
        CpuState {
            gpr,
            rip: self.rip,
            rflags: self.flags.bits() | self.other_flags,
            fs_base: self.gpr[slot::FS as usize],
            gs_base: self.gpr[slot::GS as usize],
        }
    }

    /// Continues with these registers.
    pub fn set_registers(&mut self, s: &CpuState) {
        self.gpr[..16].copy_from_slice(&s.gpr);
        self.gpr[slot::FS as usize] = s.fs_base;
        self.gpr[slot::GS as usize] = s.gs_base;
        self.rip = s.rip;
        self.set_rflags(s.rflags);
    }

    /// Sets all flags that a program can change.
    pub fn set_rflags(&mut self, rflags: u64) {
        self.flags = Flags::from_bits(rflags);
        self.other_flags = rflags & RFLAGS_MASK & !STATUS;
    }

    /// Vector, mask and x87 registers.
    pub fn vectors(&self) -> VecState {
        let mut v = VecState {
            k: self.k,
            mxcsr: self.mxcsr,
            ..VecState::default()
        };
        for (to, from) in v.zmm.iter_mut().zip(&self.zmm) {
            to.copy_from_slice(from.as_flattened());
        }
        self.x87.store(&mut v);
        v
    }

    /// Continues with these vector, mask and x87 registers.
    pub fn set_vectors(&mut self, v: &VecState) {
        self.k = v.k;
        self.mxcsr = v.mxcsr & 0xffff;
        for (to, from) in self.zmm.iter_mut().zip(&v.zmm) {
            to.as_flattened_mut().copy_from_slice(from);
        }
        self.x87.load(v);
    }
}

//! The registers of a virtual processor.

use super::Cpu;
use hindsight_isa::state::RFLAGS_MASK;
use hindsight_isa::{CpuState, VecState};

impl Cpu {
    /// The general purpose registers.
    pub fn registers(&self) -> CpuState {
        let c = self.window.ctx();
        CpuState {
            gpr: c.gpr,
            rip: self.rip,
            rflags: c.rflags & RFLAGS_MASK,
            fs_base: c.fs_base,
            gs_base: c.gs_base,
        }
    }

    /// The vector and x87 state.
    pub fn vectors(&self) -> VecState {
        self.layout.to_state(&self.area)
    }

    /// Continues with these registers.
    pub fn set_registers(&mut self, s: &CpuState) {
        let c = self.window.ctx_mut();
        c.gpr = s.gpr;
        c.rflags = s.rflags & RFLAGS_MASK;
        c.fs_base = s.fs_base;
        c.gs_base = s.gs_base;
        self.jump(s.rip);
    }

    /// Continues with this vector and x87 state.
    pub fn set_vectors(&mut self, v: &VecState) {
        // XRSTOR would fault on reserved bits.
        let v = VecState {
            mxcsr: v.mxcsr & 0xffff,
            ..*v
        };
        self.layout.from_state(&v, &mut self.area);
    }

    /// Continues at `rip`.
    pub fn jump(&mut self, rip: u64) {
        self.rip = rip;
        self.resume = None;
        self.link = None;
        self.lookup = false;
    }

    /// Completes the current instruction, which has `len` bytes.
    pub fn complete(&mut self, len: u64) {
        self.pos += 1;
        self.executed += 1;
        self.jump(self.rip.wrapping_add(len));
    }

    /// Sets the x87 state as FNINIT does.
    pub fn x87_init(&mut self) {
        let mut v = self.vectors();
        (v.fcw, v.fsw, v.ftw) = (0x37f, 0, 0);
        self.set_vectors(&v);
    }

    /// Masks all x87 exceptions.
    pub fn x87_mask(&mut self) {
        let mut v = self.vectors();
        v.fcw |= 0x3f;
        self.set_vectors(&v);
    }
}

//! Checks of whole vectors, on hosts where zmm31 and k7 are the translator's.

use crate::asm::ctx;
use crate::check::Check;
use crate::flags;
use crate::operand::Mem;
use crate::operand_reuse;
use crate::plan::mem_op;
use crate::regs::{RCX, gpr};
use crate::translator::{Translator, slot};
use alloc::vec::Vec;
use hindsight_isa::DescKind;
use hindsight_isa::ctx::d;
use iced_x86::{Code, Instruction, Mnemonic, Register};

/// Bytes of an element of the masked memory operand of `i`. Only for instructions that just read
/// the operand, and whose mask has one bit for each element of a whole vector in memory.
pub fn lanes_of_mask(i: &Instruction) -> Option<usize> {
    use Mnemonic::*;
    if i.op_mask() == Register::None || i.is_broadcast() || i.memory_index().is_vector_register() {
        return None;
    }
    let size = match i.mnemonic() {
        Vmovdqu8 | Vpcmpb | Vpcmpub | Vpcmpeqb | Vpcmpgtb | Vptestmb | Vptestnmb | Vpminub
        | Vpminsb | Vpmaxub | Vpmaxsb => 1,
        Vmovdqu16 | Vpcmpw | Vpcmpuw | Vpcmpeqw | Vpcmpgtw | Vptestmw | Vptestnmw | Vpminuw
        | Vpminsw => 2,
        Vmovdqu32 | Vmovdqa32 | Vmovups | Vmovaps | Vpcmpd | Vpcmpud | Vpcmpeqd | Vpcmpgtd
        | Vptestmd | Vptestnmd | Vpminud | Vpminsd | Vpandd | Vpord | Vpxord | Vpaddd | Vaddps
        | Vmulps => 4,
        Vmovdqu64 | Vmovdqa64 | Vmovupd | Vmovapd | Vpcmpq | Vpcmpuq | Vpcmpeqq | Vpcmpgtq
        | Vptestmq | Vptestnmq | Vpminuq | Vpminsq | Vpandq | Vporq | Vpxorq | Vpaddq | Vaddpd
        | Vmulpd => 8,
        _ => return None,
    };
    matches!(i.memory_size().size(), 16 | 32 | 64).then_some(size)
}

/// The part of zmm31 that holds `size` bytes.
fn low(size: usize) -> Register {
    match size {
        16 => Register::XMM31,
        32 => Register::YMM31,
        _ => Register::ZMM31,
    }
}

impl Translator {
    /// Loads the guest's zmm31 and k7.
    pub(crate) fn load_wide(&mut self) {
        self.a.rm(
            Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
            Register::ZMM31,
            ctx(d::ZMM31),
        );
        self.a.rm(Code::VEX_Kmovq_kr_km64, Register::K7, ctx(d::K7));
    }

    /// Stores the guest's zmm31 and k7.
    pub(crate) fn store_wide(&mut self) {
        self.a.mr(
            Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
            ctx(d::ZMM31),
            Register::ZMM31,
        );
        self.a.mr(Code::VEX_Kmovq_m64_kr, ctx(d::K7), Register::K7);
    }

    /// A read under a mask. The selected elements are loaded and compared. After a misprediction
    /// the runtime brings the cells up to date, for which it looks at the mask. Then the
    /// instruction reads the cells.
    pub(crate) fn masked_read(&mut self, i: &Instruction) {
        let (Some(element), Some(m)) = (lanes_of_mask(i), self.mem(i)) else {
            return self.unsupported();
        };
        let n = i.memory_size().size().trailing_zeros() as usize - 4;
        let e = element.trailing_zeros() as usize;
        const LOAD: [[Code; 3]; 4] = [
            [
                Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128,
                Code::EVEX_Vmovdqu8_ymm_k1z_ymmm256,
                Code::EVEX_Vmovdqu8_zmm_k1z_zmmm512,
            ],
            [
                Code::EVEX_Vmovdqu16_xmm_k1z_xmmm128,
                Code::EVEX_Vmovdqu16_ymm_k1z_ymmm256,
                Code::EVEX_Vmovdqu16_zmm_k1z_zmmm512,
            ],
            [
                Code::EVEX_Vmovdqu32_xmm_k1z_xmmm128,
                Code::EVEX_Vmovdqu32_ymm_k1z_ymmm256,
                Code::EVEX_Vmovdqu32_zmm_k1z_zmmm512,
            ],
            [
                Code::EVEX_Vmovdqu64_xmm_k1z_xmmm128,
                Code::EVEX_Vmovdqu64_ymm_k1z_ymmm256,
                Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
            ],
        ];
        const COMPARE: [[Code; 3]; 4] = [
            [
                Code::EVEX_Vpcmpub_kr_k1_xmm_xmmm128_imm8,
                Code::EVEX_Vpcmpub_kr_k1_ymm_ymmm256_imm8,
                Code::EVEX_Vpcmpub_kr_k1_zmm_zmmm512_imm8,
            ],
            [
                Code::EVEX_Vpcmpuw_kr_k1_xmm_xmmm128_imm8,
                Code::EVEX_Vpcmpuw_kr_k1_ymm_ymmm256_imm8,
                Code::EVEX_Vpcmpuw_kr_k1_zmm_zmmm512_imm8,
            ],
            [
                Code::EVEX_Vpcmpud_kr_k1_xmm_xmmm128b32_imm8,
                Code::EVEX_Vpcmpud_kr_k1_ymm_ymmm256b32_imm8,
                Code::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8,
            ],
            [
                Code::EVEX_Vpcmpuq_kr_k1_xmm_xmmm128b64_imm8,
                Code::EVEX_Vpcmpuq_kr_k1_ymm_ymmm256b64_imm8,
                Code::EVEX_Vpcmpuq_kr_k1_zmm_zmmm512b64_imm8,
            ],
        ];
        let reg = [Register::XMM31, Register::YMM31, Register::ZMM31][n];
        let load = Instruction::with2(LOAD[e][n], reg, m.real);
        let compare = Instruction::with4(COMPARE[e][n], Register::K7, reg, m.cell, 4u32);
        let (Ok(mut load), Ok(mut compare)) = (load, compare) else {
            return self.unsupported();
        };
        load.set_op_mask(i.op_mask());
        load.set_zeroing_masking(true);
        compare.set_op_mask(i.op_mask());
        self.a.put(&load);
        self.a.put(&compare);
        let dead = self.cur.before & flags::ALL == 0;
        let miss = if dead {
            self.a
                .rr(Code::VEX_Kortestq_kr_kr, Register::K7, Register::K7);
            self.a.jump_later(&[0x0f, 0x85])
        } else {
            self.a.spill(slot::CHECK, RCX);
            self.a.rr(Code::VEX_Kmovq_r64_kr, gpr(RCX, 8), Register::K7);
            let same = self.a.short(&[0xe3]);
            let miss = self.a.jump_later(&[0xe9]);
            self.a.land(same);
            self.a.unspill(RCX, slot::CHECK);
            miss
        };
        self.masked_stub(miss, dead);
        self.copy_with(i, &m.cell);
    }

    /// The stub of a masked read. The runtime looks at the instruction itself, so it needs the
    /// guest's registers. Borrowed ones come back for that time.
    fn masked_stub(&mut self, miss: usize, dead: bool) {
        let done = self.a.here();
        self.a.cold(true);
        let here = self.a.here();
        self.a.aim(miss, here);
        if !dead {
            self.a.unspill(RCX, slot::CHECK);
        }
        self.around_runtime(DescKind::PreCheck, 0, done);
        self.a.cold(false);
    }

    /// Checks a whole vector through zmm31. Then zmm31 replaces the operand, if the instruction has
    /// such a form. If not, the instruction reads the cells. What was compared with another vector
    /// is not compared again.
    pub(crate) fn wide_read(&mut self, i: &Instruction, size: usize, m: &Mem) {
        let on = |part: Register| mem_op(i).and_then(|op| operand_reuse::on_register(i, op, part));
        let part = low(size);
        let held = match self.fused_reads.second(self.cur.index) {
            Some(second) => {
                let held = on(part);
                if second.upper && held.is_some() {
                    self.upper_half(size);
                }
                held
            }
            None => {
                let (whole, n) = self.compared_with(m, size);
                let first = whole.real.displacement == m.real.displacement;
                let held = on(part).filter(|_| first);
                let code = match n {
                    16 => Code::EVEX_Vmovdqu64_xmm_k1z_xmmm128,
                    32 => Code::EVEX_Vmovdqu64_ymm_k1z_ymmm256,
                    _ => Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
                };
                self.a.rm(code, low(n), whole.real);
                let (cell, again) = (whole.cell, held.is_some() || n > size);
                self.wide_check(low(n), n, &whole, |t| {
                    if again {
                        t.a.rm(code, low(n), cell);
                    }
                });
                held
            }
        };
        match held {
            Some(held) => self.copy(&held),
            None => self.copy_with(i, &m.cell),
        }
    }

    /// Moves the upper of the two vectors in zmm31 to the place of the lower. Each has `size`
    /// bytes.
    fn upper_half(&mut self, size: usize) {
        let i = match size {
            16 => Instruction::with3(
                Code::EVEX_Vextracti32x4_xmmm128_k1z_ymm_imm8,
                Register::XMM31,
                Register::YMM31,
                1u32,
            ),
            _ => Instruction::with3(
                Code::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8,
                Register::YMM31,
                Register::ZMM31,
                1u32,
            ),
        };
        match i {
            Ok(i) => self.a.put(&i),
            Err(_) => self.unsupported(),
        }
    }

    /// Compares a vector register with the cells at `m`.
    fn wide_check(&mut self, reg: Register, size: usize, m: &Mem, reload: impl FnOnce(&mut Self)) {
        let code = match size {
            16 => Code::EVEX_Vpcmpq_kr_k1_xmm_xmmm128b64_imm8,
            32 => Code::EVEX_Vpcmpq_kr_k1_ymm_ymmm256b64_imm8,
            _ => Code::EVEX_Vpcmpq_kr_k1_zmm_zmmm512b64_imm8,
        };
        // vpcmpneqq k7, reg, cell
        match Instruction::with4(code, Register::K7, reg, m.cell, 4u32) {
            Ok(i) => self.a.put(&i),
            Err(_) => return self.unsupported(),
        }
        let dead = self.cur.before & flags::ALL == 0;
        let mut c = Check {
            dead,
            rcx_gone: !dead,
            misses: Vec::new(),
        };
        if dead {
            self.a
                .rr(Code::VEX_Kortestb_kr_kr, Register::K7, Register::K7);
            c.misses.push(self.a.jump_later(&[0x0f, 0x85]));
        } else {
            self.a.spill(slot::CHECK, RCX);
            self.a.rr(Code::VEX_Kmovb_r32_kr, gpr(RCX, 4), Register::K7);
            let same = self.a.short(&[0xe3]);
            c.misses.push(self.a.jump_later(&[0xe9]));
            self.a.land(same);
        }
        self.check_end(c, m, size, reload);
    }

    pub(crate) fn vec_load(&mut self, i: &Instruction, size: usize) {
        let Some(m) = self.mem(i) else {
            return self.unsupported();
        };
        if self.fused_reads.leads(self.cur.index)
            || self.fused_reads.second(self.cur.index).is_some()
        {
            return self.wide_read(i, size, &m);
        }
        let again = *i;
        self.copy_with(i, &m.real);
        let n = i.op_register(0).number() as u32;
        let reg = match size {
            16 => Register::XMM0 + n,
            32 => Register::YMM0 + n,
            _ => Register::ZMM0 + n,
        };
        self.wide_check(reg, size, &m, |t| t.copy_with(&again, &m.cell));
    }
}

//! Instructions with random operands, of each encoding that the decoder knows.

use crate::memory::{CODE, PAGE, Region};
use crate::state::random_target;
use hindsight_random::Rng;
use iced_x86::OpCodeOperandKind as K;
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, EncodingKind, Instruction, Mnemonic, OpKind, Register,
    RoundingControl,
};

/// Whether the tests cover an encoding: a 64-bit program may meet it, and it does no harm here.
pub fn is_tested(code: Code) -> bool {
    let o = code.op_code();
    o.is_instruction()
        && o.mode64()
        && o.is_available_in_mode(64)
        && !matches!(
            o.encoding(),
            EncodingKind::MVEX | EncodingKind::D3NOW | EncodingKind::XOP
        )
        && o.decoder_option() == DecoderOptions::NONE
        && !harmful(code)
        // AMD's processors read four bytes of memory, Intel's two. That matters only at the end of
        // a page.
        && code != Code::Movsxd_r16_rm16
}

/// Register `n` of a class that begins at `first`.
fn register(first: Register, n: u64) -> Register {
    first + n as u32
}

/// A general purpose register. Those that the translator treats differently are more likely.
fn general(rng: &mut Rng, size: usize) -> Register {
    let special = [0, 1, 2, 4, 5, 10, 10, 11, 11, 12, 13, 15];
    let n = if rng.one_in(2) {
        rng.pick(&special)
    } else {
        rng.below(16)
    };
    match size {
        1 if rng.one_in(4) => register(Register::AH, rng.below(4)),
        1 if n >= 4 => register(Register::SPL, n - 4),
        1 => register(Register::AL, n),
        2 => register(Register::AX, n),
        4 => register(Register::EAX, n),
        _ => register(Register::RAX, n),
    }
}

struct Builder<'a> {
    i: Instruction,
    rng: &'a mut Rng,
    region: &'a Region,
    pc: u64,
    evex: bool,
}

/// An instruction of encoding `code`, to run at `pc`. Its constant addresses lie in `region`.
/// `None` if there is none that can be tested.
pub fn generate(code: Code, rng: &mut Rng, region: &Region, pc: u64) -> Option<Instruction> {
    let o = code.op_code();
    let mut i = Instruction::default();
    i.set_code(code);
    let evex = o.encoding() == EncodingKind::EVEX;
    let mut b = Builder {
        i,
        rng,
        region,
        pc,
        evex,
    };
    for n in 0..o.op_count() {
        b.operand(n, o.op_kind(n))?;
    }
    let memory = (0..o.op_count()).any(|n| b.i.op_kind(n) == OpKind::Memory);
    if evex {
        b.decorate(memory);
    }
    if memory
        && matches!(
            b.i.mnemonic(),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        )
    {
        // A pointer as a bit offset would lead anywhere.
        let r = b.i.op1_register().full_register();
        if b.i.memory_base().full_register() == r || b.i.memory_index().full_register() == r {
            return None;
        }
    }
    if memory && o.can_use_lock_prefix() && b.rng.one_in(2) && b.i.op0_kind() == OpKind::Memory {
        b.i.set_has_lock_prefix(true);
    }
    if b.i.is_string_instruction() {
        match b.rng.below(3) {
            0 => b.i.set_has_rep_prefix(true),
            1 if o.can_use_repne_prefix() => b.i.set_has_repne_prefix(true),
            _ => {}
        }
    }
    Some(b.i)
}

/// The encoded form, and what it decodes to. `None` if it cannot be encoded.
pub fn encode(i: &Instruction, pc: u64) -> Option<(Vec<u8>, Instruction)> {
    let mut e = Encoder::new(64);
    e.encode(i, pc).ok()?;
    let bytes = e.take_buffer();
    let back = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode();
    (!back.is_invalid() && back.code() == i.code() && back.len() == bytes.len())
        .then_some((bytes, back))
}

impl Builder<'_> {
    fn reg(&mut self, n: u32, r: Register) {
        self.i.set_op_kind(n, OpKind::Register);
        self.i.set_op_register(n, r);
    }

    fn gpr(&mut self, n: u32, size: usize) {
        let r = general(self.rng, size);
        self.reg(n, r);
    }

    fn vector(&mut self, n: u32, first: Register) {
        let k = self.rng.below(if self.evex { 32 } else { 16 });
        self.reg(n, register(first, k));
    }

    fn small(&mut self, n: u32, first: Register, count: u64) {
        let k = self.rng.below(count);
        self.reg(n, register(first, k));
    }

    fn either(&mut self, n: u32, reg: impl FnOnce(&mut Self)) {
        // Memory forms are what the tests are about.
        if self.rng.one_in(5) {
            reg(self)
        } else {
            self.memory(n)
        }
    }

    /// Makes operand `n` an immediate. `false` if `kind` is none.
    fn immediate(&mut self, n: u32, kind: K) -> bool {
        match kind {
            K::imm4_m2z | K::imm8 | K::imm8_const_1 => {
                let v = if kind == K::imm8_const_1 {
                    1
                } else {
                    self.rng.value() as u8
                };
                let second = (0..n)
                    .any(|m| matches!(self.i.op_kind(m), OpKind::Immediate8 | OpKind::Immediate16));
                if second {
                    self.i.set_op_kind(n, OpKind::Immediate8_2nd);
                    self.i.set_immediate8_2nd(v);
                } else {
                    self.i.set_op_kind(n, OpKind::Immediate8);
                    self.i.set_immediate8(v);
                }
            }
            K::imm8sex16 | K::imm8sex32 | K::imm8sex64 => {
                let v = self.rng.value() as i8 as i64;
                let k = match kind {
                    K::imm8sex16 => OpKind::Immediate8to16,
                    K::imm8sex32 => OpKind::Immediate8to32,
                    _ => OpKind::Immediate8to64,
                };
                self.i.set_op_kind(n, k);
                self.i.set_immediate_i64(n, v);
            }
            K::imm16 => {
                let v = self.rng.value() as u16;
                let enter = self.i.mnemonic() == Mnemonic::Enter;
                self.i.set_op_kind(n, OpKind::Immediate16);
                self.i.set_immediate16(if enter { v & 0x3ff } else { v });
            }
            K::imm32 => {
                self.i.set_op_kind(n, OpKind::Immediate32);
                let v = self.rng.value() as u32;
                self.i.set_immediate32(v);
            }
            K::imm32sex64 => {
                self.i.set_op_kind(n, OpKind::Immediate32to64);
                let v = self.rng.value() as i32 as i64;
                self.i.set_immediate32to64(v);
            }
            K::imm64 => {
                self.i.set_op_kind(n, OpKind::Immediate64);
                let v = self.rng.value();
                self.i.set_immediate64(v);
            }
            _ => return false,
        }
        true
    }

    fn operand(&mut self, n: u32, kind: K) -> Option<()> {
        match kind {
            K::mem | K::mem_mib => self.memory(n),
            K::mem_offs => {
                self.i.set_op_kind(n, OpKind::Memory);
                self.i.set_memory_displ_size(8);
                let t = random_target(self.rng, self.region, 8);
                self.i.set_memory_displacement64(t);
            }
            K::mem_vsib32x | K::mem_vsib64x => self.vsib(n, Register::XMM0),
            K::mem_vsib32y | K::mem_vsib64y => self.vsib(n, Register::YMM0),
            K::mem_vsib32z | K::mem_vsib64z => self.vsib(n, Register::ZMM0),
            K::r8_or_mem => self.either(n, |b| b.gpr(n, 1)),
            K::r16_or_mem => self.either(n, |b| b.gpr(n, 2)),
            K::r32_or_mem => self.either(n, |b| b.gpr(n, 4)),
            K::r64_or_mem => self.either(n, |b| b.gpr(n, 8)),
            K::mm_or_mem => self.either(n, |b| b.small(n, Register::MM0, 8)),
            K::xmm_or_mem => self.either(n, |b| b.vector(n, Register::XMM0)),
            K::ymm_or_mem => self.either(n, |b| b.vector(n, Register::YMM0)),
            K::zmm_or_mem => self.either(n, |b| b.vector(n, Register::ZMM0)),
            K::k_or_mem => self.either(n, |b| b.small(n, Register::K0, 8)),
            K::r8_reg | K::r8_opcode => self.gpr(n, 1),
            K::r16_reg | K::r16_reg_mem | K::r16_rm | K::r16_opcode => self.gpr(n, 2),
            K::r32_reg | K::r32_reg_mem | K::r32_rm | K::r32_opcode | K::r32_vvvv => self.gpr(n, 4),
            K::r64_reg | K::r64_reg_mem | K::r64_rm | K::r64_opcode | K::r64_vvvv => self.gpr(n, 8),
            K::seg_reg if n == 0 && self.i.code() != Code::Mov_rm16_Sreg => return None,
            K::seg_reg => self.small(n, Register::ES, 6),
            K::k_reg | K::k_rm | K::k_vvvv => self.small(n, Register::K0, 8),
            K::kp1_reg => {
                let k = self.rng.below(4) * 2;
                self.reg(n, register(Register::K0, k));
            }
            K::mm_reg | K::mm_rm => self.small(n, Register::MM0, 8),
            K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 | K::xmm_is5 => {
                self.vector(n, Register::XMM0)
            }
            K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 => {
                self.vector(n, Register::YMM0)
            }
            K::zmm_reg | K::zmm_rm | K::zmm_vvvv => self.vector(n, Register::ZMM0),
            K::es => self.reg(n, Register::ES),
            K::cs => self.reg(n, Register::CS),
            K::ss => self.reg(n, Register::SS),
            K::ds => self.reg(n, Register::DS),
            K::fs | K::gs if n == 0 => return None,
            K::fs => self.reg(n, Register::FS),
            K::gs => self.reg(n, Register::GS),
            K::al => self.reg(n, Register::AL),
            K::cl => self.reg(n, Register::CL),
            K::ax => self.reg(n, Register::AX),
            K::dx => self.reg(n, Register::DX),
            K::eax => self.reg(n, Register::EAX),
            K::rax => self.reg(n, Register::RAX),
            K::st0 => self.reg(n, Register::ST0),
            K::sti_opcode => self.small(n, Register::ST0, 8),
            _ if self.immediate(n, kind) => {}
            K::seg_rSI => self.implicit(n, OpKind::MemorySegESI, OpKind::MemorySegRSI),
            K::es_rDI => self.implicit(n, OpKind::MemoryESEDI, OpKind::MemoryESRDI),
            K::seg_rDI => {
                self.implicit(n, OpKind::MemorySegEDI, OpKind::MemorySegRDI);
                if self.i.op_kind(n) == OpKind::MemorySegRDI && self.rng.one_in(2) {
                    let s = self.rng.pick(&[Register::FS, Register::GS, Register::SS]);
                    self.i.set_segment_prefix(s);
                }
            }
            K::seg_rBX_al => {
                self.i.set_op_kind(n, OpKind::Memory);
                let bases = [Register::RBX, Register::RBX, Register::EBX];
                self.i.set_memory_base(self.rng.pick(&bases));
                self.i.set_memory_index(Register::AL);
                if self.rng.one_in(4) {
                    let s = self.rng.pick(&[Register::FS, Register::GS]);
                    self.i.set_segment_prefix(s);
                }
            }
            K::br64_1 => {
                let to = self.pc + 20 + self.rng.below(90);
                self.i.set_op_kind(n, OpKind::NearBranch64);
                self.i.set_near_branch64(to);
            }
            K::br64_4 => {
                let to = self.region.code + PAGE + self.rng.below(CODE as u64 - PAGE - 16);
                self.i.set_op_kind(n, OpKind::NearBranch64);
                self.i.set_near_branch64(to);
            }
            _ => return None,
        }
        Some(())
    }

    fn implicit(&mut self, n: u32, narrow: OpKind, wide: OpKind) {
        let other = (0..n).map(|m| self.i.op_kind(m)).find(|k| {
            matches!(
                k,
                OpKind::MemorySegESI
                    | OpKind::MemoryESEDI
                    | OpKind::MemorySegRSI
                    | OpKind::MemoryESRDI
            )
        });
        let short = match other {
            Some(k) => matches!(k, OpKind::MemorySegESI | OpKind::MemoryESEDI),
            None => self.rng.one_in(8),
        };
        self.i.set_op_kind(n, if short { narrow } else { wide });
    }

    fn memory(&mut self, n: u32) {
        let i = &mut self.i;
        i.set_op_kind(n, OpKind::Memory);
        i.set_memory_index_scale(1);
        let size = if self.rng.one_in(10) { 4 } else { 8 };
        let base = general(self.rng, size);
        let index = loop {
            let r = general(self.rng, size);
            if !matches!(r, Register::RSP | Register::ESP) {
                break r;
            }
        };
        let scale = self.rng.pick(&[1, 2, 4, 8]);
        let i = &mut self.i;
        let wide = size as u32;
        let (small, large) = (self.rng.u64() as i8 as i64, self.rng.u64() as i32 as i64);
        let mut place = |b: Register, x: Register, s: u32, d: i64, n: u32| {
            i.set_memory_base(b);
            i.set_memory_index(x);
            i.set_memory_index_scale(s);
            i.set_memory_displacement64(if size == 4 { d as u32 as u64 } else { d as u64 });
            i.set_memory_displ_size(n);
        };
        let none = Register::None;
        match self.rng.below(16) {
            0..=2 => place(base, none, 1, 0, 0),
            3 | 4 => place(base, none, 1, small, 1),
            5 => place(base, none, 1, large, wide),
            6 => place(base, index, scale, 0, 0),
            7 | 8 => place(base, index, scale, small, 1),
            9 => place(base, index, scale, large, wide),
            10 => place(none, index, scale, large, wide),
            11 => place(index, index, scale, small, 1),
            12 => {
                let t = random_target(self.rng, self.region, 8);
                place(none, none, 1, t as i64, wide);
            }
            13 => {
                let t = random_target(self.rng, self.region, 8);
                place(
                    if size == 4 {
                        Register::EIP
                    } else {
                        Register::RIP
                    },
                    none,
                    1,
                    t as i64,
                    wide,
                );
            }
            14 => place(base, index, scale, small, 1),
            _ => place(base, none, 1, 0, 0),
        }
        if self.rng.one_in(10) {
            let s = self.rng.pick(&[
                Register::FS,
                Register::FS,
                Register::GS,
                Register::ES,
                Register::SS,
            ]);
            self.i.set_segment_prefix(s);
        }
    }

    fn vsib(&mut self, n: u32, class: Register) {
        let k = self.rng.below(if self.evex { 32 } else { 16 });
        let base = general(self.rng, 8);
        let scale = self.rng.pick(&[1, 2, 4, 8]);
        let disp = self.rng.u64() as i8 as i64 as u64;
        let i = &mut self.i;
        i.set_op_kind(n, OpKind::Memory);
        i.set_memory_index(register(class, k));
        i.set_memory_index_scale(scale);
        i.set_memory_displacement64(disp);
        if self.rng.one_in(10) {
            i.set_memory_displ_size(8);
        } else {
            i.set_memory_base(base);
            i.set_memory_displ_size(1);
        }
    }

    fn decorate(&mut self, memory: bool) {
        let o = self.i.op_code();
        let must = o.require_op_mask_register();
        if o.can_use_op_mask_register() && (must || self.rng.one_in(2)) {
            let k = 1 + self.rng.below(7);
            self.i.set_op_mask(register(Register::K0, k));
            let dest_memory = self.i.op0_kind() == OpKind::Memory;
            if o.can_use_zeroing_masking() && !dest_memory && self.rng.one_in(2) {
                self.i.set_zeroing_masking(true);
            }
        }
        if memory && o.can_broadcast() && self.rng.one_in(2) {
            self.i.set_is_broadcast(true);
        }
        if !memory && o.can_use_rounding_control() && self.rng.one_in(2) {
            self.i.set_rounding_control(RoundingControl::RoundDown);
        } else if !memory && o.can_suppress_all_exceptions() && self.rng.one_in(2) {
            self.i.set_suppress_all_exceptions(true);
        }
    }
}

/// Whether running the instruction here would harm the harness: system calls, changes of what the
/// host uses, waits. Translated code refuses these or leaves them to the runtime.
fn harmful(code: Code) -> bool {
    use iced_x86::Mnemonic::*;
    matches!(
        code.mnemonic(),
        Syscall
            | Sysenter
            | Sysexit
            | Sysret
            | Int
            | Int1
            | Into
            | Xbegin
            | Xabort
            | Wrfsbase
            | Wrgsbase
            | Wrpkru
            | Umonitor
            | Umwait
            | Tpause
            | Monitor
            | Mwait
            | Monitorx
            | Mwaitx
            | Vmcall
            | Vmmcall
            | Vmgexit
            | Vmfunc
            | Tdcall
            | Seamcall
            | Enclu
            | Encls
            | Encodekey128
            | Encodekey256
            | Ldtilecfg
            | Tileloadd
            | Tileloaddt1
            | Senduipi
            | Uiret
            | Clui
            | Stui
            | Lfs
            | Lgs
            | Lss
            | Iret
            | Iretd
            | Iretq
            | Retf
            | Rdpmc
            | Getsec
            | Xrstor
            | Xrstor64
            | Xrstors
            | Xrstors64
            | Hreset
            | Serialize
            | Out
            | Outsb
            | Outsw
            | Outsd
            | In
            | Insb
            | Insw
            | Insd
            | Sti
            | Cli
            | Ptwrite
            | Pconfig
            | Saveprevssp
            | Rstorssp
            | Loadiwkey
    ) || code.op_code().must_be_cpl0()
}

//! Emits the two halves of a block. References inside a block are resolved when it is placed.

use crate::regs::{self, gpr};
use alloc::vec::Vec;
use hindsight_isa::Desc;
use hindsight_isa::ctx::{APART, d};
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

/// A position in a block: the half and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockOffset {
    /// In the cold half, otherwise in the hot one.
    pub cold: bool,
    /// Bytes from the beginning of the half.
    pub at: u32,
}

/// A field whose value depends on where the block is placed.
#[derive(Clone, Copy, Debug)]
pub struct Fixup {
    /// Where the field's four bytes are.
    pub at: BlockOffset,
    /// What the field refers to.
    pub target: BlockOffset,
    /// What the field holds. True: the distance of `target` from the field's end. False: the offset
    /// of `target` from the code cache's base.
    pub relative: bool,
}

/// A field whose value depends on the block's guest address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moving {
    /// Where the field begins.
    pub at: BlockOffset,
    /// What it holds.
    pub what: Field,
}

/// What a [`Moving`] field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The low four bytes of a guest address.
    Low,
    /// A guest address, in eight bytes.
    Wide,
    /// The displacement of an address's entry in an indirect-branch lookup table.
    Entry,
}

/// Writes host code. [`Asm::cold`] switches between the halves.
pub struct Asm {
    /// Made when it is first needed. A short program may find all of its code translated. Building
    /// the encoder's tables would take longer than all the rest of its run.
    enc: Option<Encoder>,
    /// Code of the hot half so far.
    pub hot: Vec<u8>,
    /// Code of the cold half so far.
    pub cold: Vec<u8>,
    in_cold: bool,
    /// Fields that depend on where the block is placed.
    pub fixups: Vec<Fixup>,
    /// Fields that depend on the block's guest address.
    pub moving: Vec<Moving>,
    /// The code depends on the block's guest address in a way that [`Asm::moving`] does not say. So
    /// the block serves only there.
    pub bound: bool,
    /// Something could not be encoded since [`Asm::savepoint`].
    pub failed: bool,
}

/// `gs:[disp]`: a field of the context block.
pub fn ctx(disp: i32) -> MemoryOperand {
    MemoryOperand::new(
        Register::None,
        Register::None,
        1,
        disp as i64,
        8,
        false,
        Register::GS,
    )
}

/// `[base + disp]`.
pub fn based(base: u8, disp: i32) -> MemoryOperand {
    MemoryOperand::new(
        gpr(base, 8),
        Register::None,
        1,
        disp as i64,
        // One byte, if the value fits.
        (disp != 0) as u32,
        false,
        Register::None,
    )
}

impl Asm {
    /// An empty assembler.
    pub fn new() -> Asm {
        Asm {
            enc: None,
            hot: Vec::new(),
            cold: Vec::new(),
            in_cold: false,
            fixups: Vec::new(),
            moving: Vec::new(),
            bound: false,
            failed: false,
        }
    }

    /// Throws away everything emitted.
    pub fn clear(&mut self) {
        self.hot.clear();
        self.cold.clear();
        self.fixups.clear();
        self.moving.clear();
        self.bound = false;
        self.in_cold = false;
    }

    /// A savepoint for [`Asm::rewind`]: lengths of both halves, of the fixups and of the moving
    /// fields. Clears `failed`.
    pub fn savepoint(&mut self) -> [usize; 4] {
        self.failed = false;
        [
            self.hot.len(),
            self.cold.len(),
            self.fixups.len(),
            self.moving.len(),
        ]
    }

    /// Takes back everything emitted since the savepoint.
    pub fn rewind(&mut self, savepoint: [usize; 4]) {
        self.hot.truncate(savepoint[0]);
        self.cold.truncate(savepoint[1]);
        self.fixups.truncate(savepoint[2]);
        self.moving.truncate(savepoint[3]);
        self.in_cold = false;
        self.failed = false;
    }

    fn buf(&mut self) -> &mut Vec<u8> {
        if self.in_cold {
            &mut self.cold
        } else {
            &mut self.hot
        }
    }

    /// Emits what follows into the cold half (true) or the hot half.
    pub fn cold(&mut self, cold: bool) {
        self.in_cold = cold;
    }

    /// Where the next byte goes.
    pub fn here(&mut self) -> BlockOffset {
        let at = self.buf().len() as u32;
        BlockOffset {
            cold: self.in_cold,
            at,
        }
    }

    /// Emits these bytes.
    pub fn bytes(&mut self, b: &[u8]) {
        self.buf().extend_from_slice(b);
    }

    /// Emits an instruction whose last four bytes are a displacement.
    pub fn at(&mut self, b: &[u8], disp: i32) {
        self.bytes(b);
        self.bytes(&disp.to_le_bytes());
    }

    /// Emits an instruction that ends with the displacement of an entry in an indirect-branch
    /// lookup table.
    pub fn lookup_entry(&mut self, b: &[u8], disp: i32) {
        self.at(b, disp);
        let end = self.here().at as usize;
        self.moves(end - 4, Field::Entry);
    }

    /// Emits an instruction. Returns false if it cannot be encoded, as with a high-byte register
    /// beside a REX prefix.
    #[must_use]
    pub fn try_put(&mut self, i: &Instruction) -> bool {
        let mut buf = core::mem::take(self.buf());
        let len = buf.len();
        let enc = self.enc.get_or_insert_with(|| Encoder::new(64));
        enc.set_buffer(buf);
        let ok = enc.encode(i, 0).is_ok();
        buf = enc.take_buffer();
        let offsets = enc.get_constant_offsets();
        if !ok {
            buf.truncate(len);
        }
        *self.buf() = buf;
        if ok && is_fixed_cell(i) {
            let offset = offsets.displacement_offset();
            self.moves(len + offset, Field::Low);
        }
        ok
    }

    /// Notes that the field at offset `at` of the current half moves with the block's guest
    /// address.
    fn moves(&mut self, at: usize, what: Field) {
        let at = BlockOffset {
            cold: self.in_cold,
            at: at as u32,
        };
        self.moving.push(Moving { at, what });
    }

    /// Emits an instruction that is known to be encodable. Sets `failed` otherwise.
    pub fn put(&mut self, i: &Instruction) {
        self.failed |= !self.try_put(i);
    }

    fn put_r(&mut self, r: Result<Instruction, iced_x86::IcedError>) {
        match r {
            Ok(i) => self.put(&i),
            Err(_) => self.failed = true,
        }
    }

    /// `op reg, mem`.
    pub fn rm(&mut self, code: Code, reg: Register, mem: MemoryOperand) {
        self.put_r(Instruction::with2(code, reg, mem));
    }

    /// `op mem, reg`.
    pub fn mr(&mut self, code: Code, mem: MemoryOperand, reg: Register) {
        self.put_r(Instruction::with2(code, mem, reg));
    }

    /// `op reg, reg`.
    pub fn rr(&mut self, code: Code, a: Register, b: Register) {
        self.put_r(Instruction::with2(code, a, b));
    }

    /// `op reg`.
    pub fn r(&mut self, code: Code, a: Register) {
        self.put_r(Instruction::with1(code, a));
    }

    /// Loads `size` bytes, zero-extended.
    pub fn load(&mut self, reg: u8, size: usize, mem: MemoryOperand) {
        let (code, s) = match size {
            1 => (Code::Movzx_r32_rm8, 4),
            2 => (Code::Movzx_r32_rm16, 4),
            4 => (Code::Mov_r32_rm32, 4),
            _ => (Code::Mov_r64_rm64, 8),
        };
        self.rm(code, gpr(reg, s), mem);
    }

    /// Stores the low `size` bytes of `reg`.
    pub fn store(&mut self, mem: MemoryOperand, reg: u8, size: usize) {
        let code = match size {
            1 => Code::Mov_rm8_r8,
            2 => Code::Mov_rm16_r16,
            4 => Code::Mov_rm32_r32,
            _ => Code::Mov_rm64_r64,
        };
        self.mr(code, mem, gpr(reg, size));
    }

    /// Compares the low `size` bytes of `reg` with memory.
    pub fn cmp(&mut self, reg: u8, size: usize, mem: MemoryOperand) {
        let code = match size {
            1 => Code::Cmp_r8_rm8,
            2 => Code::Cmp_r16_rm16,
            4 => Code::Cmp_r32_rm32,
            _ => Code::Cmp_r64_rm64,
        };
        self.rm(code, gpr(reg, size), mem);
    }

    /// Copies a 64-bit register.
    pub fn mov(&mut self, to: u8, from: u8) {
        self.rr(Code::Mov_r64_rm64, gpr(to, 8), gpr(from, 8));
    }

    /// Loads a constant in the shortest form.
    pub fn imm(&mut self, reg: u8, v: u64) {
        let r = if v <= u32::MAX as u64 {
            Instruction::with2(Code::Mov_r32_imm32, gpr(reg, 4), v as u32)
        } else if v as i64 >= i32::MIN as i64 && (v as i64) < 0 {
            Instruction::with2(Code::Mov_rm64_imm32, gpr(reg, 8), v as i32)
        } else {
            Instruction::with2(Code::Mov_r64_imm64, gpr(reg, 8), v)
        };
        self.put_r(r);
    }

    /// Loads the guest address `v`, which lies at a constant distance from the block's guest
    /// address.
    pub fn guest_address(&mut self, reg: u8, v: u64) {
        self.imm(reg, v);
        if v > u32::MAX as u64 && v >> 63 == 0 {
            let end = self.here().at as usize;
            self.moves(end - 8, Field::Wide);
        } else {
            // A form for small numbers was used. It does not fit every other address.
            self.bound = true;
        }
    }

    /// Loads the low 32 bits of a guest address that lies at a constant distance from the block's.
    pub fn short_guest_address(&mut self, reg: u8, v: u32) {
        self.imm(reg, v as u64);
        let end = self.here().at as usize;
        self.moves(end - 4, Field::Low);
    }

    /// `lea reg, mem` (64-bit, no flags).
    pub fn lea(&mut self, reg: u8, mem: MemoryOperand) {
        self.rm(Code::Lea_r64_m, gpr(reg, 8), mem);
    }

    /// Saves a register in the context block.
    pub fn spill(&mut self, disp: i32, reg: u8) {
        self.store(ctx(disp), reg, 8);
    }

    /// Loads a register from the context block.
    pub fn unspill(&mut self, reg: u8, disp: i32) {
        self.load(reg, 8, ctx(disp));
    }

    /// Emits `opcode rel32`, a jump to `target`. Returns where the displacement is.
    pub fn jump(&mut self, opcode: &[u8], target: BlockOffset) -> BlockOffset {
        self.bytes(opcode);
        let at = self.here();
        self.bytes(&[0; 4]);
        self.fixups.push(Fixup {
            at,
            target,
            relative: true,
        });
        at
    }

    /// Emits a jump whose target [`Asm::aim`] sets later. Returns the fixup's index.
    pub fn jump_later(&mut self, opcode: &[u8]) -> usize {
        let here = self.here();
        self.jump(opcode, here);
        self.fixups.len() - 1
    }

    /// Sets the target of a fixup.
    pub fn aim(&mut self, fixup: usize, target: BlockOffset) {
        self.fixups[fixup].target = target;
    }

    /// Emits a short jump forward within the current half. `opcode` includes any prefix. Returns
    /// what [`Asm::land`] takes.
    pub fn short(&mut self, opcode: &[u8]) -> u32 {
        self.bytes(opcode);
        self.bytes(&[0]);
        self.here().at
    }

    /// Lets the short jump lead here.
    pub fn land(&mut self, from: u32) {
        let b = self.buf();
        let dist = b.len() - from as usize;
        debug_assert!(dist < 128);
        b[from as usize - 1] = dist as u8;
    }

    /// Emits `lea reg, [rip + …]`. [`Asm::aim`] sets the target later. Returns the fixup's index.
    pub fn address(&mut self, reg: u8) -> usize {
        let rex = 0x48 | (reg >> 3) << 2;
        self.jump_later(&[rex, 0x8d, 0x05 | (reg & 7) << 3])
    }

    /// Leaves translated code. The caller appends the descriptor with [`Asm::desc`], which takes
    /// what this returns. Only in the cold half.
    pub fn exit(&mut self) -> usize {
        let index = self.exit_desc();
        // jmp qword gs:[EXIT_PTR]
        self.bytes(&[0x65, 0xff, 0x24, 0x25]);
        self.bytes(&d::EXIT_PTR.to_le_bytes());
        index
    }

    /// Says which descriptor a later exit has, without leaving.
    pub fn exit_desc(&mut self) -> usize {
        // mov dword gs:[DESC], imm32
        self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        self.bytes(&d::DESC.to_le_bytes());
        let at = self.here();
        self.bytes(&[0; 4]);
        self.fixups.push(Fixup {
            at,
            target: at,
            relative: false,
        });
        self.fixups.len() - 1
    }

    /// Appends the descriptor of `exit`. `resume` and `patch` are stored as offsets from the code
    /// cache's base.
    pub fn desc(
        &mut self,
        exit: usize,
        desc: &Desc,
        resume: Option<BlockOffset>,
        patch: Option<BlockOffset>,
    ) {
        let here = self.here();
        self.fixups[exit].target = here;
        let b = desc.encode();
        let n = if desc.is_long() {
            Desc::LONG
        } else {
            Desc::SHORT
        };
        self.bytes(&b[..n]);
        self.moves(here.at as usize + Desc::PC, Field::Wide);
        for (offset, target) in [(4, resume), (16, patch)] {
            if let Some(target) = target {
                let at = BlockOffset {
                    cold: here.cold,
                    at: here.at + offset,
                };
                self.fixups.push(Fixup {
                    at,
                    target,
                    relative: false,
                });
            }
        }
    }

    /// Sets the resume field of the descriptor that begins at `desc`.
    pub fn desc_resume(&mut self, desc: BlockOffset, target: BlockOffset) {
        let at = BlockOffset {
            cold: desc.cold,
            at: desc.at + 4,
        };
        self.fixups.push(Fixup {
            at,
            target,
            relative: false,
        });
    }
}

/// The cell of a constant guest address, as an operand (see `Translator::mem`).
pub fn fixed_cell(at: u64) -> MemoryOperand {
    MemoryOperand::new(
        Register::None,
        Register::None,
        1,
        (at as u32 as i32).wrapping_sub(APART) as i64,
        4,
        false,
        Register::GS,
    )
}

/// Whether the operand of `i` is a [`fixed_cell`]. Fields of the context block are the only other
/// operands without registers. They have displacements of eight bytes.
fn is_fixed_cell(i: &Instruction) -> bool {
    i.segment_prefix() == Register::GS
        && i.memory_displ_size() == 4
        && i.memory_base() == Register::None
        && i.memory_index() == Register::None
}

/// Adds `n` to the instruction counter, without changing flags.
pub fn count(a: &mut Asm, n: i32) {
    a.lea(regs::CNT, based(regs::CNT, n));
}

/// The same in seven bytes, so that a jump can replace part of it.
pub fn count_wide(a: &mut Asm, n: i32) {
    let sum = MemoryOperand {
        displ_size: 8,
        ..based(regs::CNT, n)
    };
    a.lea(regs::CNT, sum);
}

/// Resolves `fixups` for halves that are placed at host addresses `hot_addr` and `cold_addr`.
/// `base` is the code cache's base.
pub fn resolve(
    hot: &mut [u8],
    cold: &mut [u8],
    fixups: &[Fixup],
    hot_addr: u64,
    cold_addr: u64,
    base: u64,
) {
    let addr = |p: BlockOffset| {
        if p.cold {
            cold_addr + p.at as u64
        } else {
            hot_addr + p.at as u64
        }
    };
    for f in fixups {
        let v = if f.relative {
            addr(f.target).wrapping_sub(addr(f.at) + 4) as u32
        } else {
            addr(f.target).wrapping_sub(base) as u32
        };
        let part: &mut [u8] = if f.at.cold { cold } else { hot };
        part[f.at.at as usize..f.at.at as usize + 4].copy_from_slice(&v.to_le_bytes());
    }
}

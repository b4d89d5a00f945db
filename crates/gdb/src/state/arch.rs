//! The registers of x86-64 with AVX-512, in the order of gdb's target descriptions.

use hindsight_isa::{CpuState, VecState, regs};
use hindsight_timeline::expression::Operand;
use std::fmt::Write;
use std::sync::OnceLock;

/// Segment selectors of 64-bit programs: cs, ss, ds, es, fs, gs.
const SELECTORS: [u32; 6] = [0x33, 0x2b, 0, 0, 0, 0];

/// All registers of a thread.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    pub cpu: CpuState,
    pub vec: Box<VecState>,
    /// Number of the system call that the thread stands at; all ones: none.
    pub orig_rax: u64,
}

impl Default for State {
    fn default() -> Self {
        State {
            cpu: CpuState::default(),
            vec: Box::default(),
            orig_rax: u64::MAX,
        }
    }
}

/// Where a register's value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Gpr(usize),
    Rip,
    Flags,
    Selector(usize),
    St(usize),
    /// fctrl, fstat, ftag, fiseg, fioff, foseg, fooff, fop.
    X87(usize),
    /// Bytes of a vector register from an offset.
    Vector(usize, usize),
    Mxcsr,
    OrigRax,
    FsBase,
    GsBase,
    Mask(usize),
}

/// A register of the description.
struct Slot {
    kind: Kind,
    /// Bytes.
    size: usize,
}

/// All registers, by number.
fn slots() -> &'static [Slot] {
    static SLOTS: OnceLock<Vec<Slot>> = OnceLock::new();
    SLOTS.get_or_init(|| {
        let mut out = Vec::new();
        let mut add = |kind, size| out.push(Slot { kind, size });
        regs::GDB.iter().for_each(|r| add(Kind::Gpr(*r), 8));
        add(Kind::Rip, 8);
        add(Kind::Flags, 4);
        (0..6).for_each(|i| add(Kind::Selector(i), 4));
        (0..8).for_each(|i| add(Kind::St(i), 10));
        (0..8).for_each(|i| add(Kind::X87(i), 4));
        (0..16).for_each(|i| add(Kind::Vector(i, 0), 16));
        add(Kind::Mxcsr, 4);
        add(Kind::OrigRax, 8);
        add(Kind::FsBase, 8);
        add(Kind::GsBase, 8);
        (0..16).for_each(|i| add(Kind::Vector(i, 16), 16));
        (0..8).for_each(|i| add(Kind::Mask(i), 8));
        (0..16).for_each(|i| add(Kind::Vector(i, 32), 32));
        (16..32).for_each(|i| add(Kind::Vector(i, 0), 16));
        (16..32).for_each(|i| add(Kind::Vector(i, 16), 16));
        (16..32).for_each(|i| add(Kind::Vector(i, 32), 32));
        out
    })
}

/// The target description, which gives registers their names, sizes and numbers.
pub fn description() -> &'static str {
    static XML: OnceLock<String> = OnceLock::new();
    XML.get_or_init(make_description)
}

/// The description that belongs to [`slots`].
fn make_description() -> String {
    const SEGMENTS: [&str; 6] = ["cs", "ss", "ds", "es", "fs", "gs"];
    const X87: [&str; 8] = [
        "fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop",
    ];
    const VECTOR_TYPES: &str = r#"<vector id="v8bf16" type="bfloat16" count="8"/><vector id="v4f" type="ieee_single" count="4"/><vector id="v2d" type="ieee_double" count="2"/><vector id="v16i8" type="int8" count="16"/><vector id="v8i16" type="int16" count="8"/><vector id="v4i32" type="int32" count="4"/><vector id="v2i64" type="int64" count="2"/><union id="vec128"><field name="v8_bfloat16" type="v8bf16"/><field name="v4_float" type="v4f"/><field name="v2_double" type="v2d"/><field name="v16_int8" type="v16i8"/><field name="v8_int16" type="v8i16"/><field name="v4_int32" type="v4i32"/><field name="v2_int64" type="v2i64"/><field name="uint128" type="uint128"/></union>"#;
    let mut x = String::from(
        r#"<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd"><target><architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>"#,
    );
    let reg = |x: &mut String, name: &str, bits: u32, kind: &str| {
        let _ = write!(x, r#"<reg name="{name}" bitsize="{bits}" type="{kind}"/>"#);
    };
    x += r#"<feature name="org.gnu.gdb.i386.core"><flags id="i386_eflags" size="4"><field name="" start="22" end="31"/><field name="CF" start="0" end="0"/><field name="" start="1" end="1"/><field name="PF" start="2" end="2"/><field name="AF" start="4" end="4"/><field name="ZF" start="6" end="6"/><field name="SF" start="7" end="7"/><field name="TF" start="8" end="8"/><field name="IF" start="9" end="9"/><field name="DF" start="10" end="10"/><field name="OF" start="11" end="11"/><field name="NT" start="14" end="14"/><field name="RF" start="16" end="16"/><field name="VM" start="17" end="17"/><field name="AC" start="18" end="18"/><field name="VIF" start="19" end="19"/><field name="VIP" start="20" end="20"/><field name="ID" start="21" end="21"/></flags>"#;
    for name in regs::GDB.map(|n| regs::NAMES[n]) {
        let kind = if matches!(name, "rbp" | "rsp") {
            "data_ptr"
        } else {
            "int64"
        };
        reg(&mut x, name, 64, kind);
    }
    reg(&mut x, "rip", 64, "code_ptr");
    reg(&mut x, "eflags", 32, "i386_eflags");
    SEGMENTS.iter().for_each(|n| reg(&mut x, n, 32, "int32"));
    (0..8).for_each(|i| reg(&mut x, &format!("st{i}"), 80, "i387_ext"));
    X87.iter().for_each(|n| reg(&mut x, n, 32, "int"));
    x += r#"</feature><feature name="org.gnu.gdb.i386.sse">"#;
    x += VECTOR_TYPES;
    x += r#"<flags id="i386_mxcsr" size="4"><field name="IE" start="0" end="0"/><field name="DE" start="1" end="1"/><field name="ZE" start="2" end="2"/><field name="OE" start="3" end="3"/><field name="UE" start="4" end="4"/><field name="PE" start="5" end="5"/><field name="DAZ" start="6" end="6"/><field name="IM" start="7" end="7"/><field name="DM" start="8" end="8"/><field name="ZM" start="9" end="9"/><field name="OM" start="10" end="10"/><field name="UM" start="11" end="11"/><field name="PM" start="12" end="12"/><field name="FZ" start="15" end="15"/></flags>"#;
    (0..16).for_each(|i| reg(&mut x, &format!("xmm{i}"), 128, "vec128"));
    reg(&mut x, "mxcsr", 32, "i386_mxcsr");
    x += r#"</feature><feature name="org.gnu.gdb.i386.linux">"#;
    reg(&mut x, "orig_rax", 64, "int");
    x += r#"</feature><feature name="org.gnu.gdb.i386.segments">"#;
    reg(&mut x, "fs_base", 64, "int");
    reg(&mut x, "gs_base", 64, "int");
    x += r#"</feature><feature name="org.gnu.gdb.i386.avx">"#;
    (0..16).for_each(|i| reg(&mut x, &format!("ymm{i}h"), 128, "uint128"));
    x += r#"</feature><feature name="org.gnu.gdb.i386.avx512">"#;
    x += VECTOR_TYPES;
    x += r#"<vector id="v2ui128" type="uint128" count="2"/>"#;
    (0..8).for_each(|i| reg(&mut x, &format!("k{i}"), 64, "uint64"));
    (0..16).for_each(|i| reg(&mut x, &format!("zmm{i}h"), 256, "v2ui128"));
    (16..32).for_each(|i| reg(&mut x, &format!("xmm{i}"), 128, "vec128"));
    (16..32).for_each(|i| reg(&mut x, &format!("ymm{i}h"), 128, "uint128"));
    (16..32).for_each(|i| reg(&mut x, &format!("zmm{i}h"), 256, "v2ui128"));
    x + "</feature></target>"
}

/// The tag word as the instruction `fnstenv` shows it: two bits for each register.
fn full_tags(v: &VecState) -> u16 {
    let top = (v.fsw >> 11 & 7) as usize;
    (0..8).fold(0, |tags, physical| {
        let tag = if v.ftw >> physical & 1 == 0 {
            3
        } else {
            let st = &v.st[(physical + 8 - top) % 8];
            let exponent = u16::from_le_bytes([st[8], st[9]]) & 0x7fff;
            let mantissa = u64::from_le_bytes(st[..8].try_into().unwrap_or_default());
            match (exponent, mantissa) {
                (0, 0) => 1,
                (0 | 0x7fff, _) => 2,
                (_, m) if m >> 63 == 0 => 2,
                _ => 0,
            }
        };
        tags | tag << (2 * physical)
    })
}

/// Whether the target description has a register of this number.
pub fn has_register(n: usize) -> bool {
    n < slots().len()
}

/// Where a register that is no vector register has its value.
pub enum General {
    Register(Operand),
    /// The flags, with these bits set.
    Flags(u64),
    Constant(u64),
}

/// Where a register has its value, by its number. `None`: there is none, or it is a vector or x87 register.
pub fn general_kind(n: usize) -> Option<General> {
    Some(match slots().get(n)?.kind {
        Kind::Gpr(r) => General::Register(Operand::General(r as u8)),
        Kind::Rip => General::Register(Operand::Rip),
        // Interrupts are enabled, and bit 1 is always set.
        Kind::Flags => General::Flags(0x202),
        Kind::Selector(i) => General::Constant(SELECTORS[i] as u64),
        Kind::FsBase => General::Register(Operand::FsBase),
        Kind::GsBase => General::Register(Operand::GsBase),
        _ => return None,
    })
}

/// A register that is part of [`CpuState`], by its number.
pub fn general(c: &CpuState, n: usize) -> Option<u64> {
    Some(match general_kind(n)? {
        General::Register(operand) => operand.of(c),
        General::Flags(set) => Operand::Flags.of(c) | set,
        General::Constant(value) => value,
    })
}

impl State {
    /// The bytes of a register, by its number.
    pub fn register(&self, n: usize) -> Option<Vec<u8>> {
        let slot = slots().get(n)?;
        let v = &*self.vec;
        let int = |x: u64| x.to_le_bytes()[..slot.size.min(8)].to_vec();
        if let Some(x) = general(&self.cpu, n) {
            return Some(int(x));
        }
        Some(match slot.kind {
            Kind::St(i) => v.st[i][..10].to_vec(),
            Kind::X87(i) => int(match i {
                0 => v.fcw as u64,
                1 => v.fsw as u64,
                2 => full_tags(v) as u64,
                // The recording does not say where the last x87 instruction was.
                _ => 0,
            }),
            Kind::Vector(r, from) => v.zmm[r][from..from + slot.size].to_vec(),
            Kind::Mxcsr => int(v.mxcsr as u64),
            Kind::OrigRax => int(self.orig_rax),
            Kind::Mask(i) => int(v.k[i]),
            _ => return None,
        })
    }

    /// Changes a register by its number; `false` if that cannot be done.
    pub fn set_register(&mut self, n: usize, bytes: &[u8]) -> bool {
        let Some(slot) = slots().get(n).filter(|s| s.size == bytes.len()) else {
            return false;
        };
        let value = bytes.iter().take(8).rev();
        let value = value.fold(0, |acc: u64, b| acc << 8 | *b as u64);
        let v = &mut *self.vec;
        match slot.kind {
            Kind::Gpr(r) => self.cpu.gpr[r] = value,
            Kind::Rip => self.cpu.rip = value,
            Kind::Flags => self.cpu.rflags = value,
            Kind::FsBase => self.cpu.fs_base = value,
            Kind::GsBase => self.cpu.gs_base = value,
            Kind::St(i) => v.st[i][..10].copy_from_slice(bytes),
            Kind::Vector(r, from) => v.zmm[r][from..from + slot.size].copy_from_slice(bytes),
            Kind::Mxcsr => v.mxcsr = value as u32,
            Kind::Mask(i) => v.k[i] = value,
            Kind::X87(0) => v.fcw = value as u16,
            Kind::X87(1) => v.fsw = value as u16,
            _ => return false,
        }
        true
    }

    /// All registers, in their order.
    pub fn all(&self) -> Vec<u8> {
        let each = (0..slots().len()).filter_map(|n| self.register(n));
        each.flatten().collect()
    }

    /// Takes the general purpose registers, rip and flags out of the bytes of all registers. The rest keeps its value.
    /// `false`: these are too few bytes.
    pub fn set_general(&mut self, mut all: &[u8]) -> bool {
        if all.len() < slots().iter().map(|s| s.size).sum::<usize>() {
            return false;
        }
        for slot in slots() {
            let (bytes, rest) = all.split_at(slot.size);
            all = rest;
            let value = bytes.iter().take(8).rev();
            let value = value.fold(0, |acc, b| acc << 8 | *b as u64);
            match slot.kind {
                Kind::Gpr(r) => self.cpu.gpr[r] = value,
                Kind::Rip => self.cpu.rip = value,
                Kind::Flags => self.cpu.rflags = value,
                _ => {}
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_and_values_have_the_same_registers() {
        let xml = description();
        let sizes: Vec<usize> = xml
            .split("bitsize=\"")
            .skip(1)
            .map(|s| s.split('"').next().unwrap().parse::<usize>().unwrap() / 8)
            .collect();
        assert_eq!(sizes, slots().iter().map(|s| s.size).collect::<Vec<_>>());
        let mut s = State::default();
        s.cpu.gpr[regs::RBX] = 0x1122;
        s.vec.zmm[17][33] = 9;
        // gdb's second register is rbx.
        assert_eq!(general(&s.cpu, 1), Some(0x1122));
        let at = xml
            .split("<reg ")
            .position(|r| r.starts_with("name=\"zmm17h\""))
            .unwrap()
            - 1;
        assert_eq!(s.register(at).unwrap()[1], 9);
        let bytes = s.all();
        let mut back = State::default();
        assert!(back.set_general(&bytes));
        assert_eq!(back.cpu.gpr, s.cpu.gpr);
        assert!(!back.set_general(&bytes[1..]));
        assert_eq!(s.register(slots().len()), None);
    }

    #[test]
    fn tags_of_x87_registers() {
        // One register in use, at the top: physical register 7.
        let mut v = VecState {
            fsw: 7 << 11,
            ftw: 0x80,
            ..VecState::default()
        };
        v.st[0][..10].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);
        assert_eq!(full_tags(&v), 0x3fff);
        v.st[0] = [0; 16];
        assert_eq!(full_tags(&v), 0x7fff);
    }
}

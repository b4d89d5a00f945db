//! Compares the decoder with another one. Whatever it accepts, the other one must read in the same way. The list must
//! have nothing that it should not have.

use hindsight_confine::{Instr, decode};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// What leaves for the system, another ring or a device.
#[rustfmt::skip]
fn leaves(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Syscall | Sysenter | Int | Int1 | Int3 | Ud2 | Retf | Iretq | Uiret | Senduipi | Clui
        | Stui | Testui | Vmcall | Vmmcall | Vmfunc | Getsec | Getsecq | Encls | Enclu | Enclv
        | Hlt | Swapgs | Cli | Sti | In | Out | Insb | Insw | Insd | Outsb | Outsw | Outsd
    )
}

/// What tells of the processor or changes its state.
#[rustfmt::skip]
fn asks_processor(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Cpuid | Rdtsc | Rdtscp | Rdpid | Rdrand | Rdseed | Xgetbv | Rdpmc | Rdpru | Rdpkru | Wrpkru
        | Rdfsbase | Rdgsbase | Wrfsbase | Wrgsbase | Lfs | Lgs | Lss | Lsl | Lar | Verr | Verw
        | Sldt | Str | Smsw | Sgdt | Sidt | Monitor | Mwait | Monitorx | Mwaitx | Umonitor | Umwait
        | Tpause | Mcommit | Serialize | Hreset | Ptwrite
    )
}

/// What accesses memory in ways of its own: saved state, transactions, tiles, shadow stacks.
#[rustfmt::skip]
fn odd_access(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Xstore | Xcryptecb | Xcryptcbc | Xcryptctr | Xcryptcfb | Xcryptofb | Xsha1 | Xsha256
        | Montmul | Undoc | Movdir64b | Enqcmd | Enqcmds | Clzero | Xsave | Xsave64 | Xsavec
        | Xsavec64 | Xsaveopt | Xsaveopt64 | Xsaves | Xsaves64 | Xrstors | Xrstors64 | Fxsave
        | Fxsave64 | Fnsave | Fsave | Fnstenv | Fstenv | Xlatb | Xbegin | Xabort | Xend | Xtest
        | Incsspd | Incsspq | Rdsspd | Rdsspq | Rstorssp | Saveprevssp | Wrssd | Wrssq | Ldtilecfg
        | Sttilecfg | Tilerelease | Cmpsb | Scasb
    )
}

/// What no translated code has a use for.
fn forbidden(i: &Instruction) -> bool {
    let m = i.mnemonic();
    leaves(m) || asks_processor(m) || odd_access(m)
}

fn number(r: Register) -> u8 {
    match r {
        Register::None => 0xff,
        Register::RIP | Register::EIP => 0xfe,
        r => r.number() as u8,
    }
}

/// Compares the two readings of `code`. The error says what differs.
fn compare(code: &[u8], i: &Instr, info: &mut InstructionInfoFactory) -> Result<(), String> {
    let o = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
    let say = |what: &str| Err(format!("{what}: {code:02x?}: {i:x?}, {o:?} {:?}", o.code()));
    if o.is_invalid() {
        // A vector instruction with wrong values in its other fields raises an exception, whatever its operand is.
        use hindsight_confine::Map;
        return match i.map {
            Map::Vex(_) | Map::Evex(_) => Ok(()),
            // So does a lock prefix on an instruction that cannot be locked.
            _ if i.has(hindsight_confine::prefix::LOCK) => Ok(()),
            _ => say("only one accepts"),
        };
    }
    if o.len() != i.len as usize {
        return say("lengths");
    }
    if forbidden(&o) || o.is_privileged() {
        return say("not to be on the list");
    }
    let flow = match o.flow_control() {
        FlowControl::Next => true,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            o.op0_kind() == OpKind::NearBranch64
        }
        FlowControl::IndirectBranch => o.op0_kind() == OpKind::Memory && !o.is_jmp_far_indirect(),
        _ => false,
    };
    if !flow {
        return say("leads elsewhere");
    }
    let explicit = (0..o.op_count()).any(|n| o.op_kind(n) == OpKind::Memory);
    if explicit != i.mem {
        return say("operand or none");
    }
    if explicit {
        let base = number(o.memory_base());
        if base != i.base || number(o.memory_index()) != i.index {
            return say("registers of an address");
        }
        if i.index != 0xff && o.memory_index_scale() != 1 << i.scale {
            return say("scale");
        }
        let same = match i.disp_len {
            // The byte counts operands.
            2 => true,
            _ if base == 0xfe => true,
            _ => o.memory_displacement64() as u32 == i.disp as u32,
        };
        if !same {
            return say("displacement");
        }
        let short = [o.memory_base(), o.memory_index()]
            .iter()
            .any(|r| r.is_gpr32())
            || o.memory_base() == Register::EIP
            || base == 0xff && !o.memory_index().is_gpr() && o.memory_displ_size() == 4;
        if short != i.has(hindsight_confine::prefix::ADDRESS) {
            return say("size of an address");
        }
        let segment = match o.segment_prefix() {
            Register::FS => hindsight_confine::prefix::FS,
            Register::GS => hindsight_confine::prefix::GS,
            _ => 0,
        };
        let both = hindsight_confine::prefix::FS | hindsight_confine::prefix::GS;
        if i.prefixes & both != segment {
            return say("segment");
        }
    }
    let info = info.info(&o);
    let implicit = info.used_memory().len() > explicit as usize
        && !o.memory_index().is_vector_register()
        && !i.is_implicit();
    if implicit {
        return say("memory that stands nowhere");
    }
    for r in info.used_registers() {
        let writes = !matches!(
            r.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        );
        let reg = r.register();
        if writes && (reg.is_segment_register() || reg.is_cr() || reg.is_dr()) {
            return say("changes a segment");
        }
        if writes && reg.is_gpr() && i.sets() >> reg.full_register().number() & 1 == 0 {
            return say("changes a register");
        }
        if reg.is_tmm() || reg.is_bnd() {
            return say("uses what translated code does not have");
        }
    }
    Ok(())
}

/// Random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

const PREFIXES: [&[u8]; 16] = [
    &[],
    &[0x66],
    &[0xf2],
    &[0xf3],
    &[0x65],
    &[0x64],
    &[0x65, 0x67],
    &[0x67],
    &[0xf0],
    &[0x65, 0x66, 0x67],
    &[0x66, 0xf2],
    &[0xf3, 0x66],
    &[0x2e],
    &[0x64, 0x65],
    &[0x65, 0x64],
    &[0x66, 0x66],
];

/// Ways to begin an instruction, up to its opcode.
fn beginnings(r: &mut Random) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for rex in [&[][..], &[0x48], &[0x47]] {
        for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
            all.push([rex, map].concat());
        }
    }
    let b = |r: &mut Random| r.next() as u8;
    for map in 0..8u8 {
        for _ in 0..6 {
            all.push(vec![0xc4, b(r) & 0xe0 | map, b(r)]);
            all.push(vec![0x62, b(r) & 0xf0 | map, b(r) | 4, b(r)]);
        }
        for pp in 0..4 {
            all.push(vec![0xc4, 0xe0 | map, 0x78 | pp]);
            all.push(vec![0xc4, 0xe0 | map, 0xfc | pp]);
            all.push(vec![0x62, 0xf0 | map, 0x7c | pp, 0x48]);
            all.push(vec![0x62, 0xf0 | map, 0xfc | pp, 0x28]);
        }
    }
    for _ in 0..16 {
        all.push(vec![0xc5, b(r)]);
        all.push(vec![0x62, b(r), b(r), b(r)]);
    }
    all
}

/// Every opcode of every map, with prefixes, and with ModRM bytes of all kinds.
#[test]
fn two_decoders_agree() {
    let mut info = InstructionInfoFactory::new();
    let mut r = Random(88172645463325252);
    let (mut accepted, mut all) = (0u64, 0u64);
    let mut differ: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for prefix in PREFIXES {
        for begin in beginnings(&mut r) {
            for opcode in 0..=255u8 {
                // All operations of a group, with memory and with registers.
                for k in 0..20u8 {
                    let modrm = match k {
                        0..8 => k << 3 | 4,
                        8..16 => 0xc0 | (k & 7) << 3 | r.next() as u8 & 7,
                        _ => r.next() as u8,
                    };
                    let mut code = [prefix, &begin, &[opcode, modrm]].concat();
                    code.extend(r.next().to_le_bytes());
                    code.extend(r.next().to_le_bytes());
                    all += 1;
                    let Some(i) = decode(&code) else { continue };
                    accepted += 1;
                    if let Err(e) = compare(&code[..15.min(code.len())], &i, &mut info)
                        && seen.insert((format!("{:?}", i.map), i.pp, i.opcode))
                    {
                        differ.push(e);
                    }
                }
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(accepted > 300_000, "{accepted} of {all}");
}

#[test]
fn what_is_cut_is_no_instruction() {
    let mut r = Random(1234567);
    for _ in 0..200_000 {
        let code: Vec<u8> = (0..15).map(|_| r.next() as u8).collect();
        if let Some(i) = decode(&code) {
            for n in 0..i.len as usize {
                assert_eq!(decode(&code[..n]), None, "{code:x?}");
            }
            assert_eq!(decode(&code[..i.len as usize]), Some(i));
        }
    }
}

//! The code check allows what the translator makes, and refuses what the translator must not make.

use hindsight_confine::decode;
use hindsight_difftest::confined::{BASE, COLD, HOT, PC, is_unlisted, read, rules, ways};
use hindsight_difftest::generate::{encode, generate, is_tested};
use hindsight_difftest::memory::Region;
use hindsight_isa::Ctx;
use hindsight_isa::ctx::{APART, d, table};
use hindsight_random::Rng;
use hindsight_translate::Mode;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpKind,
    Register, UsedMemory,
};

const REGION: Region = Region {
    data: PC + 0x20_3000,
    code: PC & !4095,
};

/// An instruction of this encoding, and some behind it that end the block in one of several ways.
fn block(c: Code, rng: &mut Rng) -> Option<Vec<u8>> {
    let i = generate(c, rng, &REGION, PC)?;
    let (mut bytes, _) = encode(&i, PC)?;
    match rng.below(3) {
        0 => bytes.extend([0x0f, 0x84, 0x44, 0x33, 0x22, 0x01, 0xc3]),
        1 => bytes.extend([0x48, 0x8b, 0x43, 0x10, 0xe8, 0x11, 0x22, 0x33, 0xf4]),
        _ => bytes.extend([0xff, 0xe0]),
    }
    Some(bytes)
}

#[test]
fn what_is_emitted_is_allowed() {
    let seed = hindsight_difftest::setting("HINDSIGHT_DIFF_SEED");
    let mut rng = Rng(seed.unwrap_or(5));
    let mut ways = ways();
    let (mut blocks, mut refused) = (0, Vec::new());
    for c in Code::values().filter(|c| is_tested(*c)) {
        let Some(bytes) = block(c, &mut rng) else {
            continue;
        };
        for w in &mut ways {
            blocks += 1;
            let max = if rng.one_in(4) { 1 } else { 64 };
            match w.check(&bytes, max, rng.one_in(8)) {
                Err(e) if !is_unlisted(&e) => {
                    refused.push(format!("{c:?} {bytes:02x?}, {}: {e}", w.name))
                }
                _ => {}
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(blocks > 200_000, "{blocks}");
}

/// Instructions of random bytes, with all prefixes and of all maps. What the translator makes of
/// them is allowed, or is an instruction that is not on the list.
#[test]
fn any_bytes_become_what_is_allowed() {
    let seed = hindsight_difftest::setting("HINDSIGHT_DIFF_SEED");
    let mut rng = Rng(seed.unwrap_or(9));
    const PREFIXES: [u8; 11] = [
        0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x26, 0x3e,
    ];
    const MAPS: [&[u8]; 8] = [
        &[],
        &[],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        &[0xc4],
        &[0xc5],
        &[0x62],
    ];
    let mut ways = ways();
    let mut refused = Vec::new();
    for round in 0..6_000 {
        let mut code = Vec::new();
        while code.len() < 1 + rng.below(40) as usize {
            for _ in 0..rng.below(4) {
                code.push(rng.pick(&PREFIXES));
            }
            if rng.one_in(3) {
                code.push(0x40 | rng.below(16) as u8);
            }
            code.extend(rng.pick(&MAPS));
            code.extend(&rng.u64().to_le_bytes()[..rng.below(9) as usize]);
        }
        // These bytes once led out of the window.
        if round == 0 {
            code = vec![0x64, 0x66, 0x0f, 0xf7, 0xc1, 0xc3];
        }
        for w in &mut ways {
            match w.check(&code, 64, false) {
                Err(e) if !is_unlisted(&e) => refused.push(format!("{code:02x?}, {}: {e}", w.name)),
                _ => {}
            }
        }
    }
    assert!(
        refused.is_empty(),
        "{} {}",
        refused.len(),
        refused[..refused.len().min(20)].join("\n")
    );
}

/// A translator that forgets a prefix, or emits a wrong one, is found out where that matters.
#[test]
fn other_prefixes_are_refused() {
    let mut rng = Rng(11);
    let mut ways = ways();
    let mut tried = 0;
    for c in Code::values().filter(|c| is_tested(*c)).step_by(5) {
        let Some(bytes) = block(c, &mut rng) else {
            continue;
        };
        for w in ways
            .iter_mut()
            .filter(|w| w.translator.policy.mode == Mode::Replay)
        {
            if w.check(&bytes, 64, false).is_err() {
                continue;
            }
            let rules = rules(&w.translator);
            let (hot, cold) = (
                w.translator.block.hot.clone(),
                w.translator.block.cold.clone(),
            );
            let mut at = 0;
            while let Some(i) = decode(&hot[at..]) {
                let instr = &hot[at..at + i.len as usize];
                let first = instr.first().copied();
                let real = i.mem && !i.is_lea();
                if real && first == Some(0x65) {
                    let long = instr.get(1) == Some(&0x67);
                    // No segment; another segment; no segment, by a prefix that means nothing; an
                    // address of 64 bits.
                    let others = [
                        (0, 0x64),
                        (0, 0x3e),
                        (0, 0x66),
                        (0, 0xf2),
                        (0, 0xf0),
                        (1, 0x36),
                        (1, 0x66),
                    ];
                    for (k, p) in others.into_iter().take(if long { 7 } else { 5 }) {
                        // A store of ones may be that of an access mark, and one of a constant may log.
                        if p == 0x64 && (w.translator.observe || w.translator.runs) {
                            continue;
                        }
                        let mut bad = hot.clone();
                        bad[at + k] = p;
                        tried += 1;
                        let e = read(&mut w.checker, &rules, &bad, &cold);
                        assert!(e.is_err(), "{}: {p:02x} in {instr:02x?}", w.name);
                    }
                }
                at += i.len as usize;
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
}

/// A block as another decoder reads it, from its beginning along all ways.
struct Other<'a> {
    hot: &'a [u8],
    cold: &'a [u8],
    /// The code before it was spoiled.
    sound: &'a [u8],
    seen: std::collections::BTreeSet<(bool, usize)>,
    /// Where the displacements of jumps are.
    distances: Vec<u32>,
    /// Where descriptors are, in bytes from the code cache's base.
    descriptors: Vec<u32>,
    todo: Vec<u64>,
    info: InstructionInfoFactory,
}

impl Other<'_> {
    /// What leads out of the window and the context block, if anything does.
    fn escapes(&mut self) -> Option<String> {
        self.todo.push(BASE + HOT as u64);
        loop {
            while let Some(at) = self.todo.pop() {
                if let Some(what) = self.step(at) {
                    return Some(format!("{what} at {at:#x}"));
                }
            }
            let at = self.descriptors.pop()?;
            let desc = self.cold.get(at.wrapping_sub(COLD) as usize..);
            let Some(desc) = desc.and_then(hindsight_isa::Desc::decode) else {
                return Some("not a descriptor".into());
            };
            if desc.resume != 0 {
                self.todo.push(BASE + desc.resume as u64);
            }
            if desc.patch != 0 && !self.distances.contains(&desc.patch) {
                return Some("a link to no jump".into());
            }
        }
    }

    /// Reads the instruction at `at`. Returns what is wrong with it.
    fn step(&mut self, at: u64) -> Option<String> {
        let offset = (at - BASE) as u32;
        let cold = offset >= COLD;
        let (part, k) = match cold {
            true => (self.cold, (offset - COLD) as usize),
            false => (self.hot, (offset as usize).wrapping_sub(HOT as usize)),
        };
        let Some(code) = part.get(k..).filter(|c| !c.is_empty()) else {
            return Some("outside the block".into());
        };
        if !self.seen.insert((cold, k)) {
            return None;
        }
        // The search for a target may only be entered at its beginning: mov gs:[SAVED], rcx comes
        // before it.
        const FIND: [u8; 7] = [0x41, 0x0f, 0xb7, 0xca, 0x8d, 0x0c, 0x09];
        let same = |n: usize| self.sound.get(k..k + n) == code.get(..n);
        let rest = |from: usize, to: usize| self.sound.get(k + from..k + to) == code.get(from..to);
        // All of it must be unchanged, except where it continues if it finds nothing.
        if !cold && code.starts_with(&FIND) && same(23) && rest(27, 55) {
            let miss = i32::from_le_bytes(*code[23..].first_chunk().unwrap());
            self.todo.push((at as i64 + 27 + miss as i64) as u64);
            return None;
        }
        let i =
            Decoder::with_ip(64, &code[..code.len().min(15)], at, DecoderOptions::NONE).decode();
        // These raise an exception, which ends the replay.
        if i.is_invalid() || i.is_privileged() || matches!(i.flow_control(), FlowControl::Exception)
        {
            return None;
        }
        let says = |what: &str| Some(format!("{what}: {i:?} {:?}", i.code()));
        let next = i.next_ip();
        match i.flow_control() {
            FlowControl::Next => self.todo.push(next),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                self.todo.push(i.near_branch_target());
                if i.flow_control() == FlowControl::ConditionalBranch {
                    self.todo.push(next);
                }
                self.distances.push((next - BASE) as u32 - 4);
            }
            FlowControl::IndirectBranch => {
                let exits = [
                    d::EXIT_PTR,
                    d::SEARCH_PTR + 8 * table::CHECKED as i32,
                    d::SEARCH_PTR + 16,
                ];
                let known = exits.contains(&(i.memory_displacement64() as i32));
                let place = (i.memory_base(), i.memory_index()) == (Register::None, Register::None);
                let good = known
                    && place
                    && i.segment_prefix() == Register::GS
                    && !i.is_jmp_far_indirect();
                return if good { None } else { says("jumps anywhere") };
            }
            _ => return says("leaves"),
        }
        if i.mnemonic() == iced_x86::Mnemonic::Cpuid {
            return None;
        }
        for u in self.info.info(&i).used_registers() {
            let read = matches!(
                u.access(),
                iced_x86::OpAccess::Read | iced_x86::OpAccess::CondRead
            );
            if u.register().is_segment_register() && !read {
                return says("changes a segment");
            }
        }
        let memory = self.info.info(&i).used_memory().to_vec();
        let wrong = memory.iter().find_map(|m| self.access(&i, m, code));
        wrong.and_then(says)
    }

    /// What is wrong with memory `m`, which the instruction `i` uses.
    fn access(&mut self, i: &Instruction, m: &UsedMemory, code: &[u8]) -> Option<&'static str> {
        use iced_x86::OpAccess::{CondRead, NoMemAccess, None as NoAccess, Read};
        if matches!(m.access(), NoAccess | NoMemAccess) {
            return None;
        }
        if m.segment() != Register::GS {
            return Some("no window");
        }
        let short = |r: Register| r.is_gpr32();
        let bare = m.base() == Register::None && m.index() == Register::None;
        let rip = i.is_ip_rel_memory_operand();
        if short(m.base())
            || short(m.index())
            || (m.index().is_vector_register() || bare)
                && code[..i.len()].contains(&0x67)
                && !rip
                && is_short(i)
        {
            return None;
        }
        if !bare {
            return Some("an address of 64 bits");
        }
        let write = !matches!(m.access(), Read | CondRead);
        let at = m.displacement() as i64 + (hindsight_isa::ctx::CTX_SIZE as i64) + APART as i64;
        let desc = at == std::mem::offset_of!(Ctx, desc) as i64;
        if desc && write && i.op1_kind() == OpKind::Immediate32 {
            if i.immediate32() != u32::MAX {
                self.descriptors.push(i.immediate32());
            }
            return None;
        }
        (!is_own(at, m.memory_size().size() as i64, write)).then_some("a field")
    }
}

/// Whether the operand's address has 32 bits though no register says so.
fn is_short(i: &Instruction) -> bool {
    i.memory_displ_size() == 4 || i.memory_index().is_vector_register()
}

/// Whether translated code may use these bytes of the context block.
fn is_own(at: i64, size: i64, write: bool) -> bool {
    use std::mem::offset_of;
    let own = [
        (offset_of!(Ctx, gpr) + 80, 16),
        (offset_of!(Ctx, rip), 8),
        (offset_of!(Ctx, ea), 8),
        (offset_of!(Ctx, value), 8),
        (offset_of!(Ctx, executed), 32),
        (offset_of!(Ctx, spill), 128),
        (offset_of!(Ctx, scratch), 64),
        (offset_of!(Ctx, lent), 96),
        (offset_of!(Ctx, high), size_of::<hindsight_isa::High>()),
        (offset_of!(Ctx, zmm31), 72),
        (offset_of!(Ctx, flags), 8),
    ];
    let seen = [
        (offset_of!(Ctx, fs_base), 16),
        (offset_of!(Ctx, cell_mask), 8),
    ];
    let within = |(start, len): &(usize, usize)| {
        at >= *start as i64 && at + size.max(1) <= (start + len) as i64
    };
    own.iter().any(within) || !write && seen.iter().any(within)
}

/// Blocks with some bits changed. What the code check still accepts does no harm, as another
/// decoder reads it.
#[test]
fn spoiled_blocks_are_refused_or_harmless() {
    let seed = hindsight_difftest::setting("HINDSIGHT_DIFF_SEED");
    let mut rng = Rng(seed.unwrap_or(21));
    let mut way = ways().swap_remove(0);
    let rules = rules(&way.translator);
    let (mut accepted, mut refused) = (0, 0);
    for c in Code::values().filter(|c| is_tested(*c)).step_by(3) {
        use iced_x86::Mnemonic::*;
        // These rest on other instructions. The rules' own tests cover them.
        if matches!(
            c.mnemonic(),
            Popf | Popfq | Pushf | Pushfq | Xrstor | Xrstor64 | Maskmovq | Maskmovdqu | Vmaskmovdqu
        ) {
            continue;
        }
        let Some(bytes) = block(c, &mut rng) else {
            continue;
        };
        if way.check(&bytes, 64, false).is_err() {
            continue;
        }
        let b = &way.translator.block;
        let (hot, cold) = (b.hot.clone(), b.cold.clone());
        let other = |bad: &[u8], bad_cold: &[u8], known: &[u32]| {
            let mut other = Other {
                hot: bad,
                cold: bad_cold,
                sound: &hot,
                seen: Default::default(),
                // Jumps to which no execution leads any more may still be linked.
                distances: known.to_vec(),
                descriptors: Vec::new(),
                todo: Vec::new(),
                info: InstructionInfoFactory::new(),
            };
            (other.escapes(), other.distances)
        };
        let (escapes, known) = other(&hot, &cold, &[]);
        assert_eq!(escapes, None, "{c:?}: {hot:02x?}");
        for round in 0..60 {
            let (mut bad, mut bad_cold) = (hot.clone(), cold.clone());
            for _ in 0..(round > 0) as u64 + rng.below(2) {
                let part = if rng.one_in(4) {
                    &mut bad_cold
                } else {
                    &mut bad
                };
                let at = rng.below(part.len() as u64) as usize;
                match rng.one_in(3) {
                    true => {
                        part[at] = rng.pick(&[0x64, 0x65, 0x67, 0x0f, 0xff, 0xc3, 0x48, 0xf7, 0xae])
                    }
                    false => part[at] ^= 1 << rng.below(8),
                }
            }
            if read(&mut way.checker, &rules, &bad, &bad_cold).is_err() {
                refused += 1;
                continue;
            }
            accepted += 1;
            if let Some(what) = other(&bad, &bad_cold, &known).0 {
                panic!("{c:?}: {what}\n  {hot:02x?}\n  {bad:02x?}\n  {bad_cold:02x?}");
            }
        }
    }
    assert!(
        accepted > 5_000 && refused > 5_000,
        "{accepted} accepted, {refused} refused"
    );
}

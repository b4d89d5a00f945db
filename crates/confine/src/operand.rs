//! The memory operands that an instruction may have.

use crate::allowed::{STRING, VSIB};
use crate::decode::{IP, Instr, Map, NONE, prefix};
use crate::facts::{Fact, Facts, SCR};
use crate::{Kind, Marks, Rules, context};
use hindsight_isa::ctx::{APART, SEARCH_LAZY, d, table};
use hindsight_isa::{observe, regs};

/// Displacements may be off by this much: the length in bytes of the longest operands, except for restored state.
const SPARE: i32 = 512;

/// `Some`: the operand is allowed. The number, if there is one, is the offset of an earlier instruction on which that
/// relies. Nothing after that instruction may be entered.
pub(crate) type Allowed = Option<Option<u32>>;

const YES: Allowed = Some(None);

fn on(fact: Option<u32>) -> Allowed {
    fact.map(Some)
}

fn when(good: bool) -> Allowed {
    good.then_some(None)
}

/// Whether the memory operand of `i` is allowed. `i` begins with `code`, and may have none.
pub(crate) fn check(rules: &Rules, facts: &Facts, i: &Instr, code: &[u8]) -> Allowed {
    let replay = rules.kind == Kind::Replay;
    if is_masked_move(i) {
        return masked_move(rules, facts, i);
    }
    if replay && (i.has(prefix::LOCK) || i.is_implicit()) {
        return None;
    }
    if !i.mem {
        // A segment prefix has no meaning there. Code with one was meant to do something else.
        return when(!i.has(prefix::GS | prefix::FS) && string_is_flat(i));
    }
    if i.is_lea() {
        return when(i.base != IP && !i.has(prefix::GS | prefix::FS));
    }
    if i.base == IP {
        return None;
    }
    if i.is(Map::One, 0xff) && i.digit() == 4 {
        let exit = i.has(prefix::GS) && is_place(i);
        return when(exit && is_exit(i.disp, replay));
    }
    if i.is(Map::Legacy(1), 0x18) {
        return when(i.has(prefix::GS) && is_place(i) && context::is_target(i.disp));
    }
    match (i.has(prefix::GS), rules.kind) {
        (true, _) => behind_gs(rules, facts, i, code),
        (false, Kind::Replay) => elsewhere(rules, facts, i, code),
        (false, Kind::Record) => when(!i.has(prefix::FS)),
        (false, Kind::Plain) => YES,
    }
}

/// A string instruction may have no other segment and no 32-bit addresses.
fn string_is_flat(i: &Instr) -> bool {
    i.entry & STRING == 0 || !i.has(prefix::ADDRESS)
}

fn is_masked_move(i: &Instr) -> bool {
    matches!(i.map, Map::Legacy(1) | Map::Vex(1)) && i.opcode == 0xf7 && i.pp < 2
}

/// Whether the address has 64 bits and no register takes part in it.
fn is_place(i: &Instr) -> bool {
    (i.base, i.index) == (NONE, NONE) && !i.has(prefix::ADDRESS)
}

fn masked_move(rules: &Rules, facts: &Facts, i: &Instr) -> Allowed {
    let cell = i.has(prefix::GS);
    match rules.kind {
        Kind::Replay if cell && !i.has(prefix::ADDRESS) => {
            on(facts.of(regs::RDI as u8, bound(rules)))
        }
        Kind::Replay => None,
        Kind::Record => when(!i.has(prefix::FS)),
        Kind::Plain => when(!cell && !i.has(prefix::FS)),
    }
}

/// What must be known of a register that is the whole address.
fn bound(rules: &Rules) -> Fact {
    match rules.bits {
        32 => Fact::Low,
        _ => Fact::Near,
    }
}

/// Whether it is a bit test whose operand may be far from its address: a register says how far.
fn tests_far(i: &Instr) -> bool {
    i.map == Map::Legacy(1) && matches!(i.opcode, 0xa3 | 0xab | 0xb3 | 0xbb)
}

/// Whether a one-byte displacement with an EVEX prefix counts bytes. Usually it counts operands.
fn counts_bytes(i: &Instr) -> bool {
    match i.map {
        Map::Evex(2) => matches!(i.opcode, 0x62 | 0x63 | 0x78) && !i.wide,
        Map::Evex(3) => matches!(i.opcode, 0x14 | 0x20),
        _ => false,
    }
}

fn restores_state(i: &Instr) -> bool {
    i.is(Map::Legacy(1), 0xae) && i.digit() == 5
}

/// Operands with the GS segment: the window and the context block.
fn behind_gs(rules: &Rules, facts: &Facts, i: &Instr, code: &[u8]) -> Allowed {
    let replay = rules.kind == Kind::Replay;
    if i.has(prefix::ADDRESS) {
        // An address of 32 bits is in a window of 2^32 cells. State is restored in another way.
        let good = rules.kind != Kind::Plain && rules.bits == 32 && !restores_state(i);
        return when(good && !(replay && tests_far(i)));
    }
    if is_place(i) {
        if i.disp.saturating_add(APART) < 0 {
            return field(rules, i);
        }
        let cell = i.disp as i64 + APART as i64;
        let good = rules.kind != Kind::Plain && rules.bits < 32 && cell < 1 << rules.bits;
        return when(good && !tests_far(i) && !restores_state(i));
    }
    if !replay {
        return when(rules.kind == Kind::Record || is_search(i));
    }
    if i.index != NONE || i.entry & VSIB != 0 {
        return None;
    }
    if restores_state(i) {
        let address = facts.of(i.base, bound(rules)).filter(|_| i.disp == 0)?;
        return on(facts.restores_little().map(|f| f.min(address)));
    }
    if rules.marks == Marks::Beside && i.base == SCR {
        let fact = match write_marks().0 {
            0 => Fact::Low,
            n => Fact::Below(n),
        };
        let good = may_mark(i.disp, mark(i, code)?) && i.disp_len == 4;
        return on(facts.of(SCR, fact).filter(|_| good));
    }
    let near = (-APART..SPARE).contains(&i.disp) && (i.disp_len != 2 || counts_bytes(i));
    let near = near && rules.bits < 32 && !tests_far(i);
    on(facts.of(i.base, Fact::Cell).filter(|_| near))
}

/// Whether it looks into a lookup table outside of a search.
fn is_search(i: &Instr) -> bool {
    matches!(i.opcode, 0x03 | 0x2b | 0x8b) && i.map == Map::One && i.disp < -APART
}

/// A field of the context block.
fn field(rules: &Rules, i: &Instr) -> Allowed {
    let replay = rules.kind == Kind::Replay;
    let may = |size, write| when(context::may(i.disp, size, write, replay));
    let word = match (i.wide, i.has(prefix::OPERAND)) {
        (true, _) => 8,
        (_, true) => 2,
        _ => 4,
    };
    match (i.map, i.opcode, i.pp) {
        // mov
        (Map::One, 0x8b, _) => may(word, false),
        (Map::One, 0x89, _) => may(word, true),
        (Map::One, 0xc7, _) => may(word, true),
        // movzx
        (Map::Legacy(1), 0xb6, 0) => may(1, false),
        (Map::Legacy(1), 0xb7, 0) => may(2, false),
        // bt with a constant
        (Map::Legacy(1), 0xba, _) if i.digit() == 4 => may(word, false),
        // fnstcw
        (Map::One, 0xd9, _) if i.digit() == 7 && !replay => may(2, true),
        // kmovq
        (Map::Vex(1), 0x90, 0) if i.wide => may(8, false),
        (Map::Vex(1), 0x91, 0) if i.wide => may(8, true),
        // pext
        (Map::Vex(2), 0xf5, 2) => may(8, false),
        // vmovdqu
        (Map::Vex(1), 0x6f, 2) if replay => may(16 << i.length, false),
        (Map::Vex(1), 0x7f, 2) if replay => may(16 << i.length, true),
        // vmovdqu64
        (Map::Evex(1), 0x6f, 2) => may(64, false),
        (Map::Evex(1), 0x7f, 2) => may(64, true),
        _ => None,
    }
}

/// Whether code may jump through a pointer of the context block. In a replay, it may use the exit only together with a
/// descriptor.
fn is_exit(disp: i32, replay: bool) -> bool {
    let search = |n: usize| d::SEARCH_PTR + 8 * n as i32;
    disp == d::EXIT_PTR && !replay
        || disp == search(table::CHECKED)
        || disp == search(SEARCH_LAZY)
        || (disp == search(table::PLAIN) || disp == d::SEQUENCE_PTR) && !replay
}

/// Whether `size` bytes may be marked as written at this displacement from the last step.
pub(crate) fn may_mark(disp: i32, size: i32) -> bool {
    (0..=SLACK - size).contains(&disp.wrapping_sub(write_marks().1))
}

/// How far below the window marks of writes are: in steps of 2^31, and a displacement.
pub(crate) const fn write_marks() -> (u8, i32) {
    let mut left = observe::WRITES - APART as i64;
    let mut steps = 0;
    while left < i32::MIN as i64 {
        left -= i32::MIN as i64;
        steps += 1;
    }
    (steps, left as i32)
}

const SLACK: i32 = observe::SLACK as i32;

/// The number of bytes that `i` marks, by a `mov` of ones or by a masked store of a vector.
fn mark(i: &Instr, code: &[u8]) -> Option<i32> {
    match (i.map, i.opcode) {
        (Map::One, 0xc6 | 0xc7) if i.immediate(code) == -1 => {
            Some(match (i.opcode, i.wide, i.has(prefix::OPERAND)) {
                (0xc6, ..) => 1,
                (_, true, _) => 8,
                (_, _, true) => 2,
                _ => 4,
            })
        }
        (Map::Evex(1), 0x7f) if i.pp >= 2 => Some(16 << i.length),
        _ => None,
    }
}

/// Operands of a replay outside the window and the context block: marks, and the table of watched places.
fn elsewhere(rules: &Rules, facts: &Facts, i: &Instr, code: &[u8]) -> Allowed {
    if i.has(prefix::FS) {
        match rules.marks {
            Marks::None => return None,
            Marks::Runs => {
                // `mov` of a constant of 32 bits to an address of 32 bits.
                let short = i.has(prefix::ADDRESS) && !i.has(prefix::OPERAND) && !i.wide;
                return when(short && i.is(Map::One, 0xc7));
            }
            Marks::Beside | Marks::Near => {}
        }
        let size = mark(i, code)?;
        if i.has(prefix::ADDRESS) {
            return YES;
        }
        let good = i.base == SCR && i.index == NONE && i.disp_len != 2;
        let good = good && (0..=SLACK - size).contains(&i.disp.wrapping_sub(observe::APART));
        return on(facts.of(SCR, Fact::Low).filter(|_| good));
    }
    if i.has(prefix::ADDRESS) || i.index != NONE {
        return None;
    }
    if i.is(Map::Legacy(1), 0xb6) && i.disp == 0 {
        return on(facts.of(i.base, Fact::Watched));
    }
    if rules.marks == Marks::Near && i.base == SCR {
        let size = mark(i, code)?;
        let good =
            (0..=SLACK - size).contains(&i.disp.wrapping_sub(observe::NEAR)) && i.disp_len == 4;
        return on(facts.of(SCR, Fact::Low).filter(|_| good));
    }
    None
}

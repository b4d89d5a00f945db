//! Parameters and local variables of the function at an address, and where they are.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::Reader;
use crate::{Error, Module};
use gimli::constants::*;
use gimli::{
    AttributeValue, BaseAddresses, CfaRule, DwTag, EhFrame, EntriesTreeNode, EvaluationResult,
    Expression, LittleEndian, Location as Piece, Register, UnitOffset, UnitRef, UnwindContext,
    UnwindSection, Value,
};
use object::{Object, ObjectSection};

/// Evaluations longer than this are given up, and types nested deeper.
const MAX_STEPS: u32 = 1000;
const MAX_DEPTH: u32 = 16;

/// The registers of a thread that locations refer to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    /// General purpose registers by hardware number (rax, rcx, rdx, rbx, rsp, …, r15).
    pub gpr: [u64; 16],
    pub rip: u64,
    pub fs_base: u64,
}

/// Hardware numbers of the general purpose registers in DWARF's order.
const DWARF_ORDER: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

impl Registers {
    fn dwarf(&self, register: Register) -> Option<u64> {
        match register.0 {
            n @ 0..16 => Some(self.gpr[DWARF_ORDER[n as usize]]),
            16 => Some(self.rip),
            _ => None,
        }
    }
}

/// Where a variable is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// At this guest address.
    Memory(u64),
    /// In the general purpose register with this hardware number.
    Register(u8),
    /// Nowhere, but its value is known.
    Value(u64),
    /// In several pieces, in a vector register, or described in a way not supported.
    Complex,
    /// Not at all at this place of the program.
    OptimizedOut,
}

/// A parameter or local variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    pub name: String,
    /// As in the source, as far as it has a name.
    pub type_name: String,
    /// Bytes, if known.
    pub size: Option<u64>,
    pub parameter: bool,
    pub location: Location,
}

/// What an evaluation may look at.
struct Frame<'a> {
    registers: &'a Registers,
    /// Guest address minus file address.
    bias: u64,
    cfa: Option<u64>,
    base: Option<u64>,
    read: &'a mut dyn FnMut(u64) -> Option<u64>,
}

impl Module {
    /// The parameters and local variables in scope at `registers.rip` (a guest address; the module
    /// is mapped with `bias`), outermost scope first. `read` gives the 8 bytes at a guest address,
    /// if they are known. Empty without debug information.
    pub fn variables(
        &self,
        registers: &Registers,
        bias: u64,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Vec<Variable>, Error> {
        let pc = registers.rip.wrapping_sub(bias);
        let Some(dwarf) = self.dwarf() else {
            return Ok(Vec::new());
        };
        let Some(unit) = dwarf.find_dwarf_and_unit(pc).skip_all_loads() else {
            return Ok(Vec::new());
        };
        let cfa = frame_address(self, pc, registers);
        let mut frame = Frame {
            registers,
            bias,
            cfa,
            base: None,
            read,
        };
        let mut out = Vec::new();
        let mut tree = unit.unit.entries_tree(None)?;
        walk(unit, tree.root()?, pc, &mut frame, &mut out, 0)?;
        Ok(out)
    }
}

/// Visits the scopes that contain `pc`.
fn walk(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    pc: u64,
    frame: &mut Frame,
    out: &mut Vec<Variable>,
    depth: u32,
) -> Result<(), Error> {
    let entry = node.entry();
    if depth > MAX_DEPTH * 4 {
        return Ok(());
    }
    match entry.tag() {
        DW_TAG_subprogram | DW_TAG_lexical_block | DW_TAG_inlined_subroutine => {
            let mut ranges = unit.die_ranges(entry)?;
            let mut inside = false;
            while let Some(r) = ranges.next()? {
                inside |= (r.begin..r.end).contains(&pc);
            }
            if !inside {
                return Ok(());
            }
            if entry.tag() == DW_TAG_subprogram {
                frame.base = match entry.attr_value(DW_AT_frame_base) {
                    Some(a) => match a.exprloc_value() {
                        Some(e) => address(evaluate(unit, e, frame)),
                        None => None,
                    },
                    None => None,
                };
            }
        }
        DW_TAG_variable | DW_TAG_formal_parameter => {
            if let Some(v) = variable(unit, &node, pc, frame)? {
                out.push(v);
            }
            return Ok(());
        }
        // What can contain functions.
        DW_TAG_compile_unit | DW_TAG_namespace | DW_TAG_structure_type | DW_TAG_class_type => {}
        _ => return Ok(()),
    }
    let local = matches!(
        entry.tag(),
        DW_TAG_subprogram | DW_TAG_lexical_block | DW_TAG_inlined_subroutine
    );
    let mut children = node.children();
    while let Some(child) = children.next()? {
        // Variables of files, namespaces and classes are not local.
        if !local && child.entry().tag() == DW_TAG_variable {
            continue;
        }
        walk(unit, child, pc, frame, out, depth + 1)?;
    }
    Ok(())
}

fn variable(
    unit: UnitRef<Reader>,
    node: &EntriesTreeNode<Reader>,
    pc: u64,
    frame: &mut Frame,
) -> Result<Option<Variable>, Error> {
    let entry = node.entry();
    let parameter = entry.tag() == DW_TAG_formal_parameter;
    // Of an inlined or out-of-line copy the name is with the original.
    let mut name = entry.attr_value(DW_AT_name);
    let mut kind = entry.attr_value(DW_AT_type);
    if let Some(AttributeValue::UnitRef(origin)) = entry.attr_value(DW_AT_abstract_origin) {
        let mut at = unit.unit.entries_at_offset(origin)?;
        if at.next_entry()?
            && let Some(original) = at.current()
        {
            name = name.or(original.attr_value(DW_AT_name));
            kind = kind.or(original.attr_value(DW_AT_type));
        }
    }
    let Some(name) = name else {
        return Ok(None);
    };
    let name = text(unit, name);
    let (type_name, size) = match kind {
        Some(AttributeValue::UnitRef(t)) => describe(unit, t, 0),
        Some(_) => ("?".into(), None),
        None => ("void".into(), None),
    };
    let location = match entry.attr_value(DW_AT_location) {
        Some(a) => match a.exprloc_value() {
            Some(e) => evaluate(unit, e, frame),
            None => {
                let mut found = Location::OptimizedOut;
                if let Some(mut list) = unit.attr_locations(a)? {
                    while let Some(l) = list.next()? {
                        if (l.range.begin..l.range.end).contains(&pc) {
                            found = evaluate(unit, l.data, frame);
                            break;
                        }
                    }
                }
                found
            }
        },
        None => match entry.attr_value(DW_AT_const_value) {
            Some(v) => v.udata_value().map_or_else(
                || {
                    v.sdata_value()
                        .map_or(Location::Complex, |v| Location::Value(v as u64))
                },
                Location::Value,
            ),
            None => Location::OptimizedOut,
        },
    };
    Ok(Some(Variable {
        name,
        type_name,
        size,
        parameter,
        location,
    }))
}

pub(crate) fn text(unit: UnitRef<Reader>, v: AttributeValue<Reader>) -> String {
    match unit.attr_string(v) {
        Ok(s) => String::from_utf8_lossy(&s).into_owned(),
        Err(_) => "?".into(),
    }
}

/// Name and size of a type.
pub(crate) fn describe(
    unit: UnitRef<Reader>,
    at: UnitOffset<usize>,
    depth: u32,
) -> (String, Option<u64>) {
    let unknown = || ("?".to_string(), None);
    let Ok(mut cursor) = unit.unit.entries_at_offset(at) else {
        return unknown();
    };
    let Ok(true) = cursor.next_entry() else {
        return unknown();
    };
    let Some(entry) = cursor.current() else {
        return unknown();
    };
    let name = entry.attr_value(DW_AT_name).map(|n| text(unit, n));
    let mut size = entry
        .attr_value(DW_AT_byte_size)
        .and_then(|v| v.udata_value());
    let inner = || match entry.attr_value(DW_AT_type) {
        Some(AttributeValue::UnitRef(t)) if depth < MAX_DEPTH => describe(unit, t, depth + 1),
        Some(_) => unknown(),
        None => ("void".into(), None),
    };
    let wrap = |f: &dyn Fn(String) -> String, size: Option<u64>| {
        let (n, s) = inner();
        (f(n), size.or(s))
    };
    let named = |kind: &str| match &name {
        Some(n) => format!("{kind} {n}"),
        None => format!("{kind} {{…}}"),
    };
    match entry.tag() {
        DW_TAG_pointer_type => (inner().0 + " *", size.or(Some(8))),
        DW_TAG_reference_type => (inner().0 + " &", size.or(Some(8))),
        DW_TAG_rvalue_reference_type => (inner().0 + " &&", size.or(Some(8))),
        DW_TAG_const_type => wrap(&|n| qualified("const", n), size),
        DW_TAG_volatile_type => wrap(&|n| qualified("volatile", n), size),
        DW_TAG_restrict_type | DW_TAG_atomic_type => wrap(&|n| n, size),
        DW_TAG_typedef => (name.unwrap_or_default(), size.or(inner().1)),
        DW_TAG_structure_type => (named("struct"), size),
        DW_TAG_class_type => (named("class"), size),
        DW_TAG_union_type => (named("union"), size),
        DW_TAG_enumeration_type => (named("enum"), size),
        DW_TAG_subroutine_type => (inner().0 + " ()", None),
        DW_TAG_array_type => {
            let (n, s) = inner();
            match elements(unit, at) {
                Some(count) => {
                    size = size.or(s.and_then(|s| s.checked_mul(count)));
                    (format!("{n}[{count}]"), size)
                }
                None => (n + "[]", size),
            }
        }
        _ => (name.unwrap_or_else(|| "?".into()), size),
    }
}

/// A type's name with a qualifier, which of a pointer stands behind it: `const char * const`.
fn qualified(word: &str, name: String) -> String {
    let pointer =
        name.ends_with(['*', '&']) || name.ends_with("* const") || name.ends_with("* volatile");
    match pointer {
        true => format!("{name} {word}"),
        // Of an array and its elements, or of a type and its other name.
        false
            if name
                .split(' ')
                .take_while(|w| ["const", "volatile"].contains(w))
                .any(|w| w == word) =>
        {
            name
        }
        false => format!("{word} {name}"),
    }
}

/// Number of elements of an array type, all dimensions together.
fn elements(unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Option<u64> {
    let mut tree = unit.unit.entries_tree(Some(at)).ok()?;
    let mut children = tree.root().ok()?.children();
    let mut count = 1u64;
    while let Some(child) = children.next().ok()? {
        let e = child.entry();
        if e.tag() != DwTag(DW_TAG_subrange_type.0) {
            continue;
        }
        let n = match (e.attr_value(DW_AT_count), e.attr_value(DW_AT_upper_bound)) {
            (Some(n), _) => n.udata_value()?,
            (None, Some(b)) => b.udata_value()?.checked_add(1)?,
            (None, None) => return None,
        };
        count = count.checked_mul(n)?;
    }
    Some(count)
}

fn address(l: Location) -> Option<u64> {
    match l {
        Location::Memory(a) | Location::Value(a) => Some(a),
        _ => None,
    }
}

/// Evaluates a location expression; the frame base of a function may be a register, which then
/// holds the address.
fn evaluate(unit: UnitRef<Reader>, e: Expression<Reader>, frame: &mut Frame) -> Location {
    match try_evaluate(unit, e, frame) {
        Ok(Some(l)) => l,
        Ok(None) | Err(_) => Location::Complex,
    }
}

fn try_evaluate(
    unit: UnitRef<Reader>,
    e: Expression<Reader>,
    frame: &mut Frame,
) -> Result<Option<Location>, gimli::Error> {
    let mut eval = e.evaluation(unit.unit.encoding());
    eval.set_max_iterations(MAX_STEPS);
    let mut state = eval.evaluate()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let Some(v) = frame.registers.dwarf(register) else {
                    return Ok(None);
                };
                eval.resume_with_register(Value::Generic(v))?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let Some(v) = (frame.read)(address) else {
                    return Ok(None);
                };
                let bits = size as u32 * 8;
                let v = if bits < 64 { v & ((1 << bits) - 1) } else { v };
                eval.resume_with_memory(Value::Generic(v))?
            }
            EvaluationResult::RequiresFrameBase => {
                let Some(base) = frame.base else {
                    return Ok(None);
                };
                eval.resume_with_frame_base(base)?
            }
            EvaluationResult::RequiresCallFrameCfa => {
                let Some(cfa) = frame.cfa else {
                    return Ok(None);
                };
                eval.resume_with_call_frame_cfa(cfa)?
            }
            EvaluationResult::RequiresRelocatedAddress(a) => {
                eval.resume_with_relocated_address(a.wrapping_add(frame.bias))?
            }
            EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                let a = unit.dwarf.address(unit.unit, index)?;
                let bias = if relocate { frame.bias } else { 0 };
                eval.resume_with_indexed_address(a.wrapping_add(bias))?
            }
            _ => return Ok(None),
        };
    }
    let pieces = eval.as_result();
    Ok(Some(match pieces {
        [] => Location::OptimizedOut,
        [p] if p.size_in_bits.is_none() => match &p.location {
            Piece::Empty => Location::OptimizedOut,
            Piece::Address { address } => Location::Memory(*address),
            Piece::Register { register } => match register.0 {
                n @ 0..16 => Location::Register(DWARF_ORDER[n as usize] as u8),
                _ => Location::Complex,
            },
            Piece::Value { value } => value.to_u64(!0).map_or(Location::Complex, Location::Value),
            _ => Location::Complex,
        },
        _ => Location::Complex,
    }))
}

/// The canonical frame address at a file address, from the unwind tables.
fn frame_address(module: &Module, pc: u64, registers: &Registers) -> Option<u64> {
    let file = object::File::parse(module.data()).ok()?;
    let section = file.section_by_name(".eh_frame")?;
    let data = section.uncompressed_data().ok()?;
    let frames = EhFrame::new(&data, LittleEndian);
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(t) = file.section_by_name(".text") {
        bases = bases.set_text(t.address());
    }
    let mut ctx = UnwindContext::new();
    let row = frames
        .unwind_info_for_address(&bases, &mut ctx, pc, EhFrame::cie_from_offset)
        .ok()?;
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            Some(registers.dwarf(*register)?.wrapping_add_signed(*offset))
        }
        CfaRule::Expression(_) => None,
    }
}

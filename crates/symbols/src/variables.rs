//! Parameters and local variables of the function at an address, and where they are.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::Reader;
use crate::dwarf::text;
use crate::locations::{
    AtEntry, EvalFrame, KnownRegisters, Location, Registers, frame_base, location, value_at_entry,
};
use crate::types::elements;
use crate::types::{Shape, shape};
use crate::{Error, Module};
use gimli::constants::*;
use gimli::{AttributeValue, EntriesTreeNode, UnitOffset, UnitRef};

/// Types that nest deeper are given up.
const MAX_DEPTH: u32 = 16;

/// A parameter or local variable.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// Its name, as in the source.
    pub name: String,
    /// The name of its type, as in the source. Parts without a name are missing.
    pub type_name: String,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// It is a parameter.
    pub parameter: bool,
    /// Where it is.
    pub location: Location,
    /// For a parameter: what was passed, if the caller says that.
    pub passed: Option<Location>,
    /// What its bytes mean.
    pub shape: Shape,
}

impl Module {
    /// The parameters and local variables in scope at `registers.rip`, those of the outermost scope first.
    ///
    /// - `registers.rip` is a guest address; the module is mapped with `bias`.
    /// - `entry` has the registers with which the function began, if any is known.
    /// - `read` gives the 8 bytes at a guest address, if they are known.
    ///
    /// Without debug information there are none.
    ///
    /// # Errors
    /// If the debug information is damaged.
    pub fn variables(
        &self,
        registers: &Registers,
        entry: Option<&AtEntry>,
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
        let cfa = self.frame_address(pc, registers);
        let mut frame = EvalFrame {
            registers,
            known: KnownRegisters::ALL,
            entry,
            bias,
            cfa,
            base: None,
            read,
        };
        let mut out = Vec::new();
        let mut tree = unit.unit.entries_tree(None)?;
        let at = At { pc, begin: None };
        walk(unit, tree.root()?, at, &mut frame, &mut out, 0)?;
        Ok(out)
    }
}

/// Where variables are looked for, in file addresses.
#[derive(Clone, Copy)]
struct At {
    pc: u64,
    /// Where the function begins. Inlined functions do not count.
    begin: Option<u64>,
}

/// Visits the scopes that contain an address.
fn walk(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    mut at: At,
    frame: &mut EvalFrame,
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
            let (mut inside, mut begin) = (false, None);
            while let Some(r) = ranges.next()? {
                // Of several parts, the first one is called.
                begin.get_or_insert(r.begin);
                inside |= (r.begin..r.end).contains(&at.pc);
            }
            if !inside {
                return Ok(());
            }
            match entry.tag() {
                DW_TAG_subprogram => {
                    frame.base = frame_base(unit, entry, frame);
                    at.begin = begin;
                }
                DW_TAG_inlined_subroutine => at.begin = None,
                _ => {}
            }
        }
        DW_TAG_variable | DW_TAG_formal_parameter => {
            if let Some(v) = variable(unit, &node, at, frame)? {
                out.push(v);
            }
            return Ok(());
        }
        // Entries that can contain functions.
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
        walk(unit, child, at, frame, out, depth + 1)?;
    }
    Ok(())
}

fn variable(
    unit: UnitRef<Reader>,
    node: &EntriesTreeNode<Reader>,
    at: At,
    frame: &mut EvalFrame,
) -> Result<Option<Variable>, Error> {
    let entry = node.entry();
    let parameter = entry.tag() == DW_TAG_formal_parameter;
    // An inlined or out-of-line copy has its name at the original.
    let mut name = entry.attr_value(DW_AT_name);
    let mut kind = entry.attr_value(DW_AT_type);
    if let Some(AttributeValue::UnitRef(origin)) = entry.attr_value(DW_AT_abstract_origin) {
        let mut there = unit.unit.entries_at_offset(origin)?;
        if there.next_entry()?
            && let Some(original) = there.current()
        {
            name = name.or(original.attr_value(DW_AT_name));
            kind = kind.or(original.attr_value(DW_AT_type));
        }
    }
    let Some(name) = name else {
        return Ok(None);
    };
    let name = text(unit, name);
    let shape = shape(unit, kind.clone());
    let (type_name, size) = match kind {
        Some(AttributeValue::UnitRef(t)) => describe(unit, t, 0),
        Some(_) => ("?".into(), None),
        None => ("void".into(), None),
    };
    let location = location(unit, entry, at.pc, frame)?;
    let passed = match (at.begin.filter(|_| parameter), frame.entry) {
        (Some(begin), Some(known)) => value_at_entry(unit, entry, begin, frame.bias, known)?,
        _ => None,
    };
    Ok(Some(Variable {
        name,
        type_name,
        size,
        parameter,
        location,
        passed,
        shape,
    }))
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

/// A type's name with a qualifier. For a pointer the qualifier comes last: `const char * const`.
fn qualified(word: &str, name: String) -> String {
    let pointer =
        name.ends_with(['*', '&']) || name.ends_with("* const") || name.ends_with("* volatile");
    match pointer {
        true => format!("{name} {word}"),
        // An array may repeat the qualifier of its elements, and a type that of its other name.
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

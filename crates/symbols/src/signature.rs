//! What a function takes and returns.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::{Reader, attribute, declared, text, with};
use crate::locations::{
    AtEntry, EvalFrame, KnownRegisters, Location, Registers, frame_base, location,
};
use crate::types::{Shape, shape};
use crate::variables::describe;
use crate::{Error, Module, SourceLine};
use gimli::constants::*;
use gimli::{
    AttributeValue, DebuggingInformationEntry, EntriesTreeNode, Operation, UnitOffset, UnitRef,
};

/// Types that nest deeper are given up.
const MAX_DEPTH: u32 = 16;
/// Parts of names of functions that do not take what their source says.
const CLONES: [&str; 3] = [".constprop.", ".isra.", ".part."];

/// How a value is passed (System V ABI for x86-64, section 3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// In a general register: integers, pointers, references, enumerations.
    Integer,
    /// In a vector register: `float` and `double`.
    Float,
    /// In another way, or in several pieces.
    Other,
}

/// A parameter, or a result.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Its name. Empty if it has none.
    pub name: String,
    /// The name of its type, as in the source. Parts without a name are missing.
    pub type_name: String,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// How it is passed.
    pub class: Class,
    /// What its bytes mean.
    pub shape: Shape,
    /// It is at one place only, in the function's own frame, and the prologue writes it there. So it is not there
    /// before.
    pub spilled: bool,
}

/// What a function takes and returns.
#[derive(Clone, PartialEq, Debug)]
pub struct Signature {
    /// The parameters, in the order of the source.
    pub parameters: Vec<Parameter>,
    /// What it returns. `None`: nothing.
    pub result: Option<Parameter>,
    /// There may be more arguments (`...`).
    pub variadic: bool,
    /// The file address after the prologue, if known.
    pub body: Option<u64>,
    /// Where the function is declared.
    pub source: Option<SourceLine>,
    /// The function's entry in its unit.
    entry: usize,
}

impl Signature {
    /// Notes that it is not known how anything is passed.
    fn hide(&mut self) {
        for p in self.parameters.iter_mut().chain(&mut self.result) {
            p.class = Class::Other;
        }
    }
}

type Entry<'a> = DebuggingInformationEntry<Reader>;

impl Module {
    /// The signature of the function that begins at a file address. `None`: there is no debug information for it.
    ///
    /// # Errors
    /// If the debug information is damaged.
    pub fn signature(&self, addr: u64) -> Result<Option<Signature>, Error> {
        let Some(dwarf) = self.dwarf() else {
            return Ok(None);
        };
        let Some(unit) = dwarf.find_dwarf_and_unit(addr).skip_all_loads() else {
            return Ok(None);
        };
        let mut tree = unit.unit.entries_tree(None)?;
        let mut found = find(unit, tree.root()?, addr, 0)?;
        drop(dwarf);
        if let Some((signature, end)) = &mut found {
            signature.body = self.body(addr, *end)?;
        }
        let mut found = found.map(|f| f.0);
        // gcc makes clones of functions that only one file calls. They take fewer or other parameters than the source
        // says.
        let symbol = self.function(addr).map_or("", |(f, _)| &f.name);
        if CLONES.iter().any(|c| symbol.contains(c)) {
            found.iter_mut().for_each(Signature::hide);
        }
        Ok(found)
    }
}

impl Module {
    /// Where the parameters of a function are. The function begins at file address `function`. The thread is at
    /// `registers.rip`, a guest address; the module is mapped with `bias`. `entry` and `read` are as for
    /// [`Module::variables`]. There is one location for each parameter of `signature`.
    ///
    /// # Errors
    /// If the debug information is damaged.
    pub fn arguments(
        &self,
        (function, signature): (u64, &Signature),
        registers: &Registers,
        entry: &Registers,
        bias: u64,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Vec<Location>, Error> {
        let pc = registers.rip.wrapping_sub(bias);
        let Some(dwarf) = self.dwarf() else {
            return Ok(Vec::new());
        };
        let Some(unit) = dwarf.find_dwarf_and_unit(function).skip_all_loads() else {
            return Ok(Vec::new());
        };
        let entry = AtEntry::all(*entry);
        let mut frame = EvalFrame {
            registers,
            known: KnownRegisters::ALL,
            entry: Some(&entry),
            bias,
            cfa: self.frame_address(pc, registers),
            base: None,
            read,
        };
        let mut out = Vec::new();
        let mut tree = unit.unit.entries_tree(Some(UnitOffset(signature.entry)))?;
        let node = tree.root()?;
        frame.base = frame_base(unit, node.entry(), &mut frame);
        let mut children = node.children();
        while let Some(child) = children.next()? {
            if child.entry().tag() == DW_TAG_formal_parameter {
                out.push(location(unit, child.entry(), pc, &mut frame)?);
            }
        }
        Ok(out)
    }
}

fn find(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    addr: u64,
    depth: u32,
) -> Result<Option<(Signature, u64)>, Error> {
    if depth > MAX_DEPTH {
        return Ok(None);
    }
    let entry = node.entry();
    match entry.tag() {
        DW_TAG_subprogram => {
            let mut ranges = unit.die_ranges(entry)?;
            let mut end = None;
            while let Some(r) = ranges.next()? {
                end = end.or((r.begin == addr).then_some(r.end));
            }
            if let Some(end) = end {
                let result = attribute(unit, entry, DW_AT_type, 0).map(|t| Parameter {
                    name: String::new(),
                    ..typed(unit, Some(t))
                });
                let convention = entry.attr_value(DW_AT_calling_convention);
                let mut found = collect(unit, node, result)?;
                if convention == Some(AttributeValue::CallingConvention(DW_CC_nocall)) {
                    found.hide();
                }
                return Ok(Some((found, end)));
            }
        }
        DW_TAG_compile_unit | DW_TAG_namespace | DW_TAG_structure_type | DW_TAG_class_type => {}
        _ => return Ok(None),
    }
    let mut children = node.children();
    while let Some(child) = children.next()? {
        if let Some(found) = find(unit, child, addr, depth + 1)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn collect(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    result: Option<Parameter>,
) -> Result<Signature, Error> {
    let (mut parameters, mut variadic) = (Vec::new(), false);
    let entry = node.entry().offset().0;
    let source = declared(unit, node.entry());
    // The frame's address is known even before the frame is set up. A register that will hold it is not yet right then.
    let base = node.entry().attr_value(DW_AT_frame_base);
    let base = base.and_then(|b| b.exprloc_value());
    let base = base.and_then(|b| b.operations(unit.unit.encoding()).next().ok().flatten());
    let fixed_base = matches!(base, Some(Operation::CallFrameCFA));
    let mut children = node.children();
    while let Some(child) = children.next()? {
        let e = child.entry();
        match e.tag() {
            DW_TAG_formal_parameter => {
                let name = attribute(unit, e, DW_AT_name, 0).map(|n| text(unit, n));
                parameters.push(Parameter {
                    name: name.unwrap_or_default(),
                    spilled: spilled(unit, e, fixed_base),
                    ..typed(unit, attribute(unit, e, DW_AT_type, 0))
                });
            }
            DW_TAG_unspecified_parameters => variadic = true,
            _ => {}
        }
    }
    Ok(Signature {
        parameters,
        result,
        variadic,
        body: None,
        source,
        entry,
    })
}

/// Whether a parameter has a single place, in the function's own frame. The prologue writes it there.
fn spilled(unit: UnitRef<Reader>, e: &Entry, fixed_base: bool) -> bool {
    let Some(place) = e.attr_value(DW_AT_location).and_then(|l| l.exprloc_value()) else {
        return false;
    };
    let mut operations = place.operations(unit.unit.encoding());
    let mut own = false;
    while let Ok(Some(o)) = operations.next() {
        match o {
            // Above the frame's address are the arguments that the caller has put on the stack.
            Operation::FrameOffset { offset } if fixed_base && offset >= 0 => {}
            Operation::FrameOffset { .. } => return true,
            // Memory relative to a register, unless the value is computed from it.
            Operation::RegisterOffset { .. } => own = true,
            Operation::StackValue => own = false,
            _ => {}
        }
    }
    own
}

/// A parameter of this type.
fn typed(unit: UnitRef<Reader>, kind: Option<AttributeValue<Reader>>) -> Parameter {
    let shape = shape(unit, kind.clone());
    let (type_name, size, class) = match kind {
        Some(AttributeValue::UnitRef(at)) => {
            let (name, size) = describe(unit, at, 0);
            (name, size, class(unit, at, 0))
        }
        _ => ("?".into(), None, Class::Other),
    };
    Parameter {
        name: String::new(),
        type_name,
        size,
        class,
        shape,
        spilled: false,
    }
}

fn class(unit: UnitRef<Reader>, at: UnitOffset<usize>, depth: u32) -> Class {
    let of = |e: &Entry| match e.tag() {
        DW_TAG_pointer_type
        | DW_TAG_reference_type
        | DW_TAG_rvalue_reference_type
        | DW_TAG_enumeration_type => Class::Integer,
        DW_TAG_base_type => {
            let size = e.attr_value(DW_AT_byte_size).and_then(|v| v.udata_value());
            let encoding = match e.attr_value(DW_AT_encoding) {
                Some(AttributeValue::Encoding(e)) => e,
                _ => return Class::Other,
            };
            match (encoding, size) {
                (DW_ATE_float, Some(4 | 8)) => Class::Float,
                (
                    DW_ATE_address | DW_ATE_boolean | DW_ATE_signed | DW_ATE_signed_char
                    | DW_ATE_unsigned | DW_ATE_unsigned_char | DW_ATE_UTF,
                    Some(1..=8),
                ) => Class::Integer,
                _ => Class::Other,
            }
        }
        DW_TAG_typedef | DW_TAG_const_type | DW_TAG_volatile_type | DW_TAG_restrict_type
        | DW_TAG_atomic_type => match e.attr_value(DW_AT_type) {
            Some(AttributeValue::UnitRef(inner)) if depth < MAX_DEPTH => {
                class(unit, inner, depth + 1)
            }
            _ => Class::Other,
        },
        _ => Class::Other,
    };
    with(unit, at, of).unwrap_or(Class::Other)
}

//! Variables of files, namespaces and classes, by name; and what pointers point to.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::{Entry, Reader, attribute, declared, text};
use crate::types::{Shape, Target, shape};
use crate::{Module, SourceLine};
use gimli::constants::*;
use gimli::{AttributeValue, DebugInfoOffset, EntriesTreeNode, Operation, UnitOffset, UnitRef};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;

/// How deep namespaces and classes may nest.
const MAX_DEPTH: u32 = 16;

/// A variable with a fixed address in its file.
#[derive(Clone, PartialEq, Debug)]
pub struct Global {
    /// File address.
    pub addr: u64,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// Its type. Unknown for a variable from the symbol table.
    pub shape: Shape,
    /// Where it is declared. The symbol table does not know it.
    pub source: Option<SourceLine>,
}

/// The entries of variables, by name.
pub(crate) type Globals = HashMap<String, Vec<Target>>;

impl Module {
    /// The variable with this name, with or without its namespaces. The debug information is asked first. If it does
    /// not have the name, the symbol table is asked, which knows no types.
    pub fn global(&self, name: &str) -> Option<Global> {
        let first = self.described(name).next();
        first.or_else(|| self.data_symbols(name).into_iter().next())
    }

    /// All variables with this name, as for [`Module::global`]: several files may have one of their own.
    pub fn globals_called(&self, name: &str) -> Vec<Global> {
        let described: Vec<Global> = self.described(name).collect();
        match described.is_empty() {
            true => self.data_symbols(name),
            false => described,
        }
    }

    fn described(&self, name: &str) -> impl Iterator<Item = Global> {
        let all = self.globals().get(name).map_or(&[][..], Vec::as_slice);
        all.iter().filter_map(|t| self.at(*t, described))
    }

    /// The type of what a pointer points to. A `target` that cannot be read gives an unknown type.
    pub fn target(&self, target: Target) -> Shape {
        let looked = self.at(target, |unit, e| {
            let at = AttributeValue::UnitRef(e.offset());
            Some(shape(unit, Some(at)))
        });
        looked.unwrap_or(Shape::unknown(None))
    }

    fn at<T>(
        &self,
        target: Target,
        look: impl FnOnce(UnitRef<Reader>, &Entry) -> Option<T>,
    ) -> Option<T> {
        let dwarf = self.raw()?;
        let header = dwarf.unit_header(DebugInfoOffset(target.unit)).ok()?;
        let unit = dwarf.unit(header).ok()?;
        let unit = UnitRef::new(dwarf, &unit);
        let mut cursor = unit.unit.entries_at_offset(UnitOffset(target.entry)).ok()?;
        cursor.next_entry().ok()?;
        look(unit, cursor.current()?)
    }

    /// Collects all variables, once.
    pub(crate) fn find_globals(&self) -> Globals {
        let mut out = Globals::new();
        let Some(dwarf) = self.raw() else {
            return out;
        };
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(DebugInfoOffset(at)) = header.debug_info_offset() else {
                continue;
            };
            let Ok(unit) = dwarf.unit(header) else {
                continue;
            };
            let _ = each(UnitRef::new(dwarf, &unit), at, &mut out);
        }
        out
    }

    fn data_symbols(&self, name: &str) -> Vec<Global> {
        let find = |file: &object::File| {
            let all = file.symbols().chain(file.dynamic_symbols());
            let found = all.filter_map(|s| {
                let is = s
                    .name()
                    .is_ok_and(|n| n == name || n.split('@').next() == Some(name));
                let data = s.kind() != SymbolKind::Text && s.kind() != SymbolKind::Tls;
                (is && data && s.address() != 0).then(|| Global {
                    addr: s.address(),
                    size: Some(s.size()).filter(|s| *s > 0),
                    shape: Shape::unknown(Some(s.size())),
                    source: None,
                })
            });
            let found: Vec<Global> = found.collect();
            (!found.is_empty()).then_some(found)
        };
        self.symbol_files(find).unwrap_or_default()
    }
}

/// A variable, if it has a fixed address.
fn described(unit: UnitRef<Reader>, entry: &Entry) -> Option<Global> {
    let place = entry.attr_value(DW_AT_location)?.exprloc_value()?;
    let addr = match place.operations(unit.unit.encoding()).next().ok()?? {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => unit.dwarf.address(unit.unit, index).ok()?,
        _ => return None,
    };
    let kind = attribute(unit, entry, DW_AT_type, 0);
    let shape = shape(unit, kind);
    Some(Global {
        addr,
        size: Some(shape.size).filter(|s| *s > 0),
        shape,
        source: declared(unit, entry),
    })
}

fn each(unit: UnitRef<Reader>, at: usize, out: &mut Globals) -> Result<(), gimli::Error> {
    let mut tree = unit.unit.entries_tree(None)?;
    walk(unit, tree.root()?, at, "", out, 0)
}

fn walk(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    at: usize,
    path: &str,
    out: &mut Globals,
    depth: u32,
) -> Result<(), gimli::Error> {
    let mut children = node.children();
    while let Some(child) = children.next()? {
        let e = child.entry();
        let name = || attribute(unit, e, DW_AT_name, 0).map(|n| text(unit, n));
        match e.tag() {
            DW_TAG_variable if e.attr_value(DW_AT_location).is_some() => {
                if let Some(name) = name() {
                    let target = Target {
                        unit: at,
                        entry: e.offset().0,
                    };
                    if !path.is_empty() {
                        out.entry(format!("{path}{name}")).or_default().push(target);
                    }
                    out.entry(name).or_default().push(target);
                }
            }
            DW_TAG_namespace | DW_TAG_structure_type | DW_TAG_class_type if depth < MAX_DEPTH => {
                let inner = match name() {
                    Some(n) => format!("{path}{n}::"),
                    None => path.to_string(),
                };
                walk(unit, child, at, &inner, out, depth + 1)?;
            }
            _ => {}
        }
    }
    Ok(())
}

//! Names with the namespaces and classes in which they are.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::Reader;
use crate::variables::text;
use gimli::constants::*;
use gimli::{AttributeValue, UnitOffset, UnitRef};

/// Longest chain of entries that complete each other, and deepest nesting.
const MAX_DEPTH: u32 = 64;

/// The name of the function that this entry is, or is a copy of, with the namespaces and classes
/// in which it is declared, as in `shop::twice`. `None` if it has no name, or if its declaration
/// is in another unit.
pub(crate) fn qualified(unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Option<String> {
    let mut at = at;
    for _ in 0..MAX_DEPTH {
        let mut cursor = unit.unit.entries_at_offset(at).ok()?;
        cursor.next_entry().ok()?;
        let entry = cursor.current()?;
        // A copy names its original, and a definition its declaration, which is in the class.
        let origin = entry
            .attr_value(DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(DW_AT_specification));
        match origin {
            Some(AttributeValue::UnitRef(o)) => at = o,
            Some(_) => return None,
            None => {
                let name = text(unit, entry.attr_value(DW_AT_name)?);
                let mut parts = scopes(unit, at)?;
                parts.push(name);
                return Some(parts.join("::"));
            }
        }
    }
    None
}

/// The namespaces and types around an entry, outermost first.
fn scopes(unit: UnitRef<Reader>, wanted: UnitOffset<usize>) -> Option<Vec<String>> {
    let mut out = Vec::new();
    let mut at = None;
    for _ in 0..MAX_DEPTH {
        let mut tree = unit.unit.entries_tree(at).ok()?;
        let mut children = tree.root().ok()?.children();
        // Entries follow each other in the file: the last child that begins before the wanted
        // entry has it in itself.
        let mut around = None;
        while let Some(child) = children.next().ok()? {
            let entry = child.entry();
            if entry.offset() > wanted {
                break;
            }
            let name = entry.attr_value(DW_AT_name).map(|n| text(unit, n));
            around = Some((entry.offset(), entry.tag(), name));
        }
        let (offset, tag, name) = around?;
        if offset == wanted {
            return Some(out);
        }
        match tag {
            DW_TAG_namespace => {
                out.push(name.unwrap_or_else(|| "(anonymous namespace)".into()));
            }
            DW_TAG_structure_type
            | DW_TAG_class_type
            | DW_TAG_union_type
            | DW_TAG_enumeration_type => out.extend(name),
            // What is declared within a function is not called by that function's name.
            _ => {}
        }
        at = Some(offset);
    }
    None
}

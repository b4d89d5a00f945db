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

/// Whether a demangled name is that of a function that was asked for: whole, or without its
/// parameters, its template arguments, or the namespaces and classes in which it is.
pub(crate) fn is_called(full: &str, wanted: &str) -> bool {
    let path = path(full);
    let plain = without_arguments(path);
    [full, path, &plain].iter().any(|name| {
        // What is behind is as wanted, and begins with a part of the name.
        name.strip_suffix(wanted)
            .is_some_and(|before| before.is_empty() || before.ends_with("::"))
    })
}

/// A function's name with its scopes, but without its result and its parameters.
fn path(full: &str) -> &str {
    const ANONYMOUS: &str = "(anonymous namespace)";
    let (mut depth, mut start, mut at) = (0u32, 0, 0);
    while let Some(c) = full[at..].chars().next() {
        let rest = &full[at..];
        if depth == 0 && (at == start || full[..at].ends_with("::")) {
            if rest.starts_with(ANONYMOUS) {
                at += ANONYMOUS.len();
                continue;
            }
            // Behind it may be any sign, and the name of a type.
            if let Some(sign) = rest.strip_prefix("operator")
                && !sign.starts_with(|c: char| c.is_alphanumeric() || c == '_')
            {
                let from = full.len() - sign.len() + if sign.starts_with("()") { 2 } else { 0 };
                let end = full[from..].find('(').map_or(full.len(), |n| from + n);
                return &full[start..end];
            }
        }
        match c {
            '(' | ' ' if depth == 0 && (c == '(' || rest.starts_with(" [")) => {
                return &full[start..at];
            }
            // What was before is the type of the result.
            ' ' if depth == 0 => start = at + 1,
            '<' | '{' | '[' | '(' => depth += 1,
            '>' | '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += c.len_utf8();
    }
    &full[start..]
}

/// A name without template arguments; `<` that begins a part, as in Rust's `<T as Trait>::f`, stays.
fn without_arguments(path: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0u32);
    for c in path.chars() {
        let argument = depth > 0 || !(out.is_empty() || out.ends_with("::"));
        match c {
            _ if out.contains("operator") => out.push(c),
            '<' if argument => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_called_by_parts_of_their_names() {
        let cases = [
            ("shop::compute(int)", "compute", true),
            ("shop::compute(int)", "shop::compute", true),
            ("shop::compute(int)", "compute(int)", true),
            ("shop::compute(int)", "op::compute", false),
            ("shop::compute(int)", "shop", false),
            ("shop::recompute(int)", "compute", false),
            ("main", "main", true),
            ("a::f(b::compute)", "compute", false),
            (
                "int shop::biggest<int>(std::vector<int, std::allocator<int> > const&)",
                "biggest",
                true,
            ),
            ("int shop::biggest<int>(int)", "shop::biggest<int>", true),
            ("int shop::biggest<int>(int)", "shop::biggest<long>", false),
            (
                "std::vector<int>::push_back(int&&)",
                "std::vector::push_back",
                true,
            ),
            (
                "std::vector<int>::push_back(int&&)",
                "vector<int>::push_back",
                true,
            ),
            ("a::(anonymous namespace)::odd(int)", "odd", true),
            ("a::(anonymous namespace)::odd(int)", "a", false),
            ("a::T::operator()(int) const", "operator()", true),
            ("a::operator<(a::T, a::T)", "operator<", true),
            ("a::operator<<(a::T, a::T)", "a::operator<<", true),
            ("a::T::operator bool() const", "operator bool", true),
            ("a::f(int) [clone .cold]", "f", true),
            ("core::ptr::drop_in_place", "drop_in_place", true),
            ("<a::T as b::U>::go", "go", true),
            ("a::b::{closure#0}", "b", false),
        ];
        for (full, wanted, is) in cases {
            assert_eq!(is_called(full, wanted), is, "{full}: {wanted}");
        }
    }
}

//! Names of functions, with and without their namespaces and classes.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::Reader;
use crate::dwarf::text;
use gimli::constants::*;
use gimli::{AttributeValue, UnitOffset, UnitRef};

/// The longest chain of entries that complete each other, and the deepest nesting.
const MAX_DEPTH: u32 = 64;

/// The name of a function with its namespaces and classes, as in `shop::twice`. The entry is the function, or a copy of
/// it. `None`: it has no name, or its declaration is in another unit.
pub(crate) fn qualified(unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Option<String> {
    let mut at = at;
    for _ in 0..MAX_DEPTH {
        let mut cursor = unit.unit.entries_at_offset(at).ok()?;
        cursor.next_entry().ok()?;
        let entry = cursor.current()?;
        // A copy names its original. A definition names its declaration, which is in the class.
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
        // Entries follow each other in the file. The last child that begins before the wanted entry contains it.
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
            // A declaration within a function is not named after that function.
            _ => {}
        }
        at = Some(offset);
    }
    None
}

/// A demangled name without result, parameters, template arguments, ABI tags, namespaces and classes.
pub(crate) fn short(full: &str) -> String {
    let untagged = without_tags(full);
    let bare = Path::of(&untagged).without_arguments();
    bare.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Whether somebody may call a function with this demangled name `wanted`. Parameters, template arguments, ABI tags,
/// namespaces and classes may be left out.
pub(crate) fn is_called(full: &str, wanted: &str) -> bool {
    let is = |name: &str| {
        // The end of the name is as wanted, and begins with a part of the name.
        name.strip_suffix(wanted)
            .is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    // The rarely executed part of a function is no function: it is reached by a jump.
    if wanted.is_empty() || full.contains(" [clone .cold") {
        return full == wanted;
    }
    let untagged = without_tags(full);
    let path = Path::of(&untagged);
    is(full)
        || is(Path::of(full).text)
        || is(&untagged)
        || is(path.text)
        || is(&path.without_arguments())
}

/// Removes ABI tags. Compilers add them to functions whose types have several forms, as `std::string` has.
fn without_tags(full: &str) -> String {
    let mut out = String::new();
    let mut rest = full;
    while let Some((before, tag)) = rest.split_once("[abi:") {
        out += before;
        rest = tag.split_once(']').map_or("", |t| t.1);
    }
    out + rest
}

/// The signs of operators. A sign that begins others comes after them.
const OPERATORS: [&str; 39] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "+=",
    "-=", "*=", "/=", "%=", "^=", "&=", "|=", "->", "()", "[]", "+", "-", "*", "/", "%", "^", "&",
    "|", "~", "!", "=", "<", ">", ",",
];

/// A function's name with its scopes, but without its result and its parameters.
struct Path<'a> {
    text: &'a str,
    /// Where `operator` and its sign begin.
    operator: Option<usize>,
}

impl Path<'_> {
    fn of(full: &str) -> Path<'_> {
        const ANONYMOUS: &str = "(anonymous namespace)";
        const OPERATOR: &str = "operator";
        let (mut depth, mut start, mut at) = (0u32, 0, 0);
        // The present text belongs to the type of the result.
        let mut result = false;
        let path = |start: usize, end: usize| Path {
            text: &full[start..end],
            operator: None,
        };
        while let Some(c) = full[at..].chars().next() {
            let rest = &full[at..];
            if depth == 0 && (at == start || full[..at].ends_with("::")) {
                if rest.starts_with(ANONYMOUS) {
                    at += ANONYMOUS.len();
                    continue;
                }
                // After it there may be any sign, and the name of a type.
                if let Some(sign) = rest.strip_prefix(OPERATOR)
                    && !sign.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                {
                    let from = at + OPERATOR.len() + if sign.starts_with("()") { 2 } else { 0 };
                    let end = full[from..].find('(').map_or(full.len(), |n| from + n);
                    return Path {
                        operator: Some(at - start),
                        ..path(start, end)
                    };
                }
            }
            match c {
                // `decltype(auto) f(int)`, `int (*)(int) f(int)`
                '(' if depth == 0 && (result || matches!(&full[start..at], "" | "decltype")) => {
                    result = true;
                    depth += 1;
                }
                '(' if depth == 0 => return path(start, at),
                ' ' if depth == 0 && rest.starts_with(" [") => return path(start, at),
                // The text before was the type of the result.
                ' ' if depth == 0 => (start, result) = (at + 1, false),
                '-' if rest.starts_with("->") => at += 1,
                '<' | '{' | '[' | '(' => depth += 1,
                '>' | '}' | ']' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += c.len_utf8();
        }
        path(start, full.len())
    }

    /// Removes template arguments. A `<` that begins a part stays, as in Rust's `<T as Trait>::f` and `a::<impl T>::f`.
    fn without_arguments(&self) -> String {
        let (scopes, operator) = self.text.split_at(self.operator.unwrap_or(self.text.len()));
        let (mut out, mut depth, mut arrow) = (String::new(), 0u32, false);
        for (at, c) in scopes.char_indices() {
            match c {
                '<' if depth > 0 => depth += 1,
                '<' if out.is_empty() || scopes[at..].starts_with("<impl ") => out.push(c),
                '<' => {
                    depth = 1;
                    // `f::<T>`
                    let len = out.trim_end_matches("::").len();
                    out.truncate(len);
                }
                '>' if depth > 0 && !arrow => depth -= 1,
                _ if depth == 0 => out.push(c),
                _ => {}
            }
            arrow = c == '-';
        }
        let sign = operator.strip_prefix("operator").unwrap_or_default();
        // A conversion is named by its whole type.
        match OPERATORS.iter().find(|o| sign.starts_with(**o)) {
            Some(sign) => out + "operator" + sign,
            None => out + operator,
        }
    }
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
            ("core::ptr::drop_in_place", "drop_in_place", true),
            ("<a::T as b::U>::go", "go", true),
            ("a::b::{closure#0}", "b", false),
            ("a::f(int) [clone .cold]", "f", false),
            ("a::f(int) [clone .constprop.0]", "f", true),
            ("a::name[abi:cxx11](int) const", "name", true),
            ("a::name[abi:cxx11](int) const", "name[abi:cxx11]", true),
            ("a::name[abi:cxx11](int)", "a::name(int)", true),
            ("a::names[abi:cxx11](int)", "name", false),
            ("a::f(int)", "", false),
            ("int (*)(int) a::get<int>(int)", "get", true),
            ("int (*)(int) a::get<int>(int)", "", false),
            ("decltype(auto) a::odd<int>(int)", "a::odd", true),
            ("decltype(auto) a::odd<int>(int)", "decltype", false),
            ("decltype ({parm#1}+(1)) a::tail<int>(int)", "tail", true),
            ("bool a::operator< <int>(a::T, int)", "operator<", true),
            ("bool a::operator< <int>(a::T, int)", "operator<<", false),
            ("a::T<int>::operator->() const", "T::operator->", true),
            ("a::my_operator<int>::f()", "my_operator::f", true),
            (
                "core::ptr::drop_in_place::<fn(u8) -> u8>",
                "drop_in_place",
                true,
            ),
            ("std::vec::Vec::<u8>::push", "Vec::push", true),
            ("a::<impl b::U for fn() -> u8>::go", "go", true),
            (
                "<fn(u8) -> u8 as b::U>::go",
                "<fn(u8) -> u8 as b::U>::go",
                true,
            ),
            ("<fn(u8) -> u8 as b::U>::go", "go", true),
        ];
        for (full, wanted, is) in cases {
            assert_eq!(is_called(full, wanted), is, "{full}: {wanted}");
        }
    }
}

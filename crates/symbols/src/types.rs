//! Types of values, as far as showing a value needs them.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::dwarf::Reader;
use crate::dwarf::text;
use gimli::constants::*;
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Unit, UnitOffset, UnitRef,
};

/// Types that nest deeper are not looked into.
const MAX_DEPTH: u32 = 12;
/// At most this many enumerators or fields of a type are stored.
const MOST: usize = 1000;

/// What the bytes of a value mean.
#[derive(Clone, PartialEq, Debug)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A signed integer.
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// A character. It has one byte, or more as `char32_t` and Rust's `char` have.
    Char {
        /// Whether its number is signed.
        signed: bool,
    },
    /// A floating point number. It may have 4, 8 or more bytes.
    Float,
    /// An address.
    Pointer {
        /// It points to characters of one byte.
        text: bool,
        /// It is a reference and no pointer.
        reference: bool,
        /// The type of what it points to. `None` for text, for another pointer, and if it is not known.
        of: Option<Box<Shape>>,
        /// What it points to, for [`crate::Module::target`].
        to: Option<Target>,
    },
    /// An enumeration.
    Enum {
        /// The enumerators: values and names.
        values: Vec<(i64, String)>,
    },
    /// A structure, class or union.
    Struct {
        /// Its name. Empty if it has none.
        name: String,
        /// Its fields, in the order of the source.
        fields: Vec<Field>,
    },
    /// Elements of one type, one after the other.
    Array {
        /// The type of an element.
        of: Box<Shape>,
        /// The number of elements, for all dimensions together.
        count: u64,
    },
    /// The type is not known.
    Other,
}

/// An entry of a module's debug information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The offset of its unit, and its own offset in the unit.
    pub(crate) unit: usize,
    pub(crate) entry: usize,
}

/// A type with its size.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    /// What the bytes mean.
    pub kind: Type,
    /// The size in bytes. 0 if it is not known.
    pub size: u64,
}

/// A field of a structure.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// Its name. Empty for a base class, and for a field without a name.
    pub name: String,
    /// The offset of its first byte in the structure.
    pub at: u64,
    /// Its type.
    pub shape: Shape,
}

impl Shape {
    /// A type of which only the size is known.
    pub fn unknown(size: Option<u64>) -> Shape {
        Shape {
            kind: Type::Other,
            size: size.unwrap_or(0),
        }
    }

    /// The field with this name, at any depth, with its offset in the structure. Without a name it is the first
    /// pointer.
    pub fn fields_called(&self, name: Option<&str>) -> Option<(u64, &Shape)> {
        let Type::Struct { fields, .. } = &self.kind else {
            return None;
        };
        let wanted = |f: &&Field| match name {
            Some(n) => f.name == n,
            None => matches!(f.shape.kind, Type::Pointer { .. }),
        };
        if let Some(f) = fields.iter().find(wanted) {
            return Some((f.at, &f.shape));
        }
        (fields.iter()).find_map(|f| {
            let (at, shape) = f.shape.fields_called(name)?;
            Some((f.at + at, shape))
        })
    }
}

type Entry = DebuggingInformationEntry<Reader>;

/// The type that an attribute names.
pub(crate) fn shape(unit: UnitRef<Reader>, kind: Option<AttributeValue<Reader>>) -> Shape {
    match kind {
        Some(AttributeValue::UnitRef(at)) => look(unit, at, 0, 0),
        _ => Shape::unknown(None),
    }
}

/// The type of an entry. `pointers` were followed on the way to it.
fn look(unit: UnitRef<Reader>, at: UnitOffset<usize>, depth: u32, pointers: u32) -> Shape {
    let found = (|| {
        let mut cursor = unit.unit.entries_at_offset(at).ok()?;
        cursor.next_entry().ok()?;
        let entry = cursor.current()?;
        Some(of_entry(unit, entry, at, depth, pointers))
    })();
    found.unwrap_or(Shape::unknown(None))
}

fn number(e: &Entry, name: gimli::DwAt) -> Option<u64> {
    e.attr_value(name)?.udata_value()
}

fn of_entry(
    unit: UnitRef<Reader>,
    e: &Entry,
    at: UnitOffset<usize>,
    depth: u32,
    pointers: u32,
) -> Shape {
    let size = number(e, DW_AT_byte_size);
    if depth > MAX_DEPTH {
        return Shape::unknown(size);
    }
    let inner = |more: u32| match e.attr_value(DW_AT_type) {
        Some(AttributeValue::UnitRef(t)) => Some(look(unit, t, depth + 1, pointers + more)),
        _ => None,
    };
    let (kind, size) = match e.tag() {
        DW_TAG_base_type => (base(e), size),
        DW_TAG_pointer_type | DW_TAG_reference_type | DW_TAG_rvalue_reference_type => {
            let reference = e.tag() != DW_TAG_pointer_type;
            // Only one pointer is followed: lists lead from one to the next.
            let of = if pointers == 0 { inner(1) } else { None };
            let text = match &of {
                Some(s) => matches!(s.kind, Type::Char { .. }) && s.size == 1,
                None => false,
            };
            let of = of.filter(|s| !text && !matches!(s.kind, Type::Pointer { .. }));
            let of = of.map(Box::new);
            let to = match e.attr_value(DW_AT_type) {
                Some(AttributeValue::UnitRef(t)) => target_of(unit.unit, t),
                _ => None,
            };
            (
                Type::Pointer {
                    text,
                    reference,
                    of,
                    to,
                },
                size.or(Some(8)),
            )
        }
        DW_TAG_typedef | DW_TAG_const_type | DW_TAG_volatile_type | DW_TAG_restrict_type
        | DW_TAG_atomic_type => {
            return inner(0).unwrap_or(Shape::unknown(size));
        }
        DW_TAG_enumeration_type => (
            Type::Enum {
                values: enumerators(unit, at),
            },
            size.or_else(|| inner(0).map(|s| s.size)),
        ),
        DW_TAG_structure_type | DW_TAG_class_type | DW_TAG_union_type => {
            let name = e.attr_value(DW_AT_name).map(|n| text(unit, n));
            let fields = fields(unit, at, depth, pointers);
            let kind = match fields {
                Some(fields) => Type::Struct {
                    name: name.unwrap_or_default(),
                    fields,
                },
                None => Type::Other,
            };
            (kind, size)
        }
        DW_TAG_array_type => {
            let of = inner(0).unwrap_or(Shape::unknown(None));
            let count = crate::types::elements(unit, at).unwrap_or(0);
            let all = of.size.checked_mul(count);
            (
                Type::Array {
                    of: Box::new(of),
                    count,
                },
                size.or(all),
            )
        }
        _ => (Type::Other, size),
    };
    Shape {
        kind,
        size: size.unwrap_or(0),
    }
}

fn base(e: &Entry) -> Type {
    match e.attr_value(DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => match encoding {
            DW_ATE_boolean => Type::Bool,
            DW_ATE_signed => Type::Signed,
            DW_ATE_unsigned | DW_ATE_address => Type::Unsigned,
            DW_ATE_signed_char => Type::Char { signed: true },
            DW_ATE_unsigned_char | DW_ATE_UTF => Type::Char { signed: false },
            DW_ATE_float => Type::Float,
            _ => Type::Other,
        },
        _ => Type::Other,
    }
}

/// Calls `show` for each child of an entry, until it returns false.
fn children(
    unit: UnitRef<Reader>,
    at: UnitOffset<usize>,
    show: &mut dyn FnMut(&Entry) -> bool,
) -> Option<()> {
    let mut tree = unit.unit.entries_tree(Some(at)).ok()?;
    let mut list = tree.root().ok()?.children();
    while let Some(child) = list.next().ok()? {
        if !show(child.entry()) {
            break;
        }
    }
    Some(())
}

fn enumerators(unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Vec<(i64, String)> {
    let mut out = Vec::new();
    let mut one = |e: &Entry| {
        if e.tag() == DW_TAG_enumerator
            && let Some(name) = e.attr_value(DW_AT_name)
            && let Some(v) = e.attr_value(DW_AT_const_value)
            && let Some(v) = v.sdata_value().or(v.udata_value().map(|v| v as i64))
        {
            out.push((v, text(unit, name)));
        }
        out.len() < MOST
    };
    children(unit, at, &mut one);
    out
}

/// The fields of a structure. `None`: a value decides which fields there are, as in Rust's enumerations.
fn fields(
    unit: UnitRef<Reader>,
    at: UnitOffset<usize>,
    depth: u32,
    pointers: u32,
) -> Option<Vec<Field>> {
    let mut out = Vec::new();
    let mut plain = true;
    let mut one = |e: &Entry| {
        plain &= e.tag() != DW_TAG_variant_part;
        let is_field = match e.tag() {
            // Static members have no place in the structure.
            DW_TAG_member => {
                e.attr_value(DW_AT_external).is_none() && e.attr_value(DW_AT_declaration).is_none()
            }
            DW_TAG_inheritance => true,
            _ => false,
        };
        if is_field {
            // Bit fields are not looked into.
            let bits = [DW_AT_bit_size, DW_AT_data_bit_offset];
            plain &= bits.iter().all(|b| e.attr_value(*b).is_none());
            let place = match e.attr_value(DW_AT_data_member_location) {
                None => Some(0),
                Some(v) => v.udata_value(),
            };
            plain &= place.is_some();
            let name = (e.attr_value(DW_AT_name)).filter(|_| e.tag() == DW_TAG_member);
            out.push(Field {
                name: name.map(|n| text(unit, n)).unwrap_or_default(),
                at: place.unwrap_or(0),
                shape: match e.attr_value(DW_AT_type) {
                    Some(AttributeValue::UnitRef(t)) => look(unit, t, depth + 1, pointers),
                    _ => Shape::unknown(None),
                },
            });
        }
        plain && out.len() < MOST
    };
    children(unit, at, &mut one)?;
    plain.then_some(out)
}

/// The number of elements of an array type, for all dimensions together.
pub(crate) fn elements(unit: UnitRef<Reader>, at: UnitOffset<usize>) -> Option<u64> {
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

/// A unit's entry, for [`Module::target`].
pub(crate) fn target_of(unit: &Unit<Reader>, entry: UnitOffset<usize>) -> Option<Target> {
    let DebugInfoOffset(at) = unit.header.debug_info_offset()?;
    Some(Target {
        unit: at,
        entry: entry.0,
    })
}

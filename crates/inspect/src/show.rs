//! Shows values as text, as debuggers do.

use hindsight_symbols::{Shape, Type};

/// The most characters of a text that are shown.
const TEXT: usize = 200;
/// The most elements of an array, and fields of a structure, that are shown.
const ELEMENTS: usize = 10;
/// How deep structures in structures are shown.
const DEPTH: u32 = 4;
/// The most bytes of a value of unknown type that are shown.
const BARE: usize = 16;

/// Reads the bytes at an address; each may be unknown.
pub type Read<'a> = dyn FnMut(u64, usize) -> Vec<Option<u8>> + 'a;

/// A value of this type with these bytes. `?` stands for what is not known.
pub fn show(shape: &Shape, bytes: &[Option<u8>], read: &mut Read) -> String {
    value(shape, bytes, read, 0)
}

fn value(shape: &Shape, bytes: &[Option<u8>], read: &mut Read, depth: u32) -> String {
    let bytes = &bytes[..bytes.len().min(shape.size as usize)];
    let number = || number(bytes, shape.size);
    let text = match &shape.kind {
        Type::Bool => number().map(|v| match v {
            0 => "false".into(),
            1 => "true".into(),
            v => v.to_string(),
        }),
        Type::Signed => number().map(|v| signed(v, shape.size).to_string()),
        Type::Unsigned => number().map(|v| v.to_string()),
        Type::Char { signed } => number().map(|v| character(v, shape.size, *signed)),
        Type::Float => float(bytes),
        Type::Enum { values } => number().map(|v| enumerator(signed(v, shape.size) as i64, values)),
        Type::Pointer {
            text,
            reference,
            of,
            ..
        } => number().map(|v| pointer(v as u64, *text, *reference, of.as_deref(), read, depth)),
        Type::Struct { .. } => Some(structure(shape, bytes, read, depth)),
        Type::Array { of, count } => Some(array(of, *count, bytes, read, depth)),
        Type::Other if bytes.is_empty() => None,
        Type::Other => Some(bare(bytes)),
    };
    text.unwrap_or_else(|| "?".into())
}

/// An unsigned number, if all of it is known.
fn number(bytes: &[Option<u8>], size: u64) -> Option<u128> {
    if !(1..=16).contains(&size) || bytes.len() as u64 != size {
        return None;
    }
    let high = bytes.iter().rev();
    high.into_iter()
        .try_fold(0, |all, b| Some(all << 8 | (*b)? as u128))
}

fn signed(v: u128, size: u64) -> i128 {
    let unused = 128 - 8 * size.clamp(1, 16) as u32;
    (v << unused) as i128 >> unused
}

fn character(v: u128, size: u64, is_signed: bool) -> String {
    let c = char::from_u32(v as u32).filter(|c| (size > 1 || c.is_ascii()) && !c.is_control());
    let number = match is_signed {
        true => signed(v, size),
        false => v as i128,
    };
    match c {
        Some(c @ ('\'' | '\\')) => format!("{number} '\\{c}'"),
        Some(c) => format!("{number} '{c}'"),
        None if v == 0 => "0 '\\000'".into(),
        None if size == 1 => format!("{number} '\\{v:03o}'"),
        None => number.to_string(),
    }
}

fn float(bytes: &[Option<u8>]) -> Option<String> {
    let known: Option<Vec<u8>> = bytes.iter().copied().collect();
    let known = known?;
    if let Ok(b) = <[u8; 4]>::try_from(&known[..]) {
        return Some(f32::from_le_bytes(b).to_string());
    }
    if let Ok(b) = <[u8; 8]>::try_from(&known[..]) {
        return Some(f64::from_le_bytes(b).to_string());
    }
    // The processor's own format of 80 bits. It is shown as precisely as a `double`.
    let mantissa = u64::from_le_bytes(known.get(..8)?.try_into().ok()?);
    let head = u16::from_le_bytes(known.get(8..10)?.try_into().ok()?);
    let sign = if head >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = (head & 0x7fff) as i32 - 16383 - 63;
    Some((sign * mantissa as f64 * 2f64.powi(exponent)).to_string())
}

/// The name of a value, or of several that add up to it.
fn enumerator(v: i64, values: &[(i64, String)]) -> String {
    if let Some((_, name)) = values.iter().find(|e| e.0 == v) {
        return name.clone();
    }
    let (mut rest, mut names) = (v, Vec::new());
    for (flag, name) in values.iter().filter(|e| e.0 > 0) {
        if flag & !rest == 0 {
            rest &= !flag;
            names.push(name.as_str());
        }
    }
    match rest == 0 && !names.is_empty() {
        true => format!("({})", names.join(" | ")),
        false => v.to_string(),
    }
}

fn pointer(
    at: u64,
    text: bool,
    reference: bool,
    of: Option<&Shape>,
    read: &mut Read,
    depth: u32,
) -> String {
    if text && at != 0 {
        return match string(at, None, read) {
            Some(t) => format!("{at:#x} {t}"),
            None => format!("{at:#x}"),
        };
    }
    match of {
        Some(shape) if reference && shape.size > 0 && depth < DEPTH => {
            let bytes = read(at, (shape.size as usize).min(1 << 12));
            let shown = value(shape, &bytes, read, depth + 1);
            match shown.starts_with('"') {
                true => shown,
                false => format!("@{at:#x}: {shown}"),
            }
        }
        _ => format!("{at:#x}"),
    }
}

/// Text in memory: of this many bytes, or up to a zero. `None`: not even the first byte is known.
fn string(at: u64, len: Option<u64>, read: &mut Read) -> Option<String> {
    const PIECE: usize = 64;
    let (mut bytes, mut more) = (Vec::new(), false);
    let all = len.unwrap_or(u64::MAX);
    'all: while (bytes.len() as u64) < all {
        let wanted = (all - bytes.len() as u64).min(PIECE as u64) as usize;
        for b in read(at.wrapping_add(bytes.len() as u64), wanted) {
            match b {
                Some(0) if len.is_none() => break 'all,
                Some(_) if bytes.len() == TEXT => {
                    more = true;
                    break 'all;
                }
                Some(b) => bytes.push(b),
                None => {
                    more = true;
                    break 'all;
                }
            }
        }
    }
    if bytes.is_empty() && more {
        return None;
    }
    Some(quoted(&bytes) + if more { "..." } else { "" })
}

/// Text in quotes. Control characters are escaped.
fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out += "\\n",
                '\t' => out += "\\t",
                '\r' => out += "\\r",
                c if c.is_ascii_control() => out += &format!("\\{:03o}", c as u32),
                c if c.is_control() => out += &c.escape_unicode().to_string(),
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            out += &format!("\\{b:03o}");
        }
    }
    out + "\""
}

/// The offsets of pointer and length in a structure that stands for text.
fn text_of(shape: &Shape) -> Option<(u64, u64)> {
    let Type::Struct { name, .. } = &shape.kind else {
        return None;
    };
    let (pointer, len) = match name.as_str() {
        "&str" | "&mut str" => (Some("data_ptr"), "length"),
        // The vector's pointer.
        "String" => (None, "len"),
        n if n.starts_with("basic_string<char,") => (Some("_M_p"), "_M_string_length"),
        n if n.starts_with("basic_string_view<char,") => (Some("_M_str"), "_M_len"),
        _ => return None,
    };
    let (p, of_p) = shape.fields_called(pointer)?;
    let (l, of_l) = shape.fields_called(Some(len))?;
    (of_p.size == 8 && of_l.size == 8).then_some((p, l))
}

fn structure(shape: &Shape, bytes: &[Option<u8>], read: &mut Read, depth: u32) -> String {
    let word = |at: u64| {
        let part = bytes.get(at as usize..at as usize + 8)?;
        number(part, 8).map(|v| v as u64)
    };
    if let Some((pointer, len)) = text_of(shape) {
        let shown = (word(pointer).zip(word(len))).and_then(|(p, l)| string(p, Some(l), read));
        match shown {
            Some(shown) => return shown,
            None if bytes.iter().all(Option::is_none) => return "?".into(),
            // Its parts are shown, as far as they are known.
            None => {}
        }
    }
    let Type::Struct { fields, .. } = &shape.kind else {
        return "?".into();
    };
    if depth >= DEPTH {
        return "{...}".into();
    }
    let mut parts = Vec::new();
    for f in fields.iter().take(ELEMENTS) {
        let from = (f.at as usize).min(bytes.len());
        let to = from.saturating_add(f.shape.size as usize).min(bytes.len());
        let shown = value(&f.shape, &bytes[from..to], read, depth + 1);
        parts.push(match f.name.is_empty() {
            true => shown,
            false => format!("{} = {shown}", f.name),
        });
    }
    if fields.len() > ELEMENTS {
        parts.push("...".into());
    }
    format!("{{{}}}", parts.join(", "))
}

fn array(of: &Shape, count: u64, bytes: &[Option<u8>], read: &mut Read, depth: u32) -> String {
    if matches!(of.kind, Type::Char { .. }) && of.size == 1 {
        let known: Vec<u8> = bytes.iter().map_while(|b| *b).take(TEXT).collect();
        let end = known.iter().position(|b| *b == 0);
        // It may go on where it is not known.
        return match end {
            None if known.is_empty() && !bytes.is_empty() => "?".into(),
            None if known.len() < bytes.len().min(TEXT) => quoted(&known) + "...",
            end => quoted(&known[..end.unwrap_or(known.len())]),
        };
    }
    if depth >= DEPTH || of.size == 0 {
        return "{...}".into();
    }
    let chunks = bytes.chunks(of.size as usize).take(ELEMENTS);
    let mut parts: Vec<String> = chunks.map(|c| value(of, c, read, depth + 1)).collect();
    if count > ELEMENTS as u64 {
        parts.push("...".into());
    }
    format!("{{{}}}", parts.join(", "))
}

fn bare(bytes: &[Option<u8>]) -> String {
    let one = |b: &Option<u8>| b.map_or("??".into(), |b| format!("{b:02x}"));
    let all: Vec<String> = bytes.iter().take(BARE).map(one).collect();
    let more = if bytes.len() > BARE { " ..." } else { "" };
    format!("<{}{more}>", all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_symbols::Field;

    fn of(kind: Type, size: u64, v: u64) -> String {
        let bytes: Vec<Option<u8>> = (v.to_le_bytes()[..size as usize].iter())
            .map(|b| Some(*b))
            .collect();
        let mut read = |at: u64, len: usize| {
            let text = b"say \"hi\"\x1b[0m\n\0";
            let from = at as usize;
            (from..from + len).map(|i| text.get(i).copied()).collect()
        };
        show(&Shape { kind, size }, &bytes, &mut read)
    }

    #[test]
    fn values_are_shown_as_debuggers_show_them() {
        assert_eq!(of(Type::Signed, 4, 0xffff_fffe), "-2");
        assert_eq!(of(Type::Unsigned, 4, 0xffff_fffe), "4294967294");
        assert_eq!(of(Type::Bool, 1, 1), "true");
        assert_eq!(of(Type::Char { signed: true }, 1, 97), "97 'a'");
        assert_eq!(of(Type::Char { signed: false }, 1, 200), "200 '\\310'");
        assert_eq!(of(Type::Char { signed: true }, 1, 0), "0 '\\000'");
        assert_eq!(of(Type::Float, 8, 2.5f64.to_bits()), "2.5");
        let values = vec![(1, "ONE".into()), (2, "TWO".into())];
        assert_eq!(
            of(
                Type::Enum {
                    values: values.clone()
                },
                4,
                2
            ),
            "TWO"
        );
        assert_eq!(
            of(
                Type::Enum {
                    values: values.clone()
                },
                4,
                3
            ),
            "(ONE | TWO)"
        );
        assert_eq!(of(Type::Enum { values }, 4, 9), "9");
        let text = Type::Pointer {
            text: true,
            reference: false,
            of: None,
            to: None,
        };
        // Characters that control a terminal are escaped.
        assert_eq!(of(text, 8, 0), "0x0");
        let text = |at| Type::Struct {
            name: "&str".into(),
            fields: ["data_ptr", "length"]
                .into_iter()
                .zip([at, 8])
                .map(|(name, at)| Field {
                    name: name.into(),
                    at,
                    shape: Shape {
                        kind: Type::Unsigned,
                        size: 8,
                    },
                })
                .collect(),
        };
        let shape = Shape {
            kind: text(0),
            size: 16,
        };
        let bytes: Vec<Option<u8>> = [4u64, 9]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .map(Some)
            .collect();
        let mut read =
            |_: u64, len: usize| b"\"hi\"\x1b[0m\n"[..len].iter().map(|b| Some(*b)).collect();
        assert_eq!(show(&shape, &bytes, &mut read), r#""\"hi\"\033[0m\n""#);
        // What is not known is not invented.
        let char = Shape {
            kind: Type::Char { signed: true },
            size: 1,
        };
        let chars = Shape {
            kind: Type::Array {
                of: Box::new(char),
                count: 4,
            },
            size: 4,
        };
        let of = |bytes: [Option<u8>; 4]| show(&chars, &bytes, &mut |_, len| vec![None; len]);
        assert_eq!(of([None; 4]), "?");
        assert_eq!(of([Some(b'a'), Some(b'b'), None, Some(0)]), "\"ab\"...");
        assert_eq!(of([Some(b'a'), Some(0), None, None]), "\"a\"");
        assert_eq!(of([Some(b'a'); 4]), "\"aaaa\"");
        assert_eq!(show(&shape, &[None; 16], &mut read), "?");
    }
}

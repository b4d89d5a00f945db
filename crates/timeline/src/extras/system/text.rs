//! Shows single values: texts, numbers, names of bits.

use std::fmt::Write;

/// This many bytes of a text or buffer are shown. strace shows as many.
pub const SHOWN: usize = 32;

/// Bytes in quotes, as C writes them. An unknown byte ends them with a question mark. `more`: further bytes follow.
pub fn quoted(bytes: &[Option<u8>], more: bool) -> String {
    let known: Vec<u8> = bytes.iter().map_while(|b| *b).collect();
    let mut out = String::from("\"");
    for (i, b) in known.iter().enumerate() {
        let _ = match b {
            b'\n' => out.write_str("\\n"),
            b'\t' => out.write_str("\\t"),
            b'\r' => out.write_str("\\r"),
            0x0b => out.write_str("\\v"),
            0x0c => out.write_str("\\f"),
            b'"' | b'\\' => write!(out, "\\{}", *b as char),
            0x20..=0x7e => out.write_char(*b as char),
            // A digit after it would belong to it.
            _ => match known.get(i + 1) {
                Some(b'0'..=b'7') => write!(out, "\\{b:03o}"),
                _ => write!(out, "\\{b:o}"),
            },
        };
    }
    out.push('"');
    if known.len() < bytes.len() {
        out.push('?');
    } else if more {
        out += "...";
    }
    out
}

/// Bytes in quotes, all as hexadecimal numbers: random bytes are no text.
pub fn hexadecimal(bytes: &[Option<u8>], more: bool) -> String {
    let known: Vec<u8> = bytes.iter().map_while(|b| *b).collect();
    let text: String = known.iter().map(|b| format!("\\x{b:02x}")).collect();
    let end = match (known.len() < bytes.len(), more) {
        (true, _) => "?",
        (false, true) => "...",
        (false, false) => "",
    };
    format!("\"{text}\"{end}")
}

/// The names of the bits of `value`. Bits without a name are shown as a number.
pub fn bits(value: u64, names: &[(u64, &str)]) -> String {
    let mut left = value;
    let mut out: Vec<String> = Vec::new();
    for (bits, name) in names {
        // Combinations stand before their parts.
        if *bits != 0 && left & bits == *bits {
            left &= !bits;
            out.push((*name).into());
        }
    }
    if left != 0 {
        out.push(format!("{left:#x}"));
    }
    match names.iter().find(|n| n.0 == 0) {
        Some((_, zero)) if value == 0 => (*zero).into(),
        _ if out.is_empty() => "0".into(),
        _ => out.join("|"),
    }
}

/// The name of `value`, or the number itself.
pub fn one(value: u64, names: &[(u64, &str)]) -> String {
    let found = names.iter().find(|n| n.0 == value);
    found.map_or_else(|| number(value), |n| n.1.into())
}

/// Small numbers in decimal, large ones in hexadecimal.
fn number(value: u64) -> String {
    match value {
        0..=0xffff => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

pub fn address(value: u64) -> String {
    match value {
        0 => "NULL".into(),
        _ => format!("{value:#x}"),
    }
}

/// Permissions in octal, with a leading zero.
pub fn octal(value: u64) -> String {
    match value {
        0 => "000".into(),
        _ => format!("{:0>3}", format!("0{value:o}")),
    }
}

/// A field of a structure that may not be known.
pub fn known(value: Option<u64>, show: impl Fn(u64) -> String) -> String {
    value.map_or("?".into(), show)
}

const SIGNALS: [&str; 32] = [
    "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn signal_name(n: u64) -> Option<String> {
    match n {
        1..=31 => Some(SIGNALS[n as usize].into()),
        32 => Some("RTMIN".into()),
        33..=64 => Some(format!("RT_{}", n - 32)),
        _ => None,
    }
}

pub fn signal(n: u64) -> String {
    let n = n as u32 as u64;
    signal_name(n).map_or_else(|| (n as i32).to_string(), |name| format!("SIG{name}"))
}

/// A set of signals. A set with most of them is shown by what it lacks.
pub fn signals(set: u64) -> String {
    let most = set.count_ones() >= 64 * 2 / 3;
    let listed = if most { !set } else { set };
    let names = (1..=64).filter(|n| listed >> (n - 1) & 1 != 0);
    let names: Vec<String> = names.filter_map(signal_name).collect();
    format!("{}[{}]", if most { "~" } else { "" }, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_strace_does() {
        let all = |b: &[u8]| b.iter().map(|b| Some(*b)).collect::<Vec<_>>();
        assert_eq!(
            quoted(&all(b"a\n\"\x7f\x01\x002"), false),
            "\"a\\n\\\"\\177\\1\\0002\""
        );
        assert_eq!(quoted(&all(b"ab"), true), "\"ab\"...");
        assert_eq!(quoted(&[Some(b'a'), None, Some(b'c')], false), "\"a\"?");
        let names = [(3, "BOTH"), (1, "A"), (2, "B"), (8, "C")];
        assert_eq!(bits(0, &names), "0");
        assert_eq!(bits(11, &names), "BOTH|C");
        assert_eq!(bits(0x12, &names), "B|0x10");
        assert_eq!(
            [octal(0), octal(0o22), octal(0o4755)],
            ["000", "022", "04755"]
        );
        assert_eq!(signals(1 << 1 | 1 << 16), "[INT CHLD]");
        assert_eq!(signals(!(1 << 31)), "~[RTMIN]");
        assert_eq!(
            (signal(9).as_str(), signal(33).as_str(), signal(0).as_str()),
            ("SIGKILL", "SIGRT_1", "0")
        );
    }
}

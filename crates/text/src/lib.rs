//! Escapes text that comes from a recording, from another process or over a network. All characters that are
//! not plainly visible are escaped. Otherwise a recording could send commands to the reader's terminal, forge
//! lines of our output, or reverse the text beside it.
//!
//! There are two lines of defence:
//!
//! - Code that puts such a text into a line escapes it with [`line()`] or [`Shown`]. They escape the ends of
//!   lines, too.
//! - Code that prints, sends or reports a finished text passes it through [`lines`]. That escapes everything
//!   that was forgotten, except the ends of lines.
//!
//! Escapes are those of JSON. So JSON that passes [`lines`] stays the same JSON. Bytes that are not UTF-8 are
//! shown one by one ([`bytes`]). A backslash is not escaped, so text without strange characters does not
//! change.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Whether a character is shown as it is. Such a character has a shape or is a blank, is not a control
/// character, and does not change how its neighbours are shown.
fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !(c.is_control() || is_invisible(c))
}

/// Whether a character has no shape: Unicode's property `Default_Ignorable_Code_Point`, and the separators of
/// lines and paragraphs. This includes all characters that change the direction of text, and tags. Blanks
/// take room, so they are not included.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn escape(c: char, out: &mut impl Write) -> fmt::Result {
    match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c => c
            .encode_utf16(&mut [0; 2])
            .iter()
            .try_for_each(|unit| write!(out, "\\u{unit:04x}")),
    }
}

fn escaped(text: &str, plain: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(|c| !plain(c)) else {
        return Cow::Borrowed(text);
    };
    let (begin, rest) = text.split_at(first);
    let mut out = String::with_capacity(text.len() + 8);
    out.push_str(begin);
    for c in rest.chars() {
        // Writing to a string cannot fail.
        let _ = match plain(c) {
            true => out.write_char(c),
            false => escape(c, &mut out),
        };
    }
    Cow::Owned(out)
}

/// Escapes a text that becomes part of a line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// Escapes a finished text, which may have several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || is_plain(c))
}

/// Escapes bytes that become part of a line. Bytes that are not UTF-8 are shown as `\xff`.
pub fn bytes(text: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(text) {
        return line(text);
    }
    let mut out = String::new();
    for chunk in text.utf8_chunks() {
        out.push_str(&line(chunk.valid()));
        for b in chunk.invalid() {
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    Cow::Owned(out)
}

/// Displays a value as part of a line, escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<T>(pub T);

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.write_str(&line(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_visible_stays() {
        for plain in [
            "",
            "/usr/bin/größe naïve 数 \\n 'a\\'",
            "a\u{a0}b e\u{301} 🙂",
        ] {
            assert!(matches!(line(plain), Cow::Borrowed(t) if t == plain));
        }
    }

    #[test]
    fn what_commands_terminals_is_escaped() {
        assert_eq!(line("a\x1b[2J\x07\x7f"), "a\\u001b[2J\\u0007\\u007f");
        assert_eq!(line("\u{9b}31m\r\n\t"), "\\u009b31m\\r\\n\\t");
        assert_eq!(
            line("a\u{202e}b\u{2066}\u{200b}"),
            "a\\u202eb\\u2066\\u200b"
        );
        assert_eq!(line("\u{e0041}"), "\\udb40\\udc41");
        assert_eq!(lines("a\nb\x1b"), "a\nb\\u001b");
    }

    #[test]
    fn no_control_character_gets_through() {
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            let shown = line(c.encode_utf8(&mut [0; 4])).into_owned();
            assert!(shown == c.to_string() || shown.bytes().all(|b| b.is_ascii_graphic()));
            assert!(!shown.contains(char::is_control), "{c:?}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_shown_by_byte() {
        assert_eq!(bytes(b"a\xff\x9b\x1b"), "a\\xff\\x9b\\u001b");
        assert_eq!(bytes("größe".as_bytes()), "größe");
        assert_eq!(bytes(b"\xe2\x80"), "\\xe2\\x80");
    }

    #[test]
    fn whatever_can_be_displayed() {
        let list = format!("{} {:>3}", Shown(format_args!("{}\x1b", "\n")), 7);
        assert_eq!(list, "\\n\\u001b   7");
    }
}

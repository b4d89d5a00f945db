//! Bytes that a program read or wrote, as commands show them.

use crate::out::{self, JsonList};
use anyhow::{Result, bail};
use hindsight_text::line;
use hindsight_timeline::{Cursor, Transfer, Way};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::io::IsTerminal;

/// What has at most so many bytes is looked up once.
const KEPT: u64 = 1 << 16;

/// Prints the bytes of a transfer as text in quotes, piece by piece. A backslash stands before quotes and backslashes.
/// Unknown bytes are counted outside of the quotes.
pub fn print_text(t: &Transfer, cursor: &mut Cursor) -> hindsight_timeline::Result<()> {
    if !t.is_in_memory() {
        let s = if t.len == 1 { "" } else { "s" };
        let text = format!("{} byte{s} that were not in the program's memory", t.len);
        out::write(text.as_bytes());
        return Ok(());
    }
    let mut text = Text::default();
    t.bytes(cursor, &mut |piece| {
        text.add(piece);
        out::write(std::mem::take(&mut text.out).as_bytes());
        Ok(())
    })?;
    text.end();
    out::write(text.out.as_bytes());
    Ok(())
}

/// Makes text of bytes.
#[derive(Default)]
struct Text {
    out: String,
    /// Something was shown.
    begun: bool,
    /// A quotation is open.
    quoted: bool,
    /// Known bytes that may be the beginning of a character.
    rest: Vec<u8>,
    unknown: u64,
}

impl Text {
    fn add(&mut self, bytes: &[Option<u8>]) {
        for part in bytes.chunk_by(|a, b| a.is_some() == b.is_some()) {
            if part[0].is_none() {
                self.flush(true);
                self.unknown += part.len() as u64;
                continue;
            }
            self.end_unknown();
            self.rest.extend(part.iter().flatten());
            self.flush(false);
        }
    }

    /// Shows known bytes. Unless they have ended, a character may go on in what follows.
    fn flush(&mut self, ended: bool) {
        let cut = match (ended, std::str::from_utf8(&self.rest)) {
            (false, Err(e)) if e.error_len().is_none() => e.valid_up_to(),
            _ => self.rest.len(),
        };
        if cut > 0 && !self.quoted {
            self.separate();
            self.out.push('"');
            self.quoted = true;
        }
        let behind = self.rest.split_off(cut);
        for chunk in std::mem::replace(&mut self.rest, behind).utf8_chunks() {
            let valid = chunk.valid().replace('\\', "\\\\").replace('"', "\\\"");
            self.out.push_str(&line(&valid));
            for b in chunk.invalid() {
                let _ = write!(self.out, "\\x{b:02x}");
            }
        }
        if ended && self.quoted {
            self.out.push('"');
            self.quoted = false;
        }
    }

    fn separate(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            self.out.push(' ');
        }
    }

    fn end_unknown(&mut self) {
        if self.unknown > 0 {
            self.separate();
            let s = if self.unknown == 1 { "" } else { "s" };
            let _ = write!(self.out, "{} unknown byte{s}", self.unknown);
            self.unknown = 0;
        }
    }

    fn end(&mut self) {
        self.flush(true);
        self.end_unknown();
    }
}

/// Prints what a transfer moved as the next element of a list for scripts: `text` if it is text that is known, and otherwise
/// `bytes`, with null for those that are not known. Both are null if the bytes were not in memory. A call may have moved
/// gigabytes: they are visited twice, in pieces, to find out which it is and then to print them.
pub fn print_json(
    list: &mut JsonList,
    t: &Transfer,
    cursor: &mut Cursor,
) -> hindsight_timeline::Result<()> {
    let mut kept = Vec::new();
    let mut characters = Characters::default();
    let mut is_text = true;
    t.bytes(cursor, &mut |piece| {
        if t.len <= KEPT {
            kept.extend_from_slice(piece);
        }
        is_text = is_text && characters.add(piece).is_some();
        Ok(())
    })?;
    let is_text = is_text && characters.is_whole();
    let mut head = head_json(t).to_string();
    head.pop();
    list.begin(&head);
    let mut each = |show: &mut dyn FnMut(&[Option<u8>])| match t.len <= KEPT {
        true => {
            show(&kept);
            Ok(())
        }
        false => t.bytes(cursor, &mut |piece| {
            show(piece);
            Ok(())
        }),
    };
    if !t.is_in_memory() {
        out::write(b",\"bytes\":null,\"text\":null}");
    } else if is_text {
        out::write(b",\"bytes\":null,\"text\":\"");
        let mut characters = Characters::default();
        each(&mut |piece| {
            let quoted = Json::from(characters.add(piece).unwrap_or_default()).to_string();
            let inner = &quoted[1..quoted.len() - 1];
            out::write(hindsight_text::lines(inner).as_bytes());
        })?;
        out::write(b"\"}");
    } else {
        out::write(b",\"text\":null,\"bytes\":[");
        let mut begun = false;
        each(&mut |piece| {
            let mut text = String::new();
            for b in piece {
                if std::mem::replace(&mut begun, true) {
                    text.push(',');
                }
                let _ = match b {
                    Some(b) => write!(text, "{b}"),
                    None => write!(text, "null"),
                };
            }
            out::write(text.as_bytes());
        })?;
        out::write(b"]}");
    }
    Ok(())
}

/// What is known of a transfer but its bytes, for scripts.
pub fn head_json(t: &Transfer) -> Json {
    json!({
        "position": t.position.to_string(), "thread": t.thread.0, "count": t.count, "pid": t.pid,
        "call": hindsight_timeline::syscall_name(t.number),
        "fd": t.fd,
        "first_fd": t.file.original().first,
        "open_file": t.file.number,
        "name": t.file.what.to_string(),
        "way": match t.way {
            Way::In => "in",
            Way::Out => "out",
        },
        "offset": t.offset,
        "length": t.len,
        "in_memory": t.is_in_memory(),
    })
}

/// Puts characters together that lie in several pieces.
#[derive(Default)]
pub struct Characters {
    /// The beginning of a character.
    rest: Vec<u8>,
}

impl Characters {
    /// The characters that are whole now. `None`: it is no text, or not known.
    pub fn add(&mut self, piece: &[Option<u8>]) -> Option<String> {
        let mut bytes = std::mem::take(&mut self.rest);
        for b in piece {
            bytes.push((*b)?);
        }
        if let Err(e) = std::str::from_utf8(&bytes) {
            if e.error_len().is_some() {
                return None;
            }
            self.rest = bytes.split_off(e.valid_up_to());
        }
        String::from_utf8(bytes).ok()
    }

    /// Whether no character goes on in what follows.
    pub fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Writes bytes as they are.
pub struct Raw {
    written: u64,
    lost: u64,
    /// How many bytes had been written before the first that is not known.
    first: Option<u64>,
}

impl Raw {
    /// # Errors
    /// Standard output is a terminal, which would obey what the program printed.
    pub fn new() -> Result<Raw> {
        if std::io::stdout().is_terminal() {
            bail!(
                "--raw writes bytes as they are, and a terminal may obey them: send them to a file, or to another program"
            );
        }
        Ok(Raw {
            written: 0,
            lost: 0,
            first: None,
        })
    }

    /// Writes the bytes of a transfer. Those that are not known are left out.
    pub fn write(&mut self, t: &Transfer, cursor: &mut Cursor) -> hindsight_timeline::Result<()> {
        if !t.is_in_memory() {
            self.lose(t.len);
        }
        t.bytes(cursor, &mut |piece| {
            let known: Vec<u8> = piece.iter().flatten().copied().collect();
            if let Some(at) = piece.iter().position(Option::is_none) {
                self.first.get_or_insert(self.written + at as u64);
                self.lost += (piece.len() - known.len()) as u64;
            }
            self.written += known.len() as u64;
            out::write(&known);
            Ok(())
        })
    }

    fn lose(&mut self, n: u64) {
        self.first.get_or_insert(self.written);
        self.lost += n;
    }

    /// Says what was left out. The exit status: 0 if it was nothing.
    pub fn end(self) -> i32 {
        let Some(first) = self.first else { return 0 };
        let (s, are) = match self.lost {
            1 => ("", "is"),
            _ => ("s", "are"),
        };
        crate::say(&format!(
            "{} byte{s} {are} not known, and left out; the first of them behind {first} bytes",
            self.lost
        ));
        1
    }
}

#[cfg(test)]
mod tests {
    use super::{Characters, Text};

    fn text(pieces: &[&[Option<u8>]]) -> String {
        let mut t = Text::default();
        pieces.iter().for_each(|p| t.add(p));
        t.end();
        t.out
    }

    fn known(text: &[u8]) -> Vec<Option<u8>> {
        text.iter().map(|b| Some(*b)).collect()
    }

    #[test]
    fn bytes_are_shown_in_quotes() {
        assert_eq!(
            text(&[&known(b"a \"b\"\\\n\x1b")]),
            r#""a \"b\"\\\n\u001b""#
        );
        assert_eq!(text(&[&known(b"a\xff\xc3")]), r#""a\xff\xc3""#);
        // A character that lies in two pieces.
        let both = "zwölf".as_bytes();
        assert_eq!(text(&[&known(&both[..3]), &known(&both[3..])]), "\"zwölf\"");
    }

    #[test]
    fn characters_may_lie_in_several_pieces() {
        let both = "a€b".as_bytes();
        let mut c = Characters::default();
        let parts = [&both[..2], &both[2..3], &both[3..]];
        let found = parts.map(|p| c.add(&known(p)).unwrap());
        assert_eq!(found, ["a", "", "€b"]);
        assert!(c.rest.is_empty());
        assert_eq!(c.add(&known(b"a\xff")), None);
        assert_eq!(Characters::default().add(&[Some(b'a'), None]), None);
    }

    #[test]
    fn unknown_bytes_are_no_text() {
        let (a, b) = (known(b"ab"), known(b"12 unknown bytes"));
        let none = [None; 12];
        let shown = "\"ab\" 24 unknown bytes \"12 unknown bytes\"";
        assert_eq!(text(&[&a, &none, &none, &b]), shown);
        assert_eq!(text(&[&none[..1]]), "1 unknown byte");
        assert_eq!(text(&[&a, &none]), "\"ab\" 12 unknown bytes");
    }
}

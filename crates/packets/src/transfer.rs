//! `qXfer`: objects that a client reads in pieces.

use crate::encoding::{escape, number, numbers};
use crate::error::Parsed;
use crate::{Answer, MAX_DATA, Malformed};

/// A piece of an object is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    pub object: Object,
    pub offset: u64,
    pub len: u64,
}

/// What can be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// The auxiliary vector.
    Auxv,
    /// The name of the file that a process executes; `None`: the chosen process.
    ExecFile(Option<u64>),
    /// The target description, by the name of its document.
    Features(String),
    /// The list of loaded libraries.
    Libraries,
    /// A table about the system, by its name (`info os` in gdb). [`Transfer::answer_empty_table`] may be the answer.
    SystemTable(String),
    /// The kernel's information about the last signal.
    SignalInfo,
    /// The list of threads.
    Threads,
}

impl Transfer {
    /// Answers with the piece that is wanted of the whole object. An object that changes between two pieces arrives
    /// torn.
    pub fn answer(&self, whole: &[u8]) -> Answer {
        let from = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let rest = whole.get(from..).unwrap_or_default();
        let len = usize::try_from(self.len).unwrap_or(MAX_DATA).min(MAX_DATA);
        // `l`: this is the last piece.
        let (mark, piece) = match rest.get(..len) {
            Some(piece) if piece.len() < rest.len() => (b'm', piece),
            _ => (b'l', rest),
        };
        let mut out = vec![mark];
        out.extend(escape(piece));
        Answer::raw(out)
    }

    /// Answers with a piece of a table about the system that has no rows.
    pub fn answer_empty_table(&self, name: &str) -> Answer {
        let table = format!(
            r#"<?xml version="1.0"?><!DOCTYPE osdata SYSTEM "osdata.dtd"><osdata type="{name}"></osdata>"#
        );
        self.answer(table.as_bytes())
    }

    /// There is no such object, or no such document of it.
    pub fn absent() -> Answer {
        Answer::error(0)
    }
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Transfer> {
    let Some(rest) = packet.strip_prefix(b"qXfer:") else {
        return Ok(None);
    };
    let mut parts = rest.splitn(3, |b| *b == b':');
    let (Some(object), Some(b"read"), Some(rest)) = (parts.next(), parts.next(), parts.next())
    else {
        return Ok(None);
    };
    let known: [&[u8]; 7] = [
        b"auxv",
        b"exec-file",
        b"features",
        b"libraries-svr4",
        b"osdata",
        b"siginfo",
        b"threads",
    ];
    match known.contains(&object) {
        true => piece(object, rest).map(Some).ok_or(Malformed("qXfer")),
        false => Ok(None),
    }
}

/// `ANNEX:OFFSET,LENGTH`.
fn piece(object: &[u8], rest: &[u8]) -> Option<Transfer> {
    let colon = rest.iter().rposition(|b| *b == b':')?;
    let (annex, range) = (&rest[..colon], &rest[colon + 1..]);
    let (offset, len) = numbers(range, b',')?;
    let object = match (object, annex) {
        (b"exec-file", b"") => Object::ExecFile(None),
        (b"exec-file", pid) => Object::ExecFile(Some(number(pid)?)),
        (b"features", name) => Object::Features(String::from_utf8(name.to_vec()).ok()?),
        (b"osdata", name) => Object::SystemTable(String::from_utf8(name.to_vec()).ok()?),
        (_, [_, ..]) => return None,
        (b"auxv", _) => Object::Auxv,
        (b"libraries-svr4", _) => Object::Libraries,
        (b"siginfo", _) => Object::SignalInfo,
        (b"threads", _) => Object::Threads,
        _ => return None,
    };
    Some(Transfer {
        object,
        offset,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(packet: &[u8], whole: &[u8]) -> Vec<u8> {
        let transfer = parse(packet).unwrap().unwrap();
        transfer.answer(whole).content().to_vec()
    }

    #[test]
    fn objects_come_in_pieces() {
        assert_eq!(read(b"qXfer:threads:read::0,4", b"abcdef"), b"mabcd");
        assert_eq!(read(b"qXfer:threads:read::4,4", b"abcdef"), b"lef");
        assert_eq!(read(b"qXfer:threads:read::0,6", b"abcdef"), b"labcdef");
        assert_eq!(read(b"qXfer:threads:read::40,4", b"abcdef"), b"l");
        assert_eq!(read(b"qXfer:threads:read::0,40", b"a#b"), b"la}\x03b");
        let most = format!("qXfer:auxv:read::{:x},{:x}", 0, u64::MAX);
        assert_eq!(
            read(most.as_bytes(), &vec![0; MAX_DATA + 1]).len(),
            MAX_DATA + 1
        );
    }

    #[test]
    fn objects_are_told_apart() {
        let object = |p: &[u8]| parse(p).unwrap().map(|t| t.object);
        let features = Object::Features("target.xml".into());
        assert_eq!(
            object(b"qXfer:features:read:target.xml:0,ff"),
            Some(features)
        );
        let exec = Object::ExecFile(Some(0x1a));
        assert_eq!(object(b"qXfer:exec-file:read:1a:0,ff"), Some(exec));
        let table = Object::SystemTable("files".into());
        assert_eq!(object(b"qXfer:osdata:read:files:0,ff"), Some(table));
        assert_eq!(object(b"qXfer:sdata:read::0,ff"), None);
        assert_eq!(object(b"qXfer:auxv:write::0,ff"), None);
        for bad in [
            &b"qXfer:auxv:read:x:0,1"[..],
            b"qXfer:auxv:read::0",
            b"qXfer:auxv:read:",
            b"qXfer:exec-file:read:x:0,1",
            b"qXfer:features:read:\xff:0,1",
        ] {
            assert_eq!(parse(bad), Err(Malformed("qXfer")));
        }
    }
}

//! What is carried, in words.

use super::{Carried, Rule};
use hindsight_text::line;
use hindsight_timeline::{KnownByte, Memory};
use std::collections::BTreeSet;
use std::fmt::Write;

/// So many functions that a value was carried over are named.
const NAMED: usize = 5;
/// Bytes in a line.
const ROW: usize = 16;

impl Carried {
    /// Of bytes that belong together: whether they are `carried`, or only `assumed`.
    pub fn mark(all: &[Carried]) -> &'static str {
        match all.iter().all(|c| c.rule() == Rule::Declared) {
            true => "carried",
            false => "assumed",
        }
    }

    /// Over how many gaps bytes were carried, and what was called in these. It is escaped.
    pub fn over(all: &[Carried]) -> String {
        let mut names: Vec<&str> = Vec::new();
        let mut unnamed = BTreeSet::new();
        for p in all.iter().flat_map(|c| c.over.iter()) {
            match &p.declared {
                Some((_, text)) if !names.contains(&text.as_str()) => names.push(text),
                Some(_) => {}
                None => _ = unnamed.insert(p.position),
            }
        }
        let first = names.iter().take(NAMED);
        let mut said: Vec<String> = first.map(|n| line(n).into_owned()).collect();
        match names.len().saturating_sub(NAMED) {
            0 => {}
            1 => said.push("1 other".into()),
            n => said.push(format!("{n} others")),
        }
        match unnamed.len() {
            0 => {}
            1 => said.push("1 gap of which nothing is known".into()),
            n => said.push(format!("{n} gaps of which nothing is known")),
        }
        let gaps = match all.iter().map(|c| c.over.len()).max().unwrap_or(0) {
            1 => "1 gap".into(),
            n => format!("{n} gaps"),
        };
        format!("{gaps} away: {}", said.join(", "))
    }

    /// Where bytes are known, if that is one place, and how they came from there. It is escaped.
    pub fn source(all: &[Carried]) -> String {
        match all {
            [one] => format!("{} at {}, {}", one.ground, one.from, Carried::over(all)),
            _ => Carried::over(all),
        }
    }

    /// Lines with all bytes, in the form of [`Memory`], and where they come from. It is escaped. Empty: nothing is carried.
    pub fn text(all: &[Carried]) -> String {
        let mut out = String::new();
        for (rule, says) in [
            (
                Rule::Declared,
                "carried over calls that were not recorded, since their functions are declared to write something else:",
            ),
            (
                Rule::Straight,
                "assumed, as if what was not recorded had written nothing:",
            ),
        ] {
            let mut its = all.iter().filter(|c| c.rule() == rule).peekable();
            if its.peek().is_some() {
                let _ = write!(out, "\n{says}\n");
            }
            for c in its {
                c.rows(&mut out);
                let source = Carried::source(std::slice::from_ref(c));
                let _ = writeln!(out, "{:#x}+{}: {source}", c.address, c.bytes.len());
            }
        }
        out
    }

    /// The lines of bytes, as they are shown of memory that is known.
    fn rows(&self, out: &mut String) {
        let byte = |b: &u8| {
            Some(KnownByte {
                value: *b,
                ground: self.ground,
            })
        };
        let m = Memory {
            address: self.address,
            bytes: self.bytes.iter().map(byte).collect(),
            ..Memory::default()
        };
        for row in m.to_string().lines().take(self.bytes.len().div_ceil(ROW)) {
            let _ = writeln!(out, "{row}");
        }
    }
}

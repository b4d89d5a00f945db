//! One half of a block, while it is read.

use crate::decode::{among, window};
use crate::facts::Facts;
use crate::quick::GROUP;
use crate::{Code, Refusal, Rules, Wrong};

/// The state while a half is read.
pub(crate) struct Part<'a> {
    pub rules: &'a Rules,
    pub code: &'a Code<'a>,
    pub bytes: &'a [u8],
    pub cold: bool,
    /// Where this half begins in `groups`, in bytes.
    pub first: usize,
    /// The same for the other half. Then its length, and its distance from this one.
    pub other: usize,
    pub other_len: usize,
    pub distance: i64,
    pub at: usize,
    /// From here to the present instruction, execution goes from one instruction to the next.
    pub since: usize,
}

impl Part<'_> {
    pub fn new<'a>(rules: &'a Rules, code: &'a Code<'a>, cold: bool) -> Part<'a> {
        let (hot_len, cold_len) = (code.hot.len(), code.cold.len());
        let cold_first = (hot_len / GROUP + 1) * GROUP;
        let distance = code.hot_at as i64 - code.cold_at as i64;
        let p = Part {
            rules,
            code,
            bytes: code.hot,
            cold,
            first: 0,
            other: cold_first,
            other_len: cold_len,
            distance,
            at: 0,
            since: 0,
        };
        match cold {
            false => p,
            true => Part {
                bytes: code.cold,
                first: cold_first,
                other: 0,
                other_len: hot_len,
                distance: -distance,
                ..p
            },
        }
    }

    /// Where the half is, relative to the base of the code cache.
    pub fn place(&self) -> i64 {
        match self.cold {
            true => self.code.cold_at as i64,
            false => self.code.hot_at as i64,
        }
    }

    /// What is known of registers at the present instruction, from the instructions since `from`.
    pub fn facts(&self, from: usize) -> Facts {
        let mut facts = Facts::new();
        let mut at = from;
        while at < self.at {
            let rest = &self.bytes[at..];
            match among(&window(rest), rest.len()) {
                Some(i) => {
                    facts.pass(self.rules, &i, rest, (self.first + at) as u32);
                    at += i.len as usize;
                }
                // Cannot happen: these bytes were decoded before.
                None => return Facts::new(),
            }
        }
        facts
    }

    /// Where the present instruction is in the groups.
    pub fn here(&self) -> u32 {
        (self.first + self.at) as u32
    }

    pub fn refuse(&self, what: Wrong) -> Refusal {
        self.refuse_at(self.at, what)
    }

    #[cold]
    pub fn refuse_at(&self, at: usize, what: Wrong) -> Refusal {
        Refusal::new(what, self.cold, at, self.bytes)
    }
}

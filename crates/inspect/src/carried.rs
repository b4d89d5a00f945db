//! What memory held before or behind calls that were not recorded.
//!
//! In a gap anything may have been written. So nothing that was known before it is known behind it. But where a thread called one
//! function in it, and that is declared, only what it writes is lost. A byte that nobody accessed since the gap then holds what it
//! held before, and a byte that is read behind the gap held that before, too. What is found so is kept apart from what the
//! recording tells: a declaration may be wrong.
//!
//! Only programs of one thread are looked at: other threads may have written anything at the same time.

mod call;
mod declared;
mod imports;

pub use declared::{Declarations, Fault};

use crate::{Inspector, Result};
use call::{Calls, Effect};
use hindsight_timeline::{Cursor, Ground, Memory, Position, ThreadId, Unrecorded};
use std::collections::BTreeMap;
use std::sync::Arc;

/// At most so many gaps are passed, in each direction. Each costs a few replays.
const MOST: usize = 64;

/// Of more memory, nothing is carried: each byte takes memory and time.
const MOST_BYTES: usize = 64 << 10;

/// On what ground a value is carried over gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The functions that were called are declared, and write something else.
    Declared,
    /// Somebody assumes that what is not recorded wrote nothing.
    Straight,
}

/// A gap over which a value is carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassedGap {
    /// Where it begins.
    pub position: Position,
    /// The function that was called, and its declaration. `None`: the gap is assumed to have written nothing.
    pub declared: Option<(String, String)>,
}

/// Neighbouring bytes that are carried over the same gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    /// First address.
    pub address: u64,
    /// What they hold.
    pub bytes: Vec<u8>,
    /// Where that is known from the recording.
    pub from: Position,
    /// Why it is known there.
    pub ground: Ground,
    /// The gaps in between, the nearest one first.
    pub over: Arc<[PassedGap]>,
}

impl Carried {
    /// The ground of all of it: one assumption makes it an assumption.
    pub fn rule(&self) -> Rule {
        match self.over.iter().all(|p| p.declared.is_some()) {
            true => Rule::Declared,
            false => Rule::Straight,
        }
    }
}

/// The bytes that are still looked for, and what was found.
struct Search<'a> {
    calls: Calls<'a>,
    straight: bool,
    thread: ThreadId,
    address: u64,
    len: usize,
    /// By byte: the value, where it is known and why, and how many gaps were passed.
    found: Vec<Option<(u8, Position, Ground, usize)>>,
}

impl Inspector {
    /// Carries values over gaps to the bytes of `m` that are not known at the cursor's position. What is known of memory must
    /// have been asked for there. With `straight`, gaps of which nothing else is known count as if they wrote nothing. The
    /// cursor is there again afterwards.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn carried(
        &mut self,
        cursor: &mut Cursor,
        m: &Memory,
        declarations: &Declarations,
        straight: bool,
    ) -> Result<Vec<Carried>> {
        let (thread, count, image) = (cursor.thread(), cursor.count(), cursor.image());
        let threads = self.timeline.threads()?;
        let others = threads.iter().filter(|t| t.image == image).count() > 1;
        if others || m.bytes.len() > MOST_BYTES {
            return Ok(Vec::new());
        }
        let files_only = self.timeline.leaves_out_files_only(thread)?;
        let mut s = Search {
            calls: Calls::new(self, declarations, files_only),
            straight,
            thread,
            address: m.address,
            len: m.bytes.len(),
            found: vec![None; m.bytes.len()],
        };
        let silent = |i: &usize| m.silent.get(*i).copied().unwrap_or(false);
        let mut out = Vec::new();
        for back in [true, false] {
            let open: Vec<usize> = (0..s.len)
                .filter(silent)
                .filter(|i| s.found[*i].is_none())
                .collect();
            let over = s.look(cursor, count, open.clone(), back)?;
            out.extend(s.spans(&open, &over));
        }
        cursor.seek_count(thread, count)?;
        out.sort_by_key(|c| c.address);
        Ok(out)
    }
}

impl Search<'_> {
    /// Looks for some bytes over one gap after the other. Returns those that were passed.
    fn look(
        &mut self,
        cursor: &mut Cursor,
        count: u64,
        mut open: Vec<usize>,
        back: bool,
    ) -> Result<Vec<PassedGap>> {
        let mut over = Vec::new();
        let mut here = count;
        while !open.is_empty()
            && over.len() < MOST
            && let Some(gap) = self.next(here, back)?
            && gap.instructions_only
        {
            if !back {
                // What is known where the gap begins was written in between. It says nothing of what was before.
                cursor.seek_count(self.thread, gap.from)?;
                let m = cursor.known_memory(self.address, self.len)?;
                open.retain(|i| m.silent[*i]);
            }
            let Some(effect) = self.effect(cursor, &gap)? else {
                break;
            };
            // The cursor stands where the gap begins.
            let position = cursor.position()?;
            let list = self
                .calls
                .inspector
                .timeline
                .mappings(cursor.image(), position)?;
            // With what the recording says at the end of the gap.
            let until = gap.to.saturating_add(1).max(here);
            let all = (self.address, self.len);
            let timeline = &self.calls.inspector.timeline;
            let anew = timeline.made_anew(self.thread, all, (gap.from, until))?;
            let end = self.address.saturating_add(self.len as u64);
            let kept = effect.kept((self.address, end), &list);
            open.retain(|i| {
                let at = self.address.wrapping_add(*i as u64);
                let before = kept.partition_point(|k| k.end <= at);
                !anew[*i] && kept.get(before).is_some_and(|k| k.contains(&at))
            });
            over.push(PassedGap {
                position,
                declared: effect.declared,
            });
            if !back {
                cursor.seek_count(self.thread, gap.to)?;
            }
            let m = cursor.known_memory(self.address, self.len)?;
            let at = cursor.position()?;
            for i in &open {
                // Behind a gap, only what is read later tells what was before.
                if let Some(k) = m.bytes[*i].filter(|k| back || k.ground == Ground::Exposed) {
                    self.found[*i] = Some((k.value, at, k.ground, over.len()));
                }
            }
            open.retain(|i| m.silent[*i]);
            here = match back {
                true => gap.from,
                false => gap.to,
            };
        }
        Ok(over)
    }

    fn next(&self, here: u64, back: bool) -> Result<Option<Unrecorded>> {
        let timeline = &self.calls.inspector.timeline;
        Ok(match back {
            true => timeline.gap_before(self.thread, here)?,
            false => timeline.gap_after(self.thread, here)?,
        })
    }

    /// What a gap did. Afterwards the cursor stands where it begins.
    fn effect(&mut self, cursor: &mut Cursor, gap: &Unrecorded) -> Result<Option<Effect>> {
        if let Some(effect) = self.calls.effect(cursor, self.thread, gap)? {
            cursor.seek_count(self.thread, gap.from)?;
            return Ok(Some(effect));
        }
        if !self.straight || gap.to == u64::MAX {
            return Ok(None);
        }
        cursor.seek_count(self.thread, gap.to)?;
        let after = cursor.registers()?;
        cursor.seek_count(self.thread, gap.from)?;
        Ok(Some(Effect::nothing(&cursor.registers()?, &after)))
    }

    /// What was found of some bytes, neighbours together.
    fn spans(&self, bytes: &[usize], over: &[PassedGap]) -> Vec<Carried> {
        let mut out: Vec<Carried> = Vec::new();
        let mut known: BTreeMap<usize, Arc<[PassedGap]>> = BTreeMap::new();
        for i in bytes {
            let Some((value, from, ground, n)) = self.found[*i] else {
                continue;
            };
            let address = self.address.wrapping_add(*i as u64);
            let joins = |c: &Carried| {
                let end = c.address.wrapping_add(c.bytes.len() as u64);
                (end, c.from, c.ground, c.over.len()) == (address, from, ground, n)
            };
            match out.last_mut().filter(|c| joins(c)) {
                Some(last) => last.bytes.push(value),
                None => out.push(Carried {
                    address,
                    bytes: vec![value],
                    from,
                    ground,
                    over: Arc::clone(known.entry(n).or_insert_with(|| over[..n].into())),
                }),
            }
        }
        out
    }
}

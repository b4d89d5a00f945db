//! What memory held before or behind calls that were not recorded.
//!
//! In a gap anything may have been written. So nothing that was known before it is known behind it. But where a thread called one
//! function in it, and that is declared, only what it writes is lost. A byte that nobody accessed since the gap then holds what it
//! held before, and a byte that is read behind the gap held that before, too. What is found so is kept apart from what the
//! recording tells: a declaration may be wrong.
//!
//! Only programs of one thread are looked at: other threads may have written anything at the same time.

mod assumption;
mod call;
pub mod declared;
mod imports;
mod shown;
mod view;

pub use assumption::{Assumption, NoAssumption};
pub use declared::{Declarations, Fault};
use view::Here;
pub use view::View;

use crate::{Inspector, Result};
use call::{Calls, Effect, Known};
use hindsight_timeline::{Cursor, Ground, Memory, Position, ThreadId, Unrecorded};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// At most so many gaps are passed, in each direction. Each costs a few replays.
const MOST: usize = 64;
/// The same where an answer must come soon: see [`Carrier::near`].
pub const NEAR_GAPS: usize = 4;
/// So often it is looked what is carried. Each time more may be wanted: what a carried pointer points to.
const ROUNDS: usize = 8;

/// Of more memory, nothing is carried: each byte takes memory and time.
const MOST_BYTES: usize = 64 << 10;

/// To more pieces of memory, nothing is carried: each costs a question at each gap.
const MOST_PIECES: usize = 256;

/// One answer looks at memory behind gaps at most so many times, and so many bytes.
const MOST_QUESTIONS: usize = 1 << 13;
const MOST_READ: usize = 16 << 20;

/// The effects of so many gaps are remembered.
const MOST_EFFECTS: usize = 4096;

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

/// By what values are carried. It remembers what the gaps of one recording did.
pub struct Carrier {
    declarations: Declarations,
    straight: bool,
    /// At most so many gaps are passed in each direction, and so often it is looked.
    reach: (usize, usize),
    /// Something may be carried that was not looked for.
    left_out: bool,
    files: Known,
    /// By thread, beginning and end. A gap has one effect, whoever asks. `None`: nothing is known of it.
    effects: HashMap<(ThreadId, u64, u64), Option<Arc<Effect>>>,
    /// What was found where it was asked last.
    here: Here,
}

impl Carrier {
    /// By these declarations. With `straight`, gaps of which nothing else is known count as if they wrote nothing.
    pub fn new(declarations: Declarations, straight: bool) -> Carrier {
        Carrier {
            declarations,
            straight,
            reach: (MOST, ROUNDS),
            left_out: false,
            files: Known::default(),
            effects: HashMap::new(),
            here: Here::default(),
        }
    }

    /// The same, but quicker: values are carried over at most [`NEAR_GAPS`] gaps in each direction, and what carried pointers
    /// point to is not looked for.
    pub fn near(self) -> Carrier {
        Carrier {
            reach: (NEAR_GAPS, 1),
            ..self
        }
    }

    /// Whether this carrier looks only near by.
    pub fn is_near(&self) -> bool {
        self.reach.0 < MOST
    }

    /// Whether values were not known that may be carried, but were not looked for since that takes too long. It is about the
    /// answers since this was asked last.
    pub fn left_out(&mut self) -> bool {
        std::mem::take(&mut self.left_out)
    }
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

/// What one answer may still ask of memory behind gaps.
struct Budget {
    questions: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            questions: MOST_QUESTIONS,
            bytes: MOST_READ,
        }
    }
}

impl Budget {
    fn take(&mut self, bytes: usize) {
        self.questions = self.questions.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(&self) -> bool {
        self.questions == 0 || self.bytes == 0
    }
}

/// The bytes that are still looked for, and what was found. A byte is named by its piece of memory, and its number in that.
struct Search<'a> {
    calls: Calls<'a>,
    effects: &'a mut HashMap<(ThreadId, u64, u64), Option<Arc<Effect>>>,
    straight: bool,
    /// At most so many gaps are passed.
    most: usize,
    budget: &'a mut Budget,
    /// There are gaps that were not passed, since that takes too long.
    more: bool,
    thread: ThreadId,
    /// First address and length.
    pieces: Vec<(u64, usize)>,
    /// By byte: the value, where it is known and why, and how many gaps were passed.
    found: BTreeMap<Byte, (u8, Position, Ground, usize)>,
}

type Byte = (usize, usize);

impl Inspector {
    /// Carries values over gaps to the bytes of some pieces of memory that are not known at the cursor's position. What is known
    /// of them must have been asked for there. The cursor is there again afterwards.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn carried(
        &mut self,
        cursor: &mut Cursor,
        memory: &[&Memory],
        carrier: &mut Carrier,
    ) -> Result<Vec<Carried>> {
        match memory.iter().any(|m| m.silent.contains(&true)) && self.may_carry(cursor)? {
            true => Ok(self
                .search(cursor, memory, carrier, &mut Budget::default())?
                .0),
            false => Ok(Vec::new()),
        }
    }

    /// Whether anything can be carried to the cursor's position.
    fn may_carry(&self, cursor: &mut Cursor) -> Result<bool> {
        let (thread, count, image) = (cursor.thread(), cursor.count(), cursor.image());
        let gaps = self.timeline.gap_before(thread, count)?.is_some()
            || self.timeline.gap_after(thread, count)?.is_some();
        if !gaps {
            return Ok(false);
        }
        let threads = self.timeline.threads()?;
        if threads.iter().filter(|t| t.image == image).count() > 1 {
            return Ok(false);
        }
        // The instant at which a handler is entered has the same count as the one before the signal.
        Ok(!cursor.has_entered()?)
    }

    /// What is carried to a position to which something can be carried, and whether gaps were left out.
    fn search(
        &mut self,
        cursor: &mut Cursor,
        memory: &[&Memory],
        carrier: &mut Carrier,
        budget: &mut Budget,
    ) -> Result<(Vec<Carried>, bool)> {
        let (thread, count) = (cursor.thread(), cursor.count());
        let mut open: Vec<Byte> = Vec::new();
        for (n, m) in memory.iter().enumerate() {
            let silent = |i: &usize| m.silent.get(*i).copied().unwrap_or(false);
            open.extend((0..m.bytes.len()).filter(silent).map(|i| (n, i)));
        }
        let bytes: usize = memory.iter().map(|m| m.bytes.len()).sum();
        if open.is_empty() || bytes > MOST_BYTES || memory.len() > MOST_PIECES {
            return Ok((Vec::new(), false));
        }
        let files_only = self.timeline.leaves_out_files_only(thread)?;
        let mut s = Search {
            calls: Calls::new(self, &carrier.declarations, &mut carrier.files, files_only),
            effects: &mut carrier.effects,
            straight: carrier.straight,
            most: carrier.reach.0,
            budget,
            more: false,
            thread,
            pieces: memory.iter().map(|m| (m.address, m.bytes.len())).collect(),
            found: BTreeMap::new(),
        };
        let mut out = Vec::new();
        for back in [true, false] {
            open.retain(|b| !s.found.contains_key(b));
            let over = s.look(cursor, count, open.clone(), back);
            // Wherever the search ended, the cursor goes back.
            cursor.seek_count(thread, count)?;
            out.extend(s.spans(&open, &over?));
        }
        out.sort_by_key(|c| c.address);
        Ok((out, s.more))
    }
}

impl Search<'_> {
    /// Looks for some bytes over one gap after the other. Returns those that were passed.
    fn look(
        &mut self,
        cursor: &mut Cursor,
        count: u64,
        mut open: Vec<Byte>,
        back: bool,
    ) -> Result<Vec<PassedGap>> {
        let mut over = Vec::new();
        let mut here = count;
        while !open.is_empty()
            && let Some(gap) = self.next(here, back)?
            && gap.instructions_only
        {
            if over.len() >= self.most || self.budget.is_spent() {
                self.more = true;
                break;
            }
            if !back {
                // What is known where the gap begins was written in between. It says nothing of what was before.
                cursor.seek_count(self.thread, gap.from)?;
                let m = self.known(cursor, &open)?;
                open.retain(|b| is_silent(&m, *b));
            }
            let Some(effect) = self.effect(cursor, &gap)? else {
                break;
            };
            // The cursor stands where the gap begins.
            let position = cursor.position()?;
            // With what the recording says at the end of the gap.
            let until = gap.to.saturating_add(1).max(here);
            self.keep(cursor, &effect, (gap.from, until), &mut open)?;
            over.push(PassedGap {
                position,
                declared: effect.declared.clone(),
            });
            if !back {
                cursor.seek_count(self.thread, gap.to)?;
            }
            let m = self.known(cursor, &open)?;
            let at = cursor.position()?;
            for b in &open {
                let byte = m[b.0].as_ref().and_then(|m| m.bytes[b.1]);
                // Behind a gap, only what is read later tells what was before.
                if let Some(k) = byte.filter(|k| back || k.ground == Ground::Exposed) {
                    self.found.insert(*b, (k.value, at, k.ground, over.len()));
                }
            }
            open.retain(|b| is_silent(&m, *b));
            here = match back {
                true => gap.from,
                false => gap.to,
            };
        }
        Ok(over)
    }

    /// Keeps those bytes that hold behind a gap what they held before it. The cursor stands where the gap begins.
    fn keep(
        &self,
        cursor: &Cursor,
        effect: &Effect,
        (from, until): (u64, u64),
        open: &mut Vec<Byte>,
    ) -> Result<()> {
        let timeline = &self.calls.inspector.timeline;
        let list = timeline.mappings(cursor.image(), cursor.position()?)?;
        let mut rest = std::mem::take(open).into_iter().peekable();
        while let Some((n, _)) = rest.peek().copied() {
            let (address, len) = self.pieces[n];
            let anew = timeline.made_anew(self.thread, (address, len), (from, until))?;
            let kept = effect.kept((address, address.saturating_add(len as u64)), &list);
            while let Some((_, i)) = rest.next_if(|b| b.0 == n) {
                let at = address.wrapping_add(i as u64);
                let before = kept.partition_point(|k| k.end <= at);
                if !anew[i] && kept.get(before).is_some_and(|k| k.contains(&at)) {
                    open.push((n, i));
                }
            }
        }
        Ok(())
    }

    /// What is known of the pieces of memory that have one of these bytes.
    fn known(&mut self, cursor: &mut Cursor, open: &[Byte]) -> Result<Vec<Option<Memory>>> {
        let mut out = Vec::new();
        for (n, (address, len)) in self.pieces.iter().enumerate() {
            let first = open.partition_point(|b| b.0 < n);
            out.push(match open.get(first) {
                Some(b) if b.0 == n => {
                    self.budget.take(*len);
                    Some(cursor.known_memory(*address, *len)?)
                }
                _ => None,
            });
        }
        Ok(out)
    }

    fn next(&self, here: u64, back: bool) -> Result<Option<Unrecorded>> {
        let timeline = &self.calls.inspector.timeline;
        Ok(match back {
            true => timeline.gap_before(self.thread, here)?,
            false => timeline.gap_after(self.thread, here)?,
        })
    }

    /// What a gap did. Afterwards the cursor stands where it begins.
    fn effect(&mut self, cursor: &mut Cursor, gap: &Unrecorded) -> Result<Option<Arc<Effect>>> {
        let key = (self.thread, gap.from, gap.to);
        let effect = match self.effects.get(&key) {
            Some(known) => known.clone(),
            None => {
                let effect = self.found_out(cursor, gap)?.map(Arc::new);
                if self.effects.len() >= MOST_EFFECTS {
                    self.effects.clear();
                }
                self.effects.insert(key, effect.clone());
                effect
            }
        };
        cursor.seek_count(self.thread, gap.from)?;
        Ok(effect)
    }

    fn found_out(&mut self, cursor: &mut Cursor, gap: &Unrecorded) -> Result<Option<Effect>> {
        if let Some(effect) = self.calls.effect(cursor, self.thread, gap)? {
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
    fn spans(&self, bytes: &[Byte], over: &[PassedGap]) -> Vec<Carried> {
        let mut out: Vec<Carried> = Vec::new();
        let mut known: BTreeMap<usize, Arc<[PassedGap]>> = BTreeMap::new();
        for b in bytes {
            let Some((value, from, ground, n)) = self.found.get(b).copied() else {
                continue;
            };
            let address = self.pieces[b.0].0.wrapping_add(b.1 as u64);
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

/// Whether nothing more is said of a byte.
fn is_silent(m: &[Option<Memory>], (n, i): Byte) -> bool {
    m[n].as_ref().is_some_and(|m| m.silent[i])
}

//! Memory at one instant, where what is not known may be completed with what is carried.

use super::{Budget, Carried, Carrier, MOST_BYTES, MOST_PIECES};
use crate::{Error, Inspector, Result};
use hindsight_timeline::{Cursor, Memory, ThreadId};
use std::collections::BTreeSet;
use std::ops::Range;

/// What a walk along the stack reads next is a little higher, so that so many bytes are looked for at once.
const AHEAD: usize = 4096;
/// What was found at an instant is forgotten when it is about more bytes than these.
const MOST_KEPT: u64 = 1 << 20;
/// Pieces of memory that are nearer to each other than so many bytes are one: each costs more than its bytes.
const NEAR: u64 = 64;
/// But they become no longer than this, so that one that is long does not take others with it.
const LONGEST: u64 = 4096;

/// What is carried at one instant.
#[derive(Default)]
pub struct Here {
    at: Option<(ThreadId, u64)>,
    /// Ascending.
    carried: Vec<Carried>,
    /// Where it was looked for, ascending and disjoint.
    asked: Vec<Range<u64>>,
    /// Not all gaps were passed that may be.
    more: bool,
}

/// Reads memory at the cursor's position.
pub struct View<'a> {
    cursor: &'a mut Cursor,
    /// What is carried, ascending.
    carried: &'a [Carried],
    /// Where it was looked for, ascending and disjoint.
    asked: &'a [Range<u64>],
    /// Bytes that may be carried, and were not looked for.
    missing: Vec<Range<u64>>,
    /// Carried bytes that were read: addresses.
    used: BTreeSet<u64>,
    /// A byte was read that was looked for and not found.
    not_found: bool,
    /// Why the recording did not answer first. Since then, nothing is known.
    error: Option<Error>,
}

impl<'a> View<'a> {
    /// Lets `look` read memory at the cursor as the recording has it. What is not known is `None`.
    ///
    /// # Errors
    /// The recording does not answer. What `look` found is dropped then: it took for unknown what was not answered.
    pub fn at<T>(cursor: &mut Cursor, look: impl FnOnce(&mut View) -> T) -> Result<T> {
        let mut view = View::known(cursor);
        let seen = look(&mut view);
        view.error.map_or(Ok(seen), Err)
    }

    /// Memory as the recording has it.
    fn known(cursor: &'a mut Cursor) -> View<'a> {
        View {
            cursor,
            carried: &[],
            asked: &[],
            missing: Vec::new(),
            used: BTreeSet::new(),
            not_found: false,
            error: None,
        }
    }

    /// The bytes at an address, where they are known or carried.
    pub fn read(&mut self, at: u64, len: usize) -> Vec<Option<u8>> {
        self.read_near(at, len, len)
    }

    /// The same. If some may be carried, so many bytes from the address on will be wanted.
    fn read_near(&mut self, at: u64, len: usize, wanted: usize) -> Vec<Option<u8>> {
        if self.error.is_some() {
            return vec![None; len];
        }
        let m = match self.cursor.known_memory(at, len) {
            Ok(m) => m,
            Err(e) => {
                self.error = Some(e.into());
                return vec![None; len];
            }
        };
        let mut out: Vec<Option<u8>> = m.bytes.iter().map(|b| b.map(|k| k.value)).collect();
        for (i, byte) in out.iter_mut().enumerate() {
            let here = at.wrapping_add(i as u64);
            if byte.is_some() || !m.silent[i] {
                continue;
            }
            if let Some(value) = value(self.carried, here) {
                *byte = Some(value);
                self.used.insert(here);
            } else if contains(self.asked, here) {
                self.not_found = true;
            } else {
                self.missing.push(at..at.saturating_add(wanted as u64));
                break;
            }
        }
        out
    }

    /// The 8 bytes at an address of a stack, if they are known or carried.
    pub fn word(&mut self, at: u64) -> Option<u64> {
        let bytes: Option<Vec<u8>> = self.read_near(at, 8, AHEAD).into_iter().collect();
        Some(u64::from_le_bytes(bytes?.try_into().ok()?))
    }

    /// The carried bytes that were read since this was asked last.
    pub fn used(&mut self) -> Vec<Carried> {
        let mut out: Vec<Carried> = Vec::new();
        for at in std::mem::take(&mut self.used) {
            let Some((piece, byte)) = find(self.carried, at) else {
                continue;
            };
            let joins = |c: &Carried| {
                let end = c.address.wrapping_add(c.bytes.len() as u64);
                (end, c.from, c.ground, &c.over) == (at, piece.from, piece.ground, &piece.over)
            };
            match out.last_mut().filter(|c| joins(c)) {
                Some(last) => last.bytes.push(byte),
                None => out.push(Carried {
                    address: at,
                    bytes: vec![byte],
                    ..piece.clone()
                }),
            }
        }
        out
    }
}

fn find(carried: &[Carried], at: u64) -> Option<(&Carried, u8)> {
    let piece = carried[..carried.partition_point(|c| c.address <= at)].last()?;
    let byte = piece.bytes.get((at - piece.address) as usize)?;
    Some((piece, *byte))
}

fn value(carried: &[Carried], at: u64) -> Option<u8> {
    find(carried, at).map(|f| f.1)
}

/// Whether one of some ranges has an address. They are ascending and disjoint.
fn contains(ranges: &[Range<u64>], at: u64) -> bool {
    let next = ranges.partition_point(|r| r.end <= at);
    ranges.get(next).is_some_and(|r| r.start <= at)
}

impl Inspector {
    /// Lets `look` read memory, where what is not known and may be carried is completed. It is called again as long as it wants
    /// bytes that were not looked for. `None`: nothing can be carried to this position.
    ///
    /// # Errors
    /// The recording does not answer.
    pub(crate) fn completed<T>(
        &mut self,
        cursor: &mut Cursor,
        carrier: &mut Carrier,
        mut look: impl FnMut(&mut View) -> T,
    ) -> Result<Option<T>> {
        // At the entry of a handler the count is that before the signal, for which something may have been found.
        if !self.may_carry(cursor)? {
            return Ok(None);
        }
        let at = Some((cursor.thread(), cursor.count()));
        let kept: u64 = carrier.here.asked.iter().map(|r| r.end - r.start).sum();
        if carrier.here.at != at || kept > MOST_KEPT {
            carrier.here = Here::default();
            carrier.here.at = at;
        }
        let mut left = MOST_BYTES as u64;
        let mut budget = Budget::default();
        let mut round = 0;
        loop {
            let Here {
                carried,
                asked,
                more,
                ..
            } = &carrier.here;
            let mut view = View {
                carried,
                asked,
                ..View::known(cursor)
            };
            let seen = look(&mut view);
            if let Some(e) = view.error {
                return Err(e);
            }
            let left_out = (view.not_found && *more) || !view.missing.is_empty();
            let wanted = pieces(view.missing, asked, &mut left);
            if wanted.is_empty() || round == carrier.reach.1 || budget.is_spent() {
                carrier.left_out |= left_out;
                return Ok(Some(seen));
            }
            let mut memory = Vec::new();
            for w in &wanted {
                budget.take((w.end - w.start) as usize);
                memory.push(cursor.known_memory(w.start, (w.end - w.start) as usize)?);
            }
            let memory: Vec<&Memory> = memory.iter().collect();
            let (found, more) = self.search(cursor, &memory, carrier, &mut budget)?;
            carrier.here.carried.extend(found);
            carrier.here.carried.sort_by_key(|c| c.address);
            carrier.here.asked.extend(wanted);
            carrier.here.asked.sort_by_key(|r| r.start);
            carrier.here.more |= more;
            round += 1;
        }
    }

    /// Bytes of memory at the cursor, where they are known or carried, and what is carried of them.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn completed_memory(
        &mut self,
        cursor: &mut Cursor,
        (address, len): (u64, usize),
        carrier: &mut Carrier,
    ) -> Result<(Vec<Option<u8>>, Vec<Carried>)> {
        let found = self.completed(cursor, carrier, |view| {
            let bytes = view.read_near(address, len, len.max(AHEAD));
            (bytes, view.used())
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        let m = cursor.known_memory(address, len)?;
        let bytes = m.bytes.iter().map(|b| b.map(|k| k.value));
        Ok((bytes.collect(), Vec::new()))
    }
}

/// Pieces of memory that have these bytes, without those that were asked for. There are at most as many as may be asked for at
/// once, and `left` bytes, from which theirs are taken. What is small comes first. All ranges are ascending and disjoint, also
/// those that were asked for.
fn pieces(mut missing: Vec<Range<u64>>, asked: &[Range<u64>], left: &mut u64) -> Vec<Range<u64>> {
    missing.sort_by_key(|m| m.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    let mut from = 0;
    for m in missing {
        from = m.start.max(from);
        let first = asked.partition_point(|a| a.end <= from);
        for a in asked[first..].iter().take_while(|a| a.start < m.end) {
            add(&mut out, asked, from..a.start);
            from = from.max(a.end);
        }
        add(&mut out, asked, from..m.end);
        from = from.max(m.end);
    }
    out.sort_by_key(|m| m.end - m.start);
    out.truncate(MOST_PIECES);
    out.retain(|m| {
        let fits = m.end - m.start <= *left;
        if fits {
            *left -= m.end - m.start;
        }
        fits
    });
    out.sort_by_key(|m| m.start);
    out
}

/// Adds a piece behind others, or to the last one if that is near.
fn add(out: &mut Vec<Range<u64>>, asked: &[Range<u64>], m: Range<u64>) {
    if m.is_empty() {
        return;
    }
    let joins = |l: &Range<u64>| {
        let between = asked.partition_point(|a| a.end <= l.end);
        m.start - l.end < NEAR
            && m.end - l.start <= LONGEST
            && asked.get(between).is_none_or(|a| m.end <= a.start)
    };
    match out.last_mut().filter(|l| joins(l)) {
        Some(last) => last.end = m.end,
        None => out.push(m),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_timeline::regs::RSP;
    use hindsight_timeline::{Cancel, Options, Timeline};

    #[test]
    fn what_is_not_answered_is_not_unknown() {
        let (_scene, trace) = hindsight_lab::example();
        let timeline = Timeline::open(&trace, Options::default()).unwrap();
        let mut cursor = timeline.cursor().unwrap();
        cursor.seek(timeline.range().unwrap().1).unwrap();
        let stack = cursor.registers().unwrap().gpr[RSP];
        let cancel = Cancel::new();
        let mut seen = Vec::new();
        // It is cancelled while it looks.
        let cut = cursor.cancellable(&cancel, |cursor| {
            Ok(View::at(cursor, |view| {
                seen.push(view.word(stack));
                cancel.cancel();
                seen.push(view.word(stack));
                seen.clone()
            }))
        });
        assert!(seen[0].is_some() && seen[1].is_none(), "{seen:?}");
        match cut.unwrap() {
            Err(Error::Timeline(hindsight_timeline::Error::Cancelled)) => {}
            other => panic!("{other:?}"),
        }
        let again = View::at(&mut cursor, |view| view.word(stack)).unwrap();
        assert_eq!(again, seen[0]);
    }

    #[test]
    fn pieces_are_few_and_disjoint() {
        let mut left = 1000;
        let missing = vec![100..108, 104..120, 130..138, 500..508, 300..400];
        let asked = [140..150, 310..320];
        let found = pieces(missing, &asked, &mut left);
        assert_eq!(found, [100..138, 300..310, 320..400, 500..508]);
        assert_eq!(left, 1000 - 38 - 10 - 80 - 8);
        // What lies in between was asked for.
        let found = pieces(vec![136..140, 150..160], &asked, &mut left);
        assert_eq!(found, [136..140, 150..160]);
        // What is long does not take with it what lies beside it, and comes last.
        let found = pieces(vec![0..4096, 4100..4104, 5000..5008], &[], &mut left);
        assert_eq!(found, [4100..4104, 5000..5008]);
        // What is too much is left out.
        let found = pieces(vec![0..8000, 9000..9010], &[], &mut left);
        assert_eq!((found.len(), &found[0]), (1, &(9000..9010)));
        let many = (0..1000).map(|i| i * 1000..i * 1000 + 1).collect();
        let mut left = 1 << 16;
        assert_eq!(pieces(many, &[], &mut left).len(), MOST_PIECES);
    }
}

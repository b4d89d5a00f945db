//! Memory at one instant, where what is not known may be completed with what is carried.

use super::{Carried, Carrier, MOST_BYTES, MOST_PIECES};
use crate::{Inspector, Result};
use hindsight_timeline::{Cursor, Memory, ThreadId};
use std::collections::BTreeSet;
use std::ops::Range;

/// So often it is looked what is carried. Each time more may be wanted: what a carried pointer points to.
const ROUNDS: usize = 8;
/// What a walk along the stack reads next is a little higher, so that so many bytes are looked for at once.
const AHEAD: usize = 4096;
/// What was found at an instant is forgotten when it is about more bytes than these.
const MOST_KEPT: u64 = 1 << 20;
/// Pieces of memory that are nearer to each other than so many bytes are one: each costs more than its bytes.
const NEAR: u64 = 64;

/// What is carried at one instant.
#[derive(Default)]
pub struct Here {
    at: Option<(ThreadId, u64)>,
    /// Ascending.
    carried: Vec<Carried>,
    /// Where it was looked for.
    asked: Vec<Range<u64>>,
}

/// Reads memory at the cursor's position.
pub struct View<'a> {
    cursor: &'a mut Cursor,
    /// What is carried, ascending.
    carried: &'a [Carried],
    /// Where it was looked for.
    asked: &'a [Range<u64>],
    /// Bytes that may be carried, and were not looked for.
    missing: Vec<Range<u64>>,
    /// Carried bytes that were read: addresses.
    used: BTreeSet<u64>,
}

impl<'a> View<'a> {
    /// Memory as the recording has it.
    pub fn known(cursor: &'a mut Cursor) -> View<'a> {
        View {
            cursor,
            carried: &[],
            asked: &[],
            missing: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// The bytes at an address, where they are known or carried.
    pub fn read(&mut self, at: u64, len: usize) -> Vec<Option<u8>> {
        self.read_near(at, len, len)
    }

    /// The same. If some may be carried, so many bytes from the address on will be wanted.
    fn read_near(&mut self, at: u64, len: usize, wanted: usize) -> Vec<Option<u8>> {
        let Ok(m) = self.cursor.known_memory(at, len) else {
            return vec![None; len];
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
            } else if !self.asked.iter().any(|r| r.contains(&here)) {
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

impl Inspector {
    /// Lets `look` read memory, where what is not known and may be carried is completed. It is called again as long as it wants
    /// bytes that were not looked for.
    ///
    /// # Errors
    /// The recording does not answer.
    pub(crate) fn completed<T>(
        &mut self,
        cursor: &mut Cursor,
        carrier: &mut Carrier,
        mut look: impl FnMut(&mut View) -> T,
    ) -> Result<T> {
        let at = Some((cursor.thread(), cursor.count()));
        let kept: u64 = carrier.here.asked.iter().map(|r| r.end - r.start).sum();
        if carrier.here.at != at || kept > MOST_KEPT {
            carrier.here = Here::default();
            carrier.here.at = at;
        }
        let mut left = MOST_BYTES as u64;
        let mut round = 0;
        loop {
            let Here { carried, asked, .. } = &carrier.here;
            let mut view = View {
                carried,
                asked,
                ..View::known(cursor)
            };
            let seen = look(&mut view);
            let wanted = pieces(view.missing, asked, &mut left);
            if wanted.is_empty() || round == ROUNDS {
                return Ok(seen);
            }
            let mut memory = Vec::new();
            for w in &wanted {
                memory.push(cursor.known_memory(w.start, (w.end - w.start) as usize)?);
            }
            let memory: Vec<&Memory> = memory.iter().collect();
            let found = self.carried(cursor, &memory, carrier)?;
            carrier.here.carried.extend(found);
            carrier.here.carried.sort_by_key(|c| c.address);
            carrier.here.asked.extend(wanted);
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
        self.completed(cursor, carrier, |view| {
            let bytes = view.read_near(address, len, len.max(AHEAD));
            (bytes, view.used())
        })
    }
}

/// Pieces of memory that have these bytes, without those that were asked for. There are at most as many as may be asked for at
/// once, and `left` bytes, from which theirs are taken.
fn pieces(mut missing: Vec<Range<u64>>, asked: &[Range<u64>], left: &mut u64) -> Vec<Range<u64>> {
    for a in asked {
        missing = (missing.into_iter())
            .flat_map(|m| [m.start..m.end.min(a.start), m.start.max(a.end)..m.end])
            .filter(|m| m.start < m.end)
            .collect();
    }
    missing.sort_by_key(|m| m.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for m in missing {
        let taken = |a: &Range<u64>, end| asked.iter().any(|o| a.end <= o.start && o.start < end);
        match out.last_mut() {
            Some(l) if m.start <= l.end => l.end = l.end.max(m.end),
            Some(l) if m.start - l.end < NEAR && !taken(l, m.end) => l.end = m.end,
            _ => out.push(m),
        }
    }
    out.truncate(MOST_PIECES);
    out.retain(|m| {
        let fits = m.end - m.start <= *left;
        if fits {
            *left -= m.end - m.start;
        }
        fits
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_few_and_disjoint() {
        let mut left = 1000;
        let missing = vec![100..108, 104..120, 130..138, 500..508, 300..400];
        let asked = [310..320, 140..150];
        let found = pieces(missing, &asked, &mut left);
        assert_eq!(found, [100..138, 300..310, 320..400, 500..508]);
        assert_eq!(left, 1000 - 38 - 10 - 80 - 8);
        // What lies in between was asked for.
        let found = pieces(vec![136..140, 150..160], &asked, &mut left);
        assert_eq!(found, [136..140, 150..160]);
        // What is too much is left out.
        let found = pieces(vec![0..8000, 9000..9010], &[], &mut left);
        assert_eq!((found.len(), &found[0]), (1, &(9000..9010)));
        let many = (0..1000).map(|i| i * 1000..i * 1000 + 1).collect();
        let mut left = 1 << 16;
        assert_eq!(pieces(many, &[], &mut left).len(), MOST_PIECES);
    }
}

//! Translated blocks in a saved form. They can be placed again for the same guest code, at the same
//! address or another.
//!
//! Only some fields of the host code depend on the guest address. They grow with it.

use crate::asm::{BlockOffset, Field, Fixup, Moving};
use crate::translator::Translator;
use crate::{Block, Lookahead};
use alloc::vec::Vec;
use hindsight_isa::ctx::{d, table};
use hindsight_isa::ibl;

/// Above this, the encoding of a block does not depend on how large its addresses are.
pub(crate) const LOW: u64 = 1 << 33;
/// End of the addresses that programs have.
pub(crate) const HIGH: u64 = 1 << 47;

/// A block in saved form.
pub struct Saved<'a> {
    pub(crate) pc: u64,
    pub(crate) bound: bool,
    pub(crate) takes_flags: bool,
    pub(crate) instrs: u32,
    /// The guest code that was translated.
    pub source: &'a [u8],
    /// [`Block::peeked`] of the translation.
    pub peeked: &'a [u8],
    looks: &'a [u8],
    looked: &'a [u8],
    pub(crate) fixups: &'a [u8],
    pub(crate) moving: &'a [u8],
    pub(crate) hot: &'a [u8],
    pub(crate) cold: &'a [u8],
}

const HEADER: usize = 8 + 4 + 2 + 1 + 1 + 5 * 4;
const LOOK: usize = 9;
pub(crate) const FIXUP: usize = 8;
pub(crate) const MOVING: usize = 4;

/// The bit of a packed offset that says: in the cold half.
pub(crate) const COLD: u32 = 1 << 30;
/// The bit of a packed field that holds the displacement of a lookup table's entry.
pub(crate) const ENTRY: u32 = 1 << 29;
/// The additional bit of a packed field: relative, or eight bytes wide.
pub(crate) const MORE: u32 = 1 << 31;

pub(crate) fn pack(p: BlockOffset, more: bool) -> [u8; 4] {
    let bits = p.at | if p.cold { COLD } else { 0 } | if more { MORE } else { 0 };
    bits.to_le_bytes()
}

pub(crate) fn unpack(b: &[u8; 4]) -> (BlockOffset, bool) {
    let v = u32::from_le_bytes(*b);
    let offset = BlockOffset {
        cold: v & COLD != 0,
        at: v & (ENTRY - 1),
    };
    (offset, v & MORE != 0)
}

impl Block {
    /// Appends the saved form of the block at `pc`. It was translated from `source`, and has not
    /// been placed.
    pub fn save(&self, pc: u64, source: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&pc.to_le_bytes());
        out.extend_from_slice(&(self.instrs as u16).to_le_bytes());
        out.extend_from_slice(&(source.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.looks.len() as u16).to_le_bytes());
        out.push(self.peeked.len() as u8);
        out.push(self.bound as u8 | (self.takes_flags as u8) << 1);
        let lens = [
            self.looked.len(),
            self.fixups.len(),
            self.moving.len(),
            self.hot.len(),
            self.cold.len(),
        ];
        for n in lens {
            out.extend_from_slice(&(n as u32).to_le_bytes());
        }
        out.extend_from_slice(source);
        out.extend_from_slice(&self.peeked);
        for l in &self.looks {
            out.extend_from_slice(&l.distance.to_le_bytes());
            out.push(l.len);
        }
        out.extend_from_slice(&self.looked);
        for f in &self.fixups {
            out.extend_from_slice(&pack(f.at, f.relative));
            out.extend_from_slice(&pack(f.target, false));
        }
        for m in &self.moving {
            let mut packed = pack(m.at, m.what == Field::Wide);
            if m.what == Field::Entry {
                packed[3] |= (ENTRY >> 24) as u8;
            }
            out.extend_from_slice(&packed);
        }
        out.extend_from_slice(&self.hot);
        out.extend_from_slice(&self.cold);
    }
}

impl<'a> Saved<'a> {
    /// Reads what [`Block::save`] wrote. `None` if it is something else.
    pub fn read(bytes: &'a [u8]) -> Option<Saved<'a>> {
        let (head, mut rest) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| {
            let b = head.get(at..at + 4)?;
            Some(u32::from_le_bytes(b.try_into().ok()?) as usize)
        };
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]) as usize;
        let mut take = |n: usize| {
            let (part, more) = rest.split_at_checked(n)?;
            rest = more;
            Some(part)
        };
        let saved = Saved {
            pc: u64::from_le_bytes(head[..8].try_into().ok()?),
            instrs: half(8) as u32,
            bound: head[15] & 1 != 0,
            takes_flags: head[15] & 2 != 0,
            source: take(half(10))?,
            peeked: take(head[14] as usize)?,
            looks: take(half(12) * LOOK)?,
            looked: take(word(16)?)?,
            fixups: take(word(20)?.checked_mul(FIXUP)?)?,
            moving: take(word(24)?.checked_mul(MOVING)?)?,
            hot: take(word(28)?)?,
            cold: take(word(32)?)?,
        };
        rest.is_empty().then_some(saved)
    }

    /// Bytes of its hot half.
    pub fn hot_len(&self) -> usize {
        self.hot.len()
    }

    /// Whether the block serves at `pc`, provided that the same guest code is there.
    pub fn serves(&self, pc: u64) -> bool {
        let range = LOW..HIGH;
        pc == self.pc || !self.bound && range.contains(&pc) && range.contains(&self.pc)
    }

    /// The code outside the block that its translation depends on: distance from the block, and
    /// bytes.
    pub fn looks(&self) -> impl Iterator<Item = (i64, &'a [u8])> {
        let mut rest = self.looked;
        self.looks.as_chunks::<LOOK>().0.iter().map_while(move |l| {
            let (distance, len) = l.split_first_chunk::<8>()?;
            let (part, more) = rest.split_at_checked(len[0] as usize)?;
            rest = more;
            Some((i64::from_le_bytes(*distance), part))
        })
    }
}

impl Translator {
    /// Makes this the translator's present block, at `pc`, where it must [serve](Saved::serves).
    /// `None` if the saved form is not whole.
    pub fn restore(&mut self, pc: u64, s: &Saved) -> Option<()> {
        let b = &mut self.block;
        b.map.clear();
        b.instrs = s.instrs;
        b.src_len = s.source.len() as u32;
        b.bound = s.bound;
        b.takes_flags = s.takes_flags;
        let set = |to: &mut Vec<u8>, from: &[u8]| {
            to.clear();
            to.extend_from_slice(from);
        };
        set(&mut b.peeked, s.peeked);
        set(&mut b.hot, s.hot);
        set(&mut b.cold, s.cold);
        set(&mut b.looked, s.looked);
        b.looks.clear();
        b.looks.extend(s.looks().map(|(distance, l)| Lookahead {
            distance,
            len: l.len() as u8,
        }));
        let fits = |p: BlockOffset, n: usize| {
            let len = if p.cold { s.cold.len() } else { s.hot.len() };
            p.at as usize + n <= len
        };
        b.fixups.clear();
        for f in s.fixups.as_chunks::<FIXUP>().0 {
            let (at, target) = f.split_first_chunk::<4>()?;
            let (at, relative) = unpack(at);
            let (target, _) = unpack(target.first_chunk()?);
            if !fits(at, 4) || !fits(target, 0) {
                return None;
            }
            b.fixups.push(Fixup {
                at,
                target,
                relative,
            });
        }
        let delta = pc.wrapping_sub(s.pc);
        b.moving.clear();
        for m in s.moving.as_chunks::<MOVING>().0 {
            let (at, wide) = unpack(m);
            if !fits(at, if wide { 8 } else { 4 }) {
                return None;
            }
            let what = match u32::from_le_bytes(*m) & ENTRY != 0 {
                true => Field::Entry,
                false if wide => Field::Wide,
                false => Field::Low,
            };
            b.moving.push(Moving { at, what });
        }
        shift(&mut b.hot, &mut b.cold, s.moving, delta)
    }
}

/// Adapts the fields at these packed offsets, for guest code that is `delta` bytes further up.
/// `None` if `hot` or `cold` ends before such a field.
pub(crate) fn shift(hot: &mut [u8], cold: &mut [u8], moving: &[u8], delta: u64) -> Option<()> {
    for m in moving.as_chunks::<MOVING>().0 {
        let (at, wide) = unpack(m);
        let part = if at.cold { &mut *cold } else { &mut *hot };
        let field = part.get_mut(at.at as usize..)?;
        if u32::from_le_bytes(*m) & ENTRY != 0 {
            let f = field.first_chunk_mut::<4>()?;
            *f = moved_entry(i32::from_le_bytes(*f), delta).to_le_bytes();
        } else if wide {
            let f = field.first_chunk_mut::<8>()?;
            *f = u64::from_le_bytes(*f).wrapping_add(delta).to_le_bytes();
        } else {
            let f = field.first_chunk_mut::<4>()?;
            *f = u32::from_le_bytes(*f)
                .wrapping_add(delta as u32)
                .to_le_bytes();
        }
    }
    Some(())
}

/// `disp` is the displacement of some address's entry in a lookup table. Returns that of the
/// address `delta` bytes further up.
fn moved_entry(disp: i32, delta: u64) -> i32 {
    let tables = [table::CHECKED, table::PLAIN].map(d::ibl);
    let Some(first) = tables.into_iter().rev().find(|t| disp >= *t) else {
        return disp;
    };
    let pc = (disp - first) as u64 / ibl::ENTRY as u64;
    first + ibl::first_entry(pc.wrapping_add(delta)) as i32
}

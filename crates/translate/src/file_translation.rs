//! A set: the saved forms of many blocks of one file, as one. A set is placed at once, with the
//! jumps between its blocks. So code that has been executed before takes one copy, and no exit for
//! each block and each jump.
//!
//! Addresses in a set count from its *origin*: the address of the file's first byte, whether that
//! is mapped or not.

use crate::asm::BlockOffset;
use crate::portable::{COLD, ENTRY, FIXUP, HIGH, LOW, MORE, MOVING, Saved, pack, shift, unpack};
use alloc::vec::Vec;

/// Bytes of a block's record.
const BLOCK: usize = 20;
/// Bytes of a page's record.
const PAGE: usize = 16;
/// Bytes of a block's number.
const NUMBER: usize = 4;
/// Number of parts. The header has words of eight bytes: the origin, whether the set serves only
/// there, and the length of each part.
const PARTS: usize = 8;
const HEADER: usize = 8 * (2 + PARTS);
/// Most bytes of a half of the code. Packed offsets cannot say more.
const MOST: usize = 1 << 28;

/// A set that is being made.
#[derive(Default)]
pub struct FileTranslationBuilder {
    origin: u64,
    bound: bool,
    blocks: Vec<u8>,
    bytes: Vec<u8>,
    pages: Vec<u8>,
    users: Vec<u8>,
    fixups: Vec<u8>,
    moving: Vec<u8>,
    hot: Vec<u8>,
    cold: Vec<u8>,
}

/// A block of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileBlock {
    /// Guest address of the block, in bytes from the origin.
    pub pc: u32,
    /// Where its hot half is in that of the set.
    pub hot: u32,
    /// Bytes of its hot half.
    pub hot_len: u32,
    /// Number of its guest instructions.
    pub instrs: u16,
    /// Bytes of its guest code. They are in [`FileTranslation::bytes`], followed by `peeked` bytes.
    /// All blocks' bytes follow each other there.
    pub src_len: u16,
    /// Bytes of [`crate::Saved::peeked`].
    pub peeked: u8,
    /// Its code may need flags on entry.
    pub takes_flags: bool,
}

impl FileTranslationBuilder {
    /// An empty set of code whose origin is at `origin`.
    pub fn new(origin: u64) -> FileTranslationBuilder {
        FileTranslationBuilder {
            origin,
            ..FileTranslationBuilder::default()
        }
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a saved block, which serves at `pc`. Returns its number in the set and where its hot
    /// half is.
    ///
    /// `None` if
    ///
    /// - the block is not whole;
    /// - a half of the set would become too long;
    /// - the block serves only where it was made, although its address is of those between which
    ///   blocks can move.
    pub fn add(&mut self, pc: u64, s: &Saved) -> Option<(u32, u32)> {
        let moves = (LOW..HIGH).contains(&pc) && (LOW..HIGH).contains(&s.pc);
        if s.bound && moves {
            return None;
        }
        let from = u32::try_from(pc.checked_sub(self.origin)?).ok()?;
        let at = |part: &Vec<u8>| part.len().next_multiple_of(8);
        let (hot, cold) = (at(&self.hot), at(&self.cold));
        if hot + s.hot.len() > MOST || cold + s.cold.len() > MOST {
            return None;
        }
        let (mut own_hot, mut own_cold) = (s.hot.to_vec(), s.cold.to_vec());
        let delta = pc.wrapping_sub(s.pc);
        shift(&mut own_hot, &mut own_cold, s.moving, delta)?;
        let within = |p: BlockOffset, len: usize| {
            let part = if p.cold { s.cold } else { s.hot };
            p.at as usize + len <= part.len()
        };
        let (mut fixups, mut moving) = (Vec::new(), Vec::new());
        for f in s.fixups.as_chunks::<FIXUP>().0 {
            let (a, t) = f.split_first_chunk::<4>()?;
            let t = t.first_chunk()?;
            if !within(unpack(a).0, 4) || !within(unpack(t).0, 0) {
                return None;
            }
            for p in [a, t] {
                fixups.extend_from_slice(&further(p, hot, cold));
            }
        }
        for m in s.moving.as_chunks::<MOVING>().0 {
            moving.extend_from_slice(&further(m, hot, cold));
        }
        self.bound |= !moves;
        self.fixups.extend(fixups);
        self.moving.extend(moving);
        self.hot.resize(hot, 0xcc);
        self.hot.extend(own_hot);
        self.cold.resize(cold, 0xcc);
        self.cold.extend(own_cold);
        self.bytes.extend_from_slice(s.source);
        self.bytes.extend_from_slice(s.peeked);
        let number = (self.blocks.len() / BLOCK) as u32;
        for v in [from, hot as u32, s.hot.len() as u32] {
            self.blocks.extend_from_slice(&v.to_le_bytes());
        }
        for v in [s.source.len() as u16, s.instrs as u16] {
            self.blocks.extend_from_slice(&v.to_le_bytes());
        }
        let rest = [s.peeked.len() as u8, s.takes_flags as u8, 0, 0];
        self.blocks.extend_from_slice(&rest);
        Some((number, hot as u32))
    }

    /// Links a jump: the jump whose displacement is at `at` leads to `target`. Both are offsets in
    /// the hot half.
    pub fn link(&mut self, at: u32, target: u32) {
        let offset = |at| BlockOffset { cold: false, at };
        self.fixups.extend_from_slice(&pack(offset(at), true));
        self.fixups.extend_from_slice(&pack(offset(target), false));
    }

    /// Makes the set depend on a page: it serves only where the page's content has this `hash`.
    /// `number` counts pages from the origin. `users` are the numbers of the blocks that depend on
    /// the page.
    pub fn page(&mut self, number: u32, hash: u64, users: &[u32]) {
        self.pages.extend_from_slice(&number.to_le_bytes());
        self.pages
            .extend_from_slice(&(users.len() as u32).to_le_bytes());
        self.pages.extend_from_slice(&hash.to_le_bytes());
        for n in users {
            self.users.extend_from_slice(&n.to_le_bytes());
        }
    }

    /// Bytes of the saved set.
    pub fn len(&self) -> usize {
        HEADER + self.parts().iter().map(|p| p.len()).sum::<usize>()
    }

    fn parts(&self) -> [&[u8]; PARTS] {
        [
            &self.blocks,
            &self.bytes,
            &self.pages,
            &self.users,
            &self.fixups,
            &self.moving,
            &self.hot,
            &self.cold,
        ]
    }

    /// Gives the saved set to `save`, as slices that follow each other.
    pub fn save(&self, save: impl FnOnce(&[&[u8]])) {
        let parts = self.parts();
        let mut head = Vec::with_capacity(HEADER);
        let mut word = |v: u64| head.extend_from_slice(&v.to_le_bytes());
        word(self.origin);
        word(self.bound as u64);
        parts.iter().for_each(|p| word(p.len() as u64));
        let mut all = Vec::with_capacity(1 + PARTS);
        all.push(&head[..]);
        all.extend(parts);
        save(&all);
    }
}

/// Turns a packed offset in a block into one in a set that has the block's halves at `hot` and
/// `cold`.
fn further(packed: &[u8; 4], hot: usize, cold: usize) -> [u8; 4] {
    let v = u32::from_le_bytes(*packed);
    let by = if v & COLD != 0 { cold } else { hot };
    (v + by as u32).to_le_bytes()
}

/// A set that was [saved](FileTranslationBuilder::save).
pub struct FileTranslation<'a> {
    origin: u64,
    bound: bool,
    blocks: &'a [u8],
    /// Guest code and `peeked` bytes of all blocks (see [`FileBlock`]).
    pub bytes: &'a [u8],
    pages: &'a [u8],
    users: &'a [u8],
    fixups: &'a [u8],
    moving: &'a [u8],
    hot: &'a [u8],
    cold: &'a [u8],
}

impl<'a> FileTranslation<'a> {
    /// Reads what [`FileTranslationBuilder::save`] gave. `None` if it is something else.
    pub fn read(content: &'a [u8]) -> Option<FileTranslation<'a>> {
        let (head, mut rest) = content.split_at_checked(HEADER)?;
        let mut words = head
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w));
        let (origin, bound) = (words.next()?, words.next()? != 0);
        let mut take = || {
            let (part, more) = rest.split_at_checked(usize::try_from(words.next()?).ok()?)?;
            rest = more;
            Some(part)
        };
        let set = FileTranslation {
            origin,
            bound,
            blocks: take()?,
            bytes: take()?,
            pages: take()?,
            users: take()?,
            fixups: take()?,
            moving: take()?,
            hot: take()?,
            cold: take()?,
        };
        let fits = rest.is_empty() && set.hot.len() <= MOST && set.cold.len() <= MOST;
        (fits && set.is_consistent()).then_some(set)
    }

    /// Whether all that blocks and pages name lies within the parts.
    fn is_consistent(&self) -> bool {
        let mut bytes = 0;
        let mut end = 0;
        let ordered = self.members().all(|m| {
            bytes += m.src_len as usize + m.peeked as usize;
            let follows = m.hot >= end && m.src_len > 0 && m.hot.is_multiple_of(8);
            end = m.hot.saturating_add(m.hot_len);
            follows && end as usize <= self.hot.len()
        });
        let count = self.count() as u32;
        let known = |n: &[u8; NUMBER]| u32::from_le_bytes(*n) < count;
        let users: usize = self.raw_pages().map(|(_, n, _)| n).sum();
        ordered
            && bytes <= self.bytes.len()
            && users <= self.users.len() / NUMBER
            && self.users.as_chunks().0.iter().all(known)
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.blocks.len() / BLOCK
    }

    /// Bytes of the hot and of the cold half.
    pub fn sizes(&self) -> (usize, usize) {
        (self.hot.len(), self.cold.len())
    }

    /// Whether the set serves for code whose origin is at `origin`.
    pub fn serves(&self, origin: u64) -> bool {
        let range = LOW..HIGH;
        origin == self.origin
            || !self.bound && range.contains(&origin) && range.contains(&self.origin)
    }

    /// The blocks, in the order of their hot halves.
    pub fn members(&self) -> impl Iterator<Item = FileBlock> + 'a {
        self.blocks.as_chunks::<BLOCK>().0.iter().map(|b| {
            let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
            let half = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
            FileBlock {
                pc: word(0),
                hot: word(4),
                hot_len: word(8),
                src_len: half(12),
                instrs: half(14),
                peeked: b[16],
                takes_flags: b[17] != 0,
            }
        })
    }

    fn raw_pages(&self) -> impl Iterator<Item = (u32, usize, u64)> + 'a {
        self.pages.as_chunks::<PAGE>().0.iter().map(|p| {
            let word = |i: usize| u32::from_le_bytes([p[i], p[i + 1], p[i + 2], p[i + 3]]);
            let hash = word(8) as u64 | (word(12) as u64) << 32;
            (word(0), word(4) as usize, hash)
        })
    }

    /// The pages that the set depends on: number from the origin, hash, and the numbers of the
    /// blocks that depend on the page.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u64, impl Iterator<Item = u32> + 'a)> + 'a {
        let mut rest = self.users.as_chunks::<NUMBER>().0;
        self.raw_pages().map_while(move |(number, n, hash)| {
            let (own, more) = rest.split_at_checked(n)?;
            rest = more;
            Some((number, hash, own.iter().map(|b| u32::from_le_bytes(*b))))
        })
    }

    /// Copies the code to `hot` and `cold`, and adapts it to the origin `origin`, where it must
    /// [serve](FileTranslation::serves).
    ///
    /// - The slices have [its sizes](FileTranslation::sizes).
    /// - Beside each slice is the host address at which it will be executed.
    /// - `base` is as for [`crate::Translator::relocate`].
    ///
    /// `None` if the set is not whole.
    pub fn relocate(
        &self,
        origin: u64,
        (hot, hot_addr): (&mut [u8], u64),
        (cold, cold_addr): (&mut [u8], u64),
        base: u64,
    ) -> Option<()> {
        hot.copy_from_slice(self.hot);
        cold.copy_from_slice(self.cold);
        shift(hot, cold, self.moving, origin.wrapping_sub(self.origin))?;
        let addr = |p: BlockOffset| match p.cold {
            true => cold_addr + p.at as u64,
            false => hot_addr + p.at as u64,
        };
        for f in self.fixups.as_chunks::<FIXUP>().0 {
            let (at, target) = f.split_first_chunk::<4>()?;
            let ((at, relative), target) = (unpack(at), unpack(target.first_chunk()?).0);
            let from = if relative { addr(at) + 4 } else { base };
            let v = addr(target).wrapping_sub(from) as u32;
            let part = if at.cold { &mut *cold } else { &mut *hot };
            let field = part.get_mut(at.at as usize..)?.first_chunk_mut()?;
            *field = v.to_le_bytes();
        }
        Some(())
    }
}

const _: () = assert!(MOST as u32 <= ENTRY && ENTRY < COLD && COLD < MORE);

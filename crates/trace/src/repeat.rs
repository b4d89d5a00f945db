//! Words that the trace has already. A chunk refers to them instead of having them again.
//!
//! Each thread records for itself what it reads the first time. So threads that go through the same data, and a thread that
//! goes through it again behind a key frame, would each write it down. The writer remembers what it has written, by a hash
//! of each *block*: the words of the patches of one page, in the order of their lines. Where a block comes again, the chunk
//! names the chunk that has it.
//!
//! A chunk that refers to others is a *frame*: the list of the others, the list of copies, and the rest of its bytes. Copies are
//! taken from the rest of the others' bytes. So to read a chunk needs at most [`SOURCES`] others, and these need none.

use crate::columns::Content;
use hindsight_events::varint::{get, put};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The fewest bytes of a block. A copy takes some ten bytes.
pub const LEAST: usize = 1024;

/// The most chunks to which a chunk refers. Each is unpacked in order to read it.
pub const SOURCES: usize = 8;

/// The most blocks that are remembered, twice. 4 KiB each, they are most of a gibibyte of memory. To remember them takes some 9
/// MiB: as many fill a table of 2^17.
const MOST: usize = (1 << 17) / 8 * 7;

/// Where a block is: in which chunk, and where in the bytes that this one has itself.
#[derive(Clone, Copy, Debug)]
struct Place {
    chunk: (u32, u32),
    at: u32,
}

/// The blocks that were written.
#[derive(Debug)]
pub struct Repeats {
    seed: u64,
    /// New ones come here. When it is full, it becomes the old one.
    young: HashMap<u128, Place>,
    old: HashMap<u128, Place>,
}

/// What there is to a chunk.
#[derive(Debug)]
pub struct Found {
    /// What is stored in place of its content, if that refers to others.
    pub frame: Option<Vec<u8>>,
    /// The blocks that it has itself, with their places in its own bytes.
    own: Vec<(u128, u32)>,
}

#[derive(Debug)]
struct Copy {
    source: usize,
    /// Where it is in the content.
    at: usize,
    /// Where it is in the source's own bytes.
    from: usize,
    len: usize,
}

impl Repeats {
    pub fn new() -> Repeats {
        Repeats {
            // A program that knew the seed could make two blocks with the same hash.
            seed: RandomState::new().hash_one(0),
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// Finds what of a chunk's content was written before.
    pub fn find(&self, content: &Content) -> Found {
        let (mut sources, mut copies) = (Vec::new(), Vec::<Copy>::new());
        let (mut own, mut copied) = (Vec::new(), 0);
        for block in &content.blocks {
            let hash = xxh3_128_with_seed(&content.raw[block.clone()], self.seed);
            let known = self.young.get(&hash).or_else(|| self.old.get(&hash));
            let source = known.and_then(|p| {
                let listed = sources.iter().position(|s| *s == p.chunk);
                listed.or_else(|| {
                    (sources.len() < SOURCES).then(|| {
                        sources.push(p.chunk);
                        sources.len() - 1
                    })
                })
            });
            let (Some(place), Some(source)) = (known, source) else {
                if known.is_none() {
                    own.push((hash, (block.start - copied) as u32));
                }
                continue;
            };
            let (from, len) = (place.at as usize, block.len());
            copied += len;
            match copies.last_mut() {
                Some(c)
                    if (c.source, c.at + c.len, c.from + c.len) == (source, block.start, from) =>
                {
                    c.len += len;
                }
                _ => copies.push(Copy {
                    source,
                    at: block.start,
                    from,
                    len,
                }),
            }
        }
        let frame = (!copies.is_empty()).then(|| frame(&content.raw, &sources, &copies));
        Found { frame, own }
    }

    /// Remembers the blocks that the chunk has itself.
    pub fn written(&mut self, chunk: (u32, u32), found: &Found) {
        for &(hash, at) in &found.own {
            if self.young.len() >= MOST {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(hash, Place { chunk, at });
        }
    }
}

fn frame(raw: &[u8], sources: &[(u32, u32)], copies: &[Copy]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() / 4);
    let int = |out: &mut Vec<u8>, v: usize| {
        let mut b = [0; hindsight_events::varint::MAX];
        let n = put(&mut b, 0, v as u64);
        out.extend_from_slice(&b[..n]);
    };
    int(&mut out, sources.len());
    for (stream, sequence) in sources {
        int(&mut out, *stream as usize);
        int(&mut out, *sequence as usize);
    }
    int(&mut out, copies.len());
    let mut behind = 0;
    for c in copies {
        int(&mut out, c.source);
        int(&mut out, c.at - behind);
        int(&mut out, c.from);
        int(&mut out, c.len);
        behind = c.at + c.len;
    }
    let mut behind = 0;
    for c in copies {
        out.extend_from_slice(&raw[behind..c.at]);
        behind = c.at + c.len;
    }
    out.extend_from_slice(&raw[behind..]);
    out
}

/// A frame, as far as it was read.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    sources: Vec<(u32, u32)>,
    copies: Vec<Copy>,
    /// Where its own bytes begin.
    own: usize,
}

impl Frame {
    /// Reads the lists of a frame of a chunk with `raw_len` bytes. `None`: it is damaged.
    pub fn read(bytes: Vec<u8>, raw_len: usize) -> Option<Frame> {
        let mut at = 0;
        let mut int = || {
            let (v, next) = get(&bytes, at)?;
            at = next;
            usize::try_from(v).ok()
        };
        let n = int()?;
        if n > SOURCES {
            return None;
        }
        let mut sources = Vec::new();
        for _ in 0..n {
            sources.push((u32::try_from(int()?).ok()?, u32::try_from(int()?).ok()?));
        }
        let n = int()?;
        if n > raw_len / LEAST {
            return None;
        }
        let (mut copies, mut behind, mut copied) = (Vec::new(), 0usize, 0usize);
        for _ in 0..n {
            let (source, gap, from, len) = (int()?, int()?, int()?, int()?);
            let at = behind.checked_add(gap)?;
            behind = at.checked_add(len).filter(|b| *b <= raw_len)?;
            if source >= sources.len() || len < LEAST {
                return None;
            }
            copied += len;
            copies.push(Copy {
                source,
                at,
                from,
                len,
            });
        }
        // To unpack a chunk takes time, so there has to be a reason.
        let used = |n: usize| copies.iter().any(|c| c.source == n);
        if !(0..sources.len()).all(used) {
            return None;
        }
        // What is not copied is there.
        (bytes.len() - at == raw_len - copied).then_some(Frame {
            own: at,
            bytes,
            sources,
            copies,
        })
    }

    /// The bytes that it has itself: those are what others copy.
    pub fn into_own(mut self) -> Vec<u8> {
        // What comes before takes no memory any more.
        self.bytes.split_off(self.own)
    }

    /// The chunks to which it refers: stream and number.
    #[cfg(test)]
    fn sources(&self) -> &[(u32, u32)] {
        &self.sources
    }

    /// The content, with `raw_len` bytes. `own` gives the own bytes of a source, by its number; it is asked for one after the
    /// other. `None`: a copy lies outside of these.
    ///
    /// # Errors
    /// `own` fails.
    pub fn content<E>(
        &self,
        raw_len: usize,
        mut own: impl FnMut((u32, u32)) -> Result<Arc<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let mut out = Vec::with_capacity(raw_len);
        let mut rest = &self.bytes[self.own..];
        for c in &self.copies {
            // A frame was read only if its lengths fit together.
            let (before, behind) = rest.split_at(c.at - out.len());
            rest = behind;
            out.extend_from_slice(before);
            out.resize(c.at + c.len, 0);
        }
        out.extend_from_slice(rest);
        for (n, source) in self.sources.iter().enumerate() {
            let bytes = own(*source)?;
            for c in self.copies.iter().filter(|c| c.source == n) {
                let range: Option<Range<usize>> = c.from.checked_add(c.len).map(|end| c.from..end);
                let Some(part) = range.and_then(|r| bytes.get(r)) else {
                    return Ok(None);
                };
                out[c.at..c.at + c.len].copy_from_slice(part);
            }
        }
        Ok(Some(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(parts: &[&[u8]]) -> Content {
        let mut c = Content::default();
        for p in parts {
            if p.len() >= LEAST {
                c.blocks.push(c.raw.len()..c.raw.len() + p.len());
            }
            c.raw.extend_from_slice(p);
        }
        c
    }

    fn content_of(frame: &Frame, whole: &Content, sources: &[&[u8]]) -> Option<Vec<u8>> {
        let mut sources = sources.iter();
        let own = |_| Ok::<_, ()>(Arc::new(sources.next().unwrap().to_vec()));
        frame.content(whole.raw.len(), own).unwrap()
    }

    fn block(n: u64) -> Vec<u8> {
        (0..256u64)
            .flat_map(|i| (i * i + n * 1_000_003).to_le_bytes())
            .collect()
    }

    #[test]
    fn what_was_written_is_copied() {
        let mut r = Repeats::new();
        let b: Vec<_> = (0..5).map(block).collect();
        let first = content(&[b"head", &b[0], b"x", &b[1], &b[2]]);
        let found = r.find(&first);
        assert!(found.frame.is_none());
        r.written((3, 0), &found);
        // Some of it, in another order, with something new.
        let second = content(&[&b[1], &b[2], b"between", &b[3], &b[0], b"end"]);
        let found = r.find(&second);
        let bytes = found.frame.clone().unwrap();
        assert!(bytes.len() < b[3].len() + 40, "{}", bytes.len());
        r.written((4, 0), &found);
        let frame = Frame::read(bytes, second.raw.len()).unwrap();
        assert_eq!(frame.sources(), [(3, 0)]);
        assert_eq!(
            content_of(&frame, &second, &[&first.raw]).unwrap(),
            second.raw
        );
        // What is new there is copied from what that chunk has itself.
        let third = content(&[&b[4], &b[3], &b[0]]);
        let own = frame.into_own();
        let frame = Frame::read(r.find(&third).frame.unwrap(), third.raw.len()).unwrap();
        assert_eq!(frame.sources(), [(4, 0), (3, 0)]);
        assert_eq!(
            content_of(&frame, &third, &[&own, &first.raw]).unwrap(),
            third.raw
        );
        // Sources that are not what they were.
        assert!(content_of(&frame, &third, &[&own, &own[..100]]).is_none());
    }

    #[test]
    fn few_others_are_needed() {
        let mut r = Repeats::new();
        let b: Vec<_> = (0..20).map(block).collect();
        for (i, b) in b.iter().enumerate() {
            let found = r.find(&content(&[b]));
            r.written((1, i as u32), &found);
        }
        let parts: Vec<&[u8]> = b.iter().map(|b| &b[..]).collect();
        let all = content(&parts);
        let frame = Frame::read(r.find(&all).frame.unwrap(), all.raw.len()).unwrap();
        assert_eq!(frame.sources().len(), SOURCES);
        let sources: Vec<&[u8]> = b[..SOURCES].iter().map(|b| &b[..]).collect();
        assert_eq!(content_of(&frame, &all, &sources).unwrap(), all.raw);
    }

    #[test]
    fn damaged_frames_are_errors() {
        let mut r = Repeats::new();
        let b: Vec<_> = (0..3).map(block).collect();
        let first = content(&[&b[0], &b[1]]);
        r.written((1, 0), &r.find(&first));
        let second = content(&[&b[1], b"between", &b[2], &b[0]]);
        let good = r.find(&second).frame.unwrap();
        for i in 0..good.len().min(64) {
            for v in 0..=255 {
                let mut bad = good.clone();
                bad[i] = v;
                if let Some(f) = Frame::read(bad, second.raw.len()) {
                    let sources = vec![&first.raw[..]; f.sources().len()];
                    let content = content_of(&f, &second, &sources);
                    assert!(content.is_none_or(|c| c.len() == second.raw.len()));
                }
            }
        }
        for n in 0..good.len() {
            assert!(Frame::read(good[..n].to_vec(), second.raw.len()).is_none());
        }
    }
}

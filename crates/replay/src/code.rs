//! The code of a program image at each epoch of its recording.

use crate::Error;
use crate::maps::Map;
use hindsight_events::{Decoder, Event};
use hindsight_trace::Trace;
use std::borrow::Cow;

const PAGE: u64 = 4096;
/// Bytes of a page that have versions of their own. A program that replaces a function of a few bytes again and again
/// needs no more memory than this each time.
const PART: usize = 64;
/// The most bytes that all code may take.
const MOST: usize = 1 << 30;

/// Code bytes, as far as the recording has them.
#[derive(Clone)]
struct Bytes {
    bytes: Box<[u8]>,
    /// A bit for each byte: set if the recording has the byte.
    known: Box<[u64]>,
}

impl Bytes {
    /// `len` bytes, none of which is known. `len` is a multiple of 64.
    fn new(len: usize) -> Bytes {
        Bytes {
            bytes: vec![0; len].into(),
            known: vec![0; len / 64].into(),
        }
    }

    /// What is known of the bytes from `at` on. `at` and `len` are multiples of 64.
    fn part(&self, at: usize, len: usize) -> Bytes {
        Bytes {
            bytes: self.bytes[at..at + len].into(),
            known: self.known[at / 64..(at + len) / 64].into(),
        }
    }

    /// The memory that it takes as a version, in bytes: with what the allocator needs, a place in a list that has room for
    /// more, and a place in the list of changes.
    fn size(&self) -> usize {
        const ALLOCATED: usize = 16;
        let content = self.bytes.len() + 8 * self.known.len() + 2 * ALLOCATED;
        content + 2 * size_of::<(u64, Bytes)>() + 2 * size_of::<(u64, u64)>()
    }

    fn get(&self, i: usize) -> Option<u8> {
        (self.known[i / 64] & (1 << (i % 64)) != 0).then(|| self.bytes[i])
    }

    /// Sets the bytes from offset `start` on.
    fn put(&mut self, start: usize, bytes: &[u8]) {
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        if bytes.len() == self.bytes.len() {
            self.known.fill(u64::MAX);
            return;
        }
        for i in start..start + bytes.len() {
            self.known[i / 64] |= 1 << (i % 64);
        }
    }

    /// Whether another byte is known where `bytes` would be put from offset `start` on.
    fn contradicts(&self, start: usize, bytes: &[u8]) -> bool {
        let mut others = bytes.iter().enumerate();
        others.any(|(i, b)| self.get(start + i).is_some_and(|known| known != *b))
    }

    /// Takes the bytes from offset `at` on that are not known from `next`.
    fn complete(&mut self, at: usize, next: &Bytes) {
        for i in 0..next.bytes.len() {
            if let (None, Some(byte)) = (self.get(at + i), next.get(i)) {
                self.put(at + i, &[byte]);
            }
        }
    }

    /// The known bytes from `start` to `end`, up to the first unknown one. Stops not far behind `most` bytes.
    fn run(&self, start: usize, end: usize, most: usize) -> &[u8] {
        let mut at = start;
        while at < end && at - start < most {
            let known = (self.known[at / 64] >> (at % 64)).trailing_ones() as usize;
            at += known;
            if known == 0 || !at.is_multiple_of(64) {
                break;
            }
        }
        &self.bytes[start..at.min(end)]
    }
}

/// A page of code in all its versions.
struct Page {
    /// The epoch of the first bytes.
    epoch: u64,
    /// What it held before anything in it changed.
    first: Bytes,
    /// For each part: what it held later, with the epochs of the changes, ascending. Empty if nothing changes.
    later: Vec<Vec<(u64, Bytes)>>,
}

impl Page {
    fn new(epoch: u64) -> Page {
        Page {
            epoch,
            first: Bytes::new(PAGE as usize),
            later: Vec::new(),
        }
    }

    /// Adds bytes within one part, from offset `start` on. Returns the memory that this took, in bytes, if it is a change.
    fn add(&mut self, epoch: u64, start: usize, bytes: &[u8]) -> Option<usize> {
        let (part, within) = (start / PART, start % PART);
        // A byte that was not known before is no change.
        let Some((last, old)) = self.later.get(part).and_then(|list| list.last()) else {
            if self.epoch >= epoch || !self.first.contradicts(start, bytes) {
                self.first.put(start, bytes);
                return None;
            }
            return Some(self.change(
                epoch,
                part,
                self.first.part(part * PART, PART),
                within,
                bytes,
            ));
        };
        if *last < epoch && old.contradicts(within, bytes) {
            return Some(self.change(epoch, part, old.clone(), within, bytes));
        }
        if let Some((_, last)) = self.later[part].last_mut() {
            last.put(within, bytes);
        }
        None
    }

    fn change(&mut self, epoch: u64, part: usize, old: Bytes, at: usize, bytes: &[u8]) -> usize {
        let mut new = old;
        new.put(at, bytes);
        let mut size = new.size();
        if self.later.is_empty() {
            self.later.resize_with(PAGE as usize / PART, Vec::new);
            size += self.later.len() * size_of::<Vec<(u64, Bytes)>>();
        }
        self.later[part].push((epoch, new));
        size
    }

    /// Has each version take the bytes that it does not know from the next one.
    fn complete(&mut self) {
        for (part, list) in self.later.iter_mut().enumerate() {
            for i in (1..list.len()).rev() {
                let (before, after) = list.split_at_mut(i);
                before[i - 1].1.complete(0, &after[0].1);
            }
            if let Some((_, next)) = list.first() {
                self.first.complete(part * PART, next);
            }
        }
    }

    /// The known bytes from offset `start` to the first unknown one, to the end of the page, or to where another version
    /// may begin. Stops not far behind `most` bytes.
    fn slice(&self, start: usize, epoch: u64, most: usize) -> &[u8] {
        if self.later.is_empty() {
            return self.first.run(start, PAGE as usize, most);
        }
        let (part, within) = (start / PART, start % PART);
        let list = &self.later[part];
        match list.partition_point(|v| v.0 <= epoch).checked_sub(1) {
            Some(i) => list[i].1.run(within, PART, most),
            None => self.first.run(start, (part + 1) * PART, most),
        }
    }

    /// One part as of an epoch: its bytes, and which of them are known.
    fn part(&self, part: usize, epoch: u64) -> (&[u8], &[u64]) {
        let list = self.later.get(part).map_or(&[][..], |list| list);
        match list.partition_point(|v| v.0 <= epoch).checked_sub(1) {
            Some(i) => (&list[i].1.bytes, &list[i].1.known),
            None => {
                let at = part * PART;
                let known = &self.first.known[at / 64..(at + PART) / 64];
                (&self.first.bytes[at..at + PART], known)
            }
        }
    }

    /// Whether all bytes that `other` knows are known here and are the same.
    fn covers(&self, other: &Page, epoch: u64) -> bool {
        (0..PAGE as usize / PART).all(|part| {
            let (mine, theirs) = (self.part(part, epoch), other.part(part, epoch));
            let wanted = |i: usize| theirs.1[i / 64] & (1 << (i % 64)) != 0;
            mine.1.iter().zip(theirs.1).all(|(a, b)| b & !a == 0)
                && (mine.0 == theirs.0 || (0..PART).all(|i| !wanted(i) || mine.0[i] == theirs.0[i]))
        })
    }
}

/// The content of a piece of code.
enum Content<'a> {
    Bytes(&'a [u8]),
    Module {
        module: u32,
        offset: u64,
        len: usize,
    },
}

/// A piece of code from an image's stream.
struct Piece<'a> {
    epoch: u64,
    addr: u64,
    content: Content<'a>,
}

/// What an image's stream says about its code.
#[derive(Default)]
struct Said<'a> {
    pieces: Vec<Piece<'a>>,
    /// The epoch of the parent's code on which it builds.
    inherited: Option<u64>,
}

fn decode(chunks: &[Vec<u8>]) -> Result<Said<'_>, Error> {
    let mut said = Said::default();
    for wire in chunks {
        let mut decoder = Decoder::default();
        let mut at = 0;
        while at < wire.len() {
            let corrupt = Error::Corrupt {
                position: 0,
                what: "the stream of a program image does not decode",
            };
            let (_, event, n) = decoder.decode(&wire[at..]).ok_or(corrupt)?;
            at += n;
            let (epoch, addr, content) = match event {
                Event::Code { epoch, addr, bytes } => (epoch, addr, Content::Bytes(bytes)),
                Event::CodeOf {
                    epoch,
                    addr,
                    len,
                    module,
                    offset,
                } => {
                    let len = len as usize;
                    let content = Content::Module {
                        module,
                        offset,
                        len,
                    };
                    (epoch, addr, content)
                }
                Event::CodeFrom { epoch } => {
                    said.inherited = Some(epoch);
                    continue;
                }
                _ => continue,
            };
            said.pieces.push(Piece {
                epoch,
                addr,
                content,
            });
        }
    }
    Ok(said)
}

/// Code bytes by address and epoch.
#[derive(Default)]
pub struct Code {
    pages: Map<u64, Page>,
    /// Pairs of an epoch and a page that changes at that epoch.
    changes: Vec<(u64, u64)>,
}

impl Code {
    /// Reads the code of a program image: its own code, and below that the code of the images from which it
    /// was forked.
    pub fn from_trace(trace: &Trace, image: u32) -> Result<Code, Error> {
        let mut levels = Vec::new();
        let (mut number, mut limit) = (image, u64::MAX);
        loop {
            let info = trace.image(number);
            let mut chunks = Vec::new();
            for stream in info.map_or(&[][..], |i| &i.streams) {
                for c in trace.chunks(*stream) {
                    chunks.push(trace.load(c)?);
                }
            }
            let inherited = decode(&chunks)?.inherited;
            levels.push((chunks, limit));
            match (inherited, info) {
                // A parent has a lower number than its child. A forged trace may say otherwise, so this check
                // ends the loop.
                (Some(epoch), Some(i)) if i.parent < number => {
                    (number, limit) = (i.parent, limit.min(epoch));
                }
                _ => break,
            }
        }
        let mut pieces = Vec::new();
        // If two images have code of the same epoch, the younger image's counts.
        for (chunks, limit) in levels.iter().rev() {
            for p in decode(chunks)?.pieces {
                if p.epoch > *limit {
                    continue;
                }
                let bytes = match p.content {
                    Content::Bytes(b) => Cow::Borrowed(b),
                    Content::Module {
                        module,
                        offset,
                        len,
                    } => Cow::Owned(trace.module_part(module, offset, len)?),
                };
                pieces.push((p.epoch, p.addr, bytes));
            }
        }
        let mut pieces: Vec<_> = pieces.iter().map(|(e, a, b)| (*e, *a, &b[..])).collect();
        Code::new(&mut pieces)
    }

    /// Makes the map from pieces `(epoch, address, bytes)`. If two have the same epoch, the later one counts.
    pub fn new(pieces: &mut [(u64, u64, &[u8])]) -> Result<Code, Error> {
        pieces.sort_by_key(|p| p.0);
        let mut code = Code::default();
        let mut size = 0;
        for &(epoch, addr, bytes) in pieces.iter() {
            let mut addr = addr;
            let mut bytes = bytes;
            while !bytes.is_empty() {
                let n = bytes.len().min((PAGE - addr % PAGE) as usize);
                let (part, rest) = bytes.split_at(n);
                size += code.add(epoch, addr, part);
                if size > MOST {
                    return Err(Error::Corrupt {
                        position: 0,
                        what: "there is too much code",
                    });
                }
                addr = addr.wrapping_add(n as u64);
                bytes = rest;
            }
        }
        code.pages.values_mut().for_each(Page::complete);
        Ok(code)
    }

    /// Adds bytes within one page. Returns the memory that this took, in bytes.
    fn add(&mut self, epoch: u64, addr: u64, bytes: &[u8]) -> usize {
        let number = addr / PAGE * PAGE;
        let mut size = 0;
        let page = self.pages.entry(number).or_insert_with(|| {
            let page = Page::new(epoch);
            size += page.first.size();
            page
        });
        let start = (addr % PAGE) as usize;
        if bytes.len() == PAGE as usize && page.later.is_empty() && page.epoch == epoch {
            page.first.put(0, bytes);
            return size;
        }
        let mut at = 0;
        while at < bytes.len() {
            let n = (PART - (start + at) % PART).min(bytes.len() - at);
            if let Some(more) = page.add(epoch, start + at, &bytes[at..at + n]) {
                size += more;
                if self.changes.last() != Some(&(epoch, number)) {
                    self.changes.push((epoch, number));
                }
            }
            at += n;
        }
        size
    }

    fn page(&self, addr: u64) -> Option<&Page> {
        self.pages.get(&(addr / PAGE * PAGE))
    }

    /// Whether all that `other` knows of the page at `page` as of `epoch` is known here and is the same.
    pub fn covers(&self, other: &Code, page: u64, epoch: u64) -> bool {
        match (self.page(page), other.page(page)) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => a.covers(b, epoch),
        }
    }

    /// The known bytes from `addr` to the first unknown one or the end of the page. It may end sooner where code changes.
    /// Stops not far behind `most` bytes.
    pub fn slice(&self, addr: u64, epoch: u64, most: usize) -> &[u8] {
        match self.page(addr) {
            Some(page) => page.slice((addr % PAGE) as usize, epoch, most),
            None => &[],
        }
    }

    /// Like [`Code::slice`], for code that is not executed yet. The program may write to it before it
    /// executes it. So this returns nothing of pages that change, or of which only some bytes are known.
    pub fn peek(&self, addr: u64, epoch: u64, most: usize) -> &[u8] {
        match self.page(addr) {
            Some(page)
                if page.later.is_empty() && page.first.known.iter().all(|k| *k == u64::MAX) =>
            {
                self.slice(addr, epoch, most)
            }
            _ => &[],
        }
    }

    /// Whether one of the pages of `len` bytes of code at `addr` changes its code. `len` is from 1 to 4096.
    pub fn is_changing(&self, addr: u64, len: usize) -> bool {
        let last = addr.wrapping_add((len as u64).saturating_sub(1));
        let pages = [addr, last].map(|a| self.page(a));
        pages.iter().flatten().any(|p| !p.later.is_empty())
    }

    /// Copies known bytes from `addr` on. Returns the number of bytes copied.
    pub fn fetch(&self, addr: u64, epoch: u64, buf: &mut [u8]) -> usize {
        let mut n = 0;
        while n < buf.len() {
            let most = buf.len() - n;
            let s = self.slice(addr.wrapping_add(n as u64), epoch, most);
            if s.is_empty() {
                break;
            }
            let part = s.len().min(most);
            buf[n..n + part].copy_from_slice(&s[..part]);
            n += part;
        }
        n
    }

    /// Hands all known bytes of a stretch of `len` bytes to `each`, piece by piece, with the offset of each piece.
    pub fn known(&self, addr: u64, epoch: u64, len: usize, each: &mut dyn FnMut(usize, &[u8])) {
        let mut n = 0;
        while n < len {
            let at = addr.wrapping_add(n as u64);
            let most = len - n;
            let piece = self.slice(at, epoch, most);
            n += match (piece.len(), self.page(at)) {
                (0, None) => (PAGE - at % PAGE) as usize,
                (0, Some(_)) => 1,
                (there, _) => {
                    each(n, &piece[..there.min(most)]);
                    there
                }
            };
        }
    }

    /// Pages whose content differs between two epochs, in either direction.
    pub fn changed(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + '_ {
        let (low, high) = (from.min(to), from.max(to));
        let start = self.changes.partition_point(|c| c.0 <= low);
        let end = self.changes.partition_point(|c| c.0 <= high);
        self.changes[start..end].iter().map(|c| c.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_bytes_of_a_stretch_are_those_that_are_fetched_one_by_one() {
        let mut pieces = [
            (0, 0x1ffe, &[3, 3, 3, 3][..]),
            (0, 0x1ff0, &[1; 8]),
            (0, 0x5001, &[9]),
            (7, 0x1ff4, &[4; 3]),
        ];
        let code = Code::new(&mut pieces).unwrap();
        for epoch in [0, 8] {
            for (addr, len) in [(0x1fe0, 0x40), (0x1ff1, 3), (0x1000, 0x5000), (0x5002, 9)] {
                let mut all = vec![None; len];
                code.known(addr, epoch, len, &mut |n, bytes| {
                    for (to, b) in all[n..].iter_mut().zip(bytes) {
                        assert_eq!(to.replace(*b), None);
                    }
                });
                let one = |i: usize| {
                    let mut b = [0];
                    let n = code.fetch(addr + i as u64, epoch, &mut b);
                    (n == 1).then_some(b[0])
                };
                let want: Vec<Option<u8>> = (0..len).map(one).collect();
                assert_eq!(all, want, "{addr:#x} {len} {epoch}");
            }
        }
    }

    #[test]
    fn versions_overlay_each_other() {
        let code = Code::new(&mut [
            (5, 0x1ffe, &[3, 3, 3, 3]),
            (1, 0x1ff8, &[1; 8]),
            (9, 0x2001, &[9]),
        ])
        .unwrap();
        let get = |addr, epoch| {
            let mut b = [0; 12];
            let n = code.fetch(addr, epoch, &mut b);
            b[..n].to_vec()
        };
        assert_eq!(get(0x1ff8, 1), [1, 1, 1, 1, 1, 1, 1, 1, 3, 3]);
        assert_eq!(get(0x1ff8, 0), get(0x1ff8, 4));
        assert_eq!(get(0x1ff8, 5), [1, 1, 1, 1, 1, 1, 3, 3, 3, 3]);
        assert_eq!(get(0x1ffe, 100), [3, 3, 3, 9]);
        assert!(get(0x2002, 5).is_empty());
        assert!(get(0, 5).is_empty());
        assert_eq!(code.changed(4, 9).collect::<Vec<_>>(), [0x1000, 0x2000]);
        assert_eq!(code.changed(9, 5).collect::<Vec<_>>(), [0x2000]);
        assert_eq!(code.changed(5, 8).count(), 0);
    }

    proptest! {
        /// What is known is what the last piece until then says. What is unknown until then is taken from a later one.
        #[test]
        fn code_is_what_its_pieces_say(
            pieces in proptest::collection::vec((0u64..6, 0u64..700, 1usize..300, 0u8..3), 0..12)
        ) {
            let bytes = |p: &(u64, u64, usize, u8)| vec![p.3; p.2];
            let content: Vec<_> = pieces.iter().map(bytes).collect();
            let mut list: Vec<_> = (pieces.iter().zip(&content))
                .map(|(p, bytes)| (p.0, 0x1e00 + p.1, &bytes[..]))
                .collect();
            let code = Code::new(&mut list).unwrap();
            for epoch in 0..7 {
                for addr in 0x1e00..0x2300 {
                    let of = |p: &&(u64, u64, &[u8])| (p.1..p.1 + p.2.len() as u64).contains(&addr);
                    let mut buf = [7];
                    let n = code.fetch(addr, epoch, &mut buf);
                    // The list is sorted by epochs now.
                    match list.iter().filter(of).rfind(|p| p.0 <= epoch) {
                        Some(piece) => prop_assert_eq!((n, buf[0]), (1, piece.2[0]), "{:x} at {}", addr, epoch),
                        None => prop_assert_eq!(n == 1, list.iter().any(|p| of(&p))),
                    }
                }
            }
            // What is the same at two epochs is not said to change, and what differs is.
            let page = |n: u64, epoch| {
                let mut buf = [0; 4096];
                (0..4096).for_each(|i| { code.fetch(n + i, epoch, &mut buf[i as usize..][..1]); });
                buf
            };
            for (from, to) in [(0, 3), (2, 5), (4, 6)] {
                let changed: Vec<_> = code.changed(from, to).collect();
                for n in [0x1000, 0x2000] {
                    prop_assert!(changed.contains(&n) || page(n, from) == page(n, to));
                }
            }
        }
    }

    #[test]
    fn code_that_is_replaced_again_and_again_takes_memory_for_what_changes() {
        // Half a million functions of 16 bytes, on 2048 pages.
        let functions: Vec<_> = (0..1 << 19u64).map(|i| [(i >> 16) as u8; 16]).collect();
        let address = |i: usize| 0x10000 + (i % 40960) as u64 * 200;
        let mut pieces: Vec<_> = (functions.iter().enumerate())
            .map(|(i, f)| (i as u64, address(i), &f[..]))
            .collect();
        let code = Code::new(&mut pieces).unwrap();
        let mut buf = [0; 16];
        for i in [0, 1000, 70_000, 400_000] {
            assert_eq!(
                (code.fetch(address(i), i as u64, &mut buf), buf),
                (16, functions[i])
            );
        }
        assert_eq!(code.peek(0x10000, 0, 16), b"");
    }

    #[test]
    fn covers_what_it_knows() {
        let of = |bytes: &[u8]| Code::new(&mut [(0, 0x1010, bytes)]).unwrap();
        let code = of(&[1, 2, 3, 4]);
        for (other, covered) in [
            (of(&[1, 2, 3, 4]), true),
            (of(&[1, 2, 3]), true),
            (of(&[1, 2, 3, 4, 0]), false),
            (of(&[1, 2, 3, 5]), false),
            (Code::default(), true),
        ] {
            assert_eq!(code.covers(&other, 0x1000, 0), covered);
        }
        assert!(!Code::default().covers(&code, 0x1000, 0));
        assert!(code.covers(&code, 0x1000, 0) && code.covers(&code, 0x5000, 0));
    }
}

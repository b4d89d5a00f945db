//! The code of a program image at each epoch of its recording.

use crate::Error;
use crate::cache::Map;
use hindsight_events::{Decoder, Event};
use hindsight_trace::Trace;
use std::borrow::Cow;

const PAGE: u64 = 4096;
/// Most versions of all pages together. They take a gigabyte.
const MAX_VERSIONS: usize = 1 << 18;

/// The content of a page from an epoch on.
#[derive(Clone)]
struct Version {
    epoch: u64,
    bytes: Box<[u8; PAGE as usize]>,
    /// A bit for each byte: set if the recording has the byte.
    known: [u64; PAGE as usize / 64],
}

impl Version {
    fn knows(&self, i: usize) -> bool {
        self.known[i / 64] & (1 << (i % 64)) != 0
    }

    fn set(&mut self, i: usize, byte: u8) {
        self.bytes[i] = byte;
        self.known[i / 64] |= 1 << (i % 64);
    }

    /// Sets the bytes from offset `start` on.
    fn put(&mut self, start: usize, bytes: &[u8]) {
        if bytes.len() == PAGE as usize {
            self.bytes.copy_from_slice(bytes);
            self.known = [u64::MAX; PAGE as usize / 64];
            return;
        }
        for (i, b) in bytes.iter().enumerate() {
            self.set(start + i, *b);
        }
    }

    /// Whether all bytes that `other` knows are known here and are the same.
    fn covers(&self, other: &Version) -> bool {
        let known = self.known.iter().zip(&other.known);
        if known.clone().any(|(a, b)| b & !a != 0) {
            return false;
        }
        self.bytes == other.bytes
            || (0..PAGE as usize).all(|i| !other.knows(i) || self.bytes[i] == other.bytes[i])
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
    pages: Map<u64, Vec<Version>>,
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
        let mut versions = 0;
        for &(epoch, addr, bytes) in pieces.iter() {
            let mut addr = addr;
            let mut bytes = bytes;
            while !bytes.is_empty() {
                let n = bytes.len().min((PAGE - addr % PAGE) as usize);
                let (part, rest) = bytes.split_at(n);
                versions += code.add(epoch, addr, part);
                if versions > MAX_VERSIONS {
                    return Err(Error::Corrupt {
                        position: 0,
                        what: "there is too much code",
                    });
                }
                addr = addr.wrapping_add(n as u64);
                bytes = rest;
            }
        }
        for list in code.pages.values_mut() {
            for i in (1..list.len()).rev() {
                let (before, after) = list.split_at_mut(i);
                complete(&mut before[i - 1], &after[0]);
            }
        }
        Ok(code)
    }

    /// Adds bytes within one page. Returns the number of versions that this made.
    fn add(&mut self, epoch: u64, addr: u64, bytes: &[u8]) -> usize {
        let page = addr / PAGE * PAGE;
        let list = self.pages.entry(page).or_default();
        let start = (addr % PAGE) as usize;
        let mut made = 0;
        let new = match list.last() {
            None => Some(Version {
                epoch,
                bytes: Box::new([0; PAGE as usize]),
                known: [0; PAGE as usize / 64],
            }),
            // A byte that was not known before is no change.
            Some(v)
                if v.epoch < epoch
                    && (0..bytes.len())
                        .any(|i| v.knows(start + i) && v.bytes[start + i] != bytes[i]) =>
            {
                self.changes.push((epoch, page));
                Some(Version { epoch, ..v.clone() })
            }
            Some(_) => None,
        };
        if let Some(v) = new {
            list.push(v);
            made = 1;
        }
        if let Some(v) = list.last_mut() {
            v.put(start, bytes);
        }
        made
    }

    fn page(&self, addr: u64, epoch: u64) -> Option<&Version> {
        let list = self.pages.get(&(addr / PAGE * PAGE))?;
        let later = list.partition_point(|v| v.epoch <= epoch);
        list.get(later.saturating_sub(1))
    }

    /// Whether all that `other` knows of the page at `page` as of `epoch` is known here and is the same.
    pub fn covers(&self, other: &Code, page: u64, epoch: u64) -> bool {
        match (self.page(page, epoch), other.page(page, epoch)) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => a.covers(b),
        }
    }

    /// The known bytes from `addr` to the first unknown byte or the end of the page. Stops not far behind
    /// `most` bytes.
    pub fn slice(&self, addr: u64, epoch: u64, most: usize) -> &[u8] {
        let Some(v) = self.page(addr, epoch) else {
            return &[];
        };
        let start = (addr % PAGE) as usize;
        let mut end = start;
        while end < PAGE as usize && end - start < most {
            let known = (v.known[end / 64] >> (end % 64)).trailing_ones() as usize;
            end += known;
            if known == 0 || !end.is_multiple_of(64) {
                break;
            }
        }
        &v.bytes[start..end]
    }

    /// Like [`Code::slice`], for code that is not executed yet. The program may write to it before it
    /// executes it. So this returns nothing of pages that change, or of which only some bytes are known.
    pub fn peek(&self, addr: u64, epoch: u64, most: usize) -> &[u8] {
        match self.page(addr, epoch) {
            Some(v) if v.known.iter().all(|k| *k == u64::MAX) && !self.is_changing(addr, 1) => {
                self.slice(addr, epoch, most)
            }
            _ => &[],
        }
    }

    /// Whether one of the pages of `len` bytes of code at `addr` changes its code. `len` is from 1 to 4096.
    pub fn is_changing(&self, addr: u64, len: usize) -> bool {
        let last = addr.wrapping_add((len as u64).saturating_sub(1));
        let pages = [addr, last].map(|a| self.pages.get(&(a / PAGE * PAGE)));
        pages.iter().flatten().any(|versions| versions.len() > 1)
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

    /// Pages whose content differs between two epochs, in either direction.
    pub fn changed(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + '_ {
        let (low, high) = (from.min(to), from.max(to));
        let start = self.changes.partition_point(|c| c.0 <= low);
        let end = self.changes.partition_point(|c| c.0 <= high);
        self.changes[start..end].iter().map(|c| c.1)
    }
}

/// Takes the bytes that `v` does not know from the next version.
fn complete(v: &mut Version, next: &Version) {
    for i in 0..PAGE as usize {
        if !v.knows(i) && next.knows(i) {
            v.set(i, next.bytes[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Bytes that are compressed in pieces. A few of them can be read without the rest.

use super::codec::{Reader, put};
use super::stored::{Scratch, Stored};
use crate::{Error, Result};
use hindsight_compress::{Compressor, Decompressor};
use hindsight_guard::place;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes in a piece, before compression.
pub const PIECE: usize = 16 << 10;
/// From this many pieces on, two threads unpack them.
const MANY: usize = 64;
/// Bytes that are packed while more come are packed when they are so many.
pub const SOME: usize = 1024 * PIECE;
/// So many bytes of pieces go to a file together, if there is one.
const WRITTEN: usize = 8 << 20;
/// A buffer that has grown beyond this is not used again.
const MOST_KEPT: usize = 1 << 20;

thread_local! {
    /// These are used again. Making a compressor costs as much as compressing some pieces, and fresh memory would cost
    /// page faults.
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
    static PIECE_OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PIECES_OUT: RefCell<Packing> = RefCell::default();
}

/// Appends one zstd frame.
pub fn compress(raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    let failed = |e: std::io::Error| Error::Unsupported(format!("cannot compress: {e}"));
    COMPRESSOR.with_borrow_mut(|c| {
        let mut with = match c.take().filter(|c| c.0 == level) {
            Some((_, with)) => with,
            None => Compressor::new(level).map_err(failed)?,
        };
        let done = PIECE_OUT.with_borrow_mut(|one| {
            // Not into `out`: it would have to have room for more than the frame takes.
            one.clear();
            with.append(raw, one).map_err(failed)?;
            out.extend_from_slice(one);
            if one.capacity() > MOST_KEPT {
                *one = Vec::new();
            }
            Ok(())
        });
        *c = Some((level, with));
        done
    })
}

/// Appends bytes, compressed: their number, the lengths of the pieces, and the pieces.
pub fn pack(raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<()> {
    PIECES_OUT.with_borrow_mut(|all| {
        all.clear();
        all.add(raw, level)?;
        all.finish(out);
        Ok(())
    })
}

/// What [`pack`] does, for bytes that come bit by bit.
#[derive(Default)]
pub struct Packing {
    len: usize,
    lengths: Vec<u8>,
    pieces: Vec<u8>,
    /// The pieces before those, in a file.
    written: Vec<Stored>,
    scratch: Option<Arc<Scratch>>,
}

impl Packing {
    /// Pieces go to this file on the way, if there are many.
    pub fn with(scratch: Option<Arc<Scratch>>) -> Packing {
        Packing {
            scratch,
            ..Packing::default()
        }
    }

    /// Hands over what there is. The next bytes can be added then.
    pub fn take(&mut self) -> Packing {
        let next = Packing::with(self.scratch.clone());
        std::mem::replace(self, next)
    }

    fn clear(&mut self) {
        self.len = 0;
        self.lengths.clear();
        self.pieces.clear();
        self.written.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds bytes: a multiple of a [`PIECE`], unless they are the last ones.
    pub fn add(&mut self, raw: &[u8], level: i32) -> Result<()> {
        assert!(self.len.is_multiple_of(PIECE));
        self.len += raw.len();
        for p in raw.chunks(PIECE) {
            let before = self.pieces.len();
            compress(p, level, &mut self.pieces)?;
            put(&mut self.lengths, (self.pieces.len() - before) as u64);
        }
        if self.pieces.len() >= WRITTEN
            && let Some(written) = self.scratch.as_ref().and_then(|s| s.put(&self.pieces))
        {
            self.written.push(written);
            self.pieces.clear();
        }
        Ok(())
    }

    /// Packs bytes to which more will be added, if there are many. What does not make a whole piece yet is left.
    pub fn relieve(&mut self, bytes: &mut Vec<u8>, level: i32) -> Result<()> {
        if bytes.len() >= SOME {
            let whole = bytes.len() / PIECE * PIECE;
            self.add(&bytes[..whole], level)?;
            bytes.drain(..whole);
        }
        Ok(())
    }

    /// Appends what [`pack`] does, if nothing was written to a file.
    fn finish(&self, out: &mut Vec<u8>) {
        let (head, _, pieces) = self.finished();
        out.extend_from_slice(&head);
        out.extend_from_slice(pieces);
    }

    /// What [`pack`] appends, in three parts: the first one is small, the second one was written to a file.
    pub fn finished(&self) -> (Vec<u8>, &[Stored], &[u8]) {
        let mut head = Vec::new();
        put(&mut head, self.len as u64);
        head.extend_from_slice(&self.lengths);
        (head, &self.written, &self.pieces)
    }
}

/// Unpacks a piece. Returns its length in bytes.
fn decompress(piece: &[u8], to: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|with| {
        let with = match with {
            Some(with) => with,
            None => with.insert(Decompressor::new().ok()?),
        };
        with.unpack(piece, to).ok()
    })
}

/// A buffer with the pieces that are unpacked.
#[derive(Default)]
pub struct Opened {
    bytes: Vec<u8>,
    have: Vec<bool>,
}

impl Opened {
    /// Forgets all pieces, for use with other [`Pieces`]. The memory stays.
    pub fn clear(&mut self) {
        self.have.clear();
    }
}

/// The bytes that [`pack`] made, ready to be read.
pub struct Pieces {
    blob: Blob,
    /// Where each piece ends, and where the first begins.
    ends: Vec<usize>,
    first: usize,
    len: usize,
    /// The number of the last piece that was read, with its content.
    last: Mutex<Option<(usize, Vec<u8>)>>,
}

/// Where pieces are.
enum Blob {
    Memory(Arc<[u8]>),
    File(InFile),
}

/// Pieces that are read from a file when they are needed.
struct InFile {
    file: Arc<File>,
    /// The section with the pieces begins here in the file, and has so many bytes.
    at: u64,
    len: usize,
    /// The checksum of each piece: the section's was compared only once.
    sums: Box<[u64]>,
}

impl Blob {
    fn len(&self) -> usize {
        match self {
            Blob::Memory(all) => all.len(),
            Blob::File(f) => f.len,
        }
    }
}

impl Pieces {
    /// No bytes.
    pub fn none() -> Pieces {
        Pieces {
            blob: Blob::Memory(Arc::new([])),
            ends: Vec::new(),
            first: 0,
            len: 0,
            last: Mutex::default(),
        }
    }

    /// Reads what [`pack`] wrote at `at`. `None`: the data is damaged.
    pub fn new(blob: &Arc<[u8]>, at: usize) -> Option<Pieces> {
        let mut r = Reader { b: blob, at };
        let len = usize::try_from(r.int()?).ok()?;
        // Each piece has at least one byte, so a larger number is damage.
        if len.div_ceil(PIECE) > blob.len() {
            return None;
        }
        let lens = (0..len.div_ceil(PIECE)).map(|_| usize::try_from(r.int()?).ok());
        let lens = lens.collect::<Option<Vec<usize>>>()?;
        let first = r.at;
        let mut at = first;
        let ends = lens.iter().map(|n| {
            at = at.checked_add(*n)?;
            Some(at)
        });
        let ends = ends.collect::<Option<Vec<usize>>>()?;
        (at <= blob.len()).then_some(Pieces {
            blob: Blob::Memory(Arc::clone(blob)),
            ends,
            first,
            len,
            last: Mutex::default(),
        })
    }

    /// The end of the last piece in the blob.
    pub fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or(self.first)
    }

    /// The number of bytes before compression.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        let blob = match &self.blob {
            Blob::Memory(all) => all.len(),
            Blob::File(f) => size_of_val(&*f.sums),
        };
        blob + size_of::<usize>() * self.ends.len() + PIECE
    }

    /// Reads pieces from a file from now on, when they are needed. `at`: the section in which they were found begins there.
    pub fn leave_in(&mut self, file: &Arc<File>, at: u64) {
        let sums = (0..self.ends.len()).map(|i| self.piece(i).map_or(0, |p| xxh3_64(&p)));
        self.blob = Blob::File(InFile {
            sums: sums.collect(),
            file: Arc::clone(file),
            at,
            len: self.blob.len(),
        });
    }

    /// A compressed piece. `None`: it cannot be read any more as it was.
    fn piece(&self, i: usize) -> Option<Cow<'_, [u8]>> {
        let from = match i.checked_sub(1) {
            Some(before) => self.ends[before],
            None => self.first,
        };
        Some(match &self.blob {
            Blob::Memory(all) => Cow::Borrowed(&all[from..self.ends[i]]),
            Blob::File(f) => {
                let mut piece = vec![0; self.ends[i] - from];
                let at = f.at.checked_add(from as u64)?;
                place::read(&f.file, &mut piece, at).ok()?;
                if xxh3_64(&piece) != f.sums[i] {
                    return None;
                }
                Cow::Owned(piece)
            }
        })
    }

    /// Unpacks a piece, in a buffer that is used again.
    pub fn one(&self, i: usize, mut out: Vec<u8>) -> Option<Vec<u8>> {
        let size = self.len.checked_sub(i.checked_mul(PIECE)?)?.min(PIECE);
        out.resize(size, 0);
        (decompress(&self.piece(i)?, &mut out)? == size).then_some(out)
    }

    /// All bytes.
    pub fn all(&self) -> Option<Vec<u8>> {
        self.all_into(Vec::new())
    }

    /// All bytes, in a buffer that is used again.
    pub fn all_into(&self, mut out: Vec<u8>) -> Option<Vec<u8>> {
        // A zstd frame has at least nine bytes. So damaged data cannot ask for much memory.
        if self.len / (PIECE / 8) > self.blob.len() {
            return None;
        }
        out.resize(self.len, 0);
        self.unpack(out.chunks_mut(PIECE).enumerate().collect())?;
        Some(out)
    }

    /// Unpacks pieces: numbers, and where to put them.
    fn unpack(&self, pieces: Vec<(usize, &mut [u8])>) -> Option<()> {
        let many = pieces.len() >= MANY && hindsight_guard::processors() > 1;
        let rest = Mutex::new(pieces.into_iter());
        let work = || -> Option<()> {
            let mut with = Decompressor::new().ok()?;
            loop {
                let next = crate::base::sync::lock(&rest).next();
                let Some((i, to)) = next else {
                    return Some(());
                };
                let done = with.unpack(&self.piece(i)?, to).ok()?;
                if done != to.len() {
                    return None;
                }
            }
        };
        if !many {
            return work();
        }
        std::thread::scope(|s| {
            let other = std::thread::Builder::new().spawn_scoped(s, work);
            let mine = work();
            match other.map(|o| o.join()) {
                Ok(Ok(theirs)) => mine.and(theirs),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // The system may have no more threads.
                Err(_) => mine,
            }
        })
    }

    /// Unpacks the pieces that these stretches need and that are not yet unpacked. A stretch is an offset and a length.
    pub fn open(
        &self,
        opened: &mut Opened,
        stretches: impl Iterator<Item = (usize, usize)>,
    ) -> Option<()> {
        if (opened.have.len(), opened.bytes.len()) != (self.ends.len(), self.len) {
            // A zstd frame has at least nine bytes. So damaged data cannot ask for much memory.
            if self.len / (PIECE / 8) > self.blob.len() {
                return None;
            }
            opened.have.clear();
            opened.have.resize(self.ends.len(), false);
            opened.bytes.resize(self.len, 0);
        }
        let mut wanted = vec![false; self.ends.len()];
        for (at, len) in stretches {
            let end = at.checked_add(len).filter(|end| *end <= self.len)?;
            wanted[at / PIECE..end.div_ceil(PIECE)].fill(true);
        }
        let all = opened.bytes.chunks_mut(PIECE).enumerate();
        self.unpack(
            all.filter(|(i, _)| wanted[*i] && !opened.have[*i])
                .collect(),
        )?;
        opened
            .have
            .iter_mut()
            .zip(wanted)
            .for_each(|(h, w)| *h |= w);
        Some(())
    }

    /// A stretch of bytes. `None`: not all of it has been unpacked.
    pub fn some<'a>(&self, opened: &'a Opened, at: usize, len: usize) -> Option<&'a [u8]> {
        let bytes = opened.bytes.get(at..at.checked_add(len)?)?;
        let have = opened.have.get(at / PIECE..(at + len).div_ceil(PIECE))?;
        have.iter().all(|h| *h).then_some(bytes)
    }

    /// `N` bytes from `at` on. They must lie in one piece.
    pub fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let i = at / PIECE;
        if at.checked_add(N)? > self.len {
            return None;
        }
        let mut last = crate::base::sync::lock(&self.last);
        if last.as_ref().is_none_or(|l| l.0 != i) {
            let raw = last.take().map_or_else(Vec::new, |l| l.1);
            *last = Some((i, self.one(i, raw)?));
        }
        let (_, piece) = last.as_ref()?;
        piece.get(at % PIECE..at % PIECE + N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stay_in_a_file_and_are_refused_when_it_changes() {
        let raw: Vec<u8> = (0..2 * PIECE + 640).map(|i| (i / 64) as u8).collect();
        let mut blob = vec![9; 7];
        pack(&raw, 1, &mut blob).unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        place::write(&file, &blob, 100).unwrap();
        let mut p = Pieces::new(&blob[..].into(), 7).unwrap();
        p.leave_in(&file, 100);
        assert_eq!(p.all().unwrap(), raw);
        assert_eq!(p.one(2, vec![1; 9]).unwrap(), raw[2 * PIECE..]);
        assert_eq!(p.one(3, Vec::new()), None);
        // One bit of the last piece.
        let last = blob.len() - 1;
        place::write(&file, &[blob[last] ^ 1], 100 + last as u64).unwrap();
        assert_eq!(p.one(2, Vec::new()), None);
        assert_eq!(p.one(1, Vec::new()).unwrap(), raw[PIECE..2 * PIECE]);
        file.set_len(100).unwrap();
        assert_eq!(p.one(0, Vec::new()), None);
    }

    #[test]
    fn pieces_that_were_written_on_the_way_are_the_same() {
        let mut random = hindsight_random::Rng(43);
        let raw: Vec<u8> = (0..3 * SOME / 2)
            .map(|i| {
                if i % 3 > 0 {
                    random.below(256) as u8
                } else {
                    0
                }
            })
            .collect();
        let full = std::fs::File::options().write(true).open("/dev/full");
        let files = [tempfile::tempfile(), full].map(|f| Arc::new(Scratch::new(f.unwrap())));
        let [scratch, full] = files.map(|f| Packing::with(Some(f)));
        let mut all = [Packing::default(), scratch, full];
        let each = all.each_mut().map(|p| {
            raw.chunks(SOME / 2)
                .for_each(|some| p.add(some, -1).unwrap());
            let taken = p.take();
            assert!(p.is_empty());
            taken
        });
        let whole = each.each_ref().map(|p| {
            let (mut out, written, pieces) = p.finished();
            written
                .iter()
                .for_each(|w| out.extend_from_slice(&w.bytes().unwrap()));
            out.extend_from_slice(pieces);
            out
        });
        assert!(whole[0] == whole[1] && whole[0] == whole[2]);
        let in_memory = each.each_ref().map(|p| p.pieces.len());
        assert!(in_memory[0] > 2 * WRITTEN, "{in_memory:?}");
        assert!(in_memory[1] < WRITTEN, "{in_memory:?}");
        assert_eq!(in_memory[2], in_memory[0], "a full disk");
        assert!(all[1].scratch.is_some(), "the next ones go there, too");
    }

    #[test]
    fn pieces_come_back_alone_and_together() {
        let raw: Vec<u8> = (0..3 * PIECE + 128).map(|i| (i / 64) as u8).collect();
        let new = |b: &[u8]| Pieces::new(&b.into(), 0);
        let mut blob = Vec::new();
        pack(&raw, -1, &mut blob).unwrap();
        assert!(blob.len() < raw.len() / 4);
        let (mut packing, mut same) = (Packing::default(), Vec::new());
        for some in [&raw[..2 * PIECE], &raw[2 * PIECE..]] {
            packing.add(some, -1).unwrap();
        }
        packing.finish(&mut same);
        assert!(same == blob && !packing.is_empty());
        let p = new(&blob).unwrap();
        assert_eq!(p.all().unwrap(), raw);
        let mut opened = Opened::default();
        for round in 0..2 {
            for (at, len) in [
                (0, 0),
                (3 * PIECE + 64, 64),
                (PIECE - 64, 128),
                (0, raw.len()),
            ] {
                p.open(&mut opened, [(at, len)].into_iter()).unwrap();
                let some = p.some(&opened, at, len).unwrap();
                assert!(*some == raw[at..at + len], "{round}: {at} {len}");
            }
            for (at, len) in [(3 * PIECE + 64, 65), (usize::MAX, 2)] {
                assert_eq!(p.open(&mut opened, [(at, len)].into_iter()), None);
                assert_eq!(p.some(&opened, at, len), None);
            }
            // Other pieces take the place of the first.
            opened.clear();
            let other = vec![round as u8; 2 * PIECE + 1];
            let mut packed = Vec::new();
            pack(&other, 1, &mut packed).unwrap();
            let q = new(&packed).unwrap();
            assert_eq!(q.some(&opened, 0, other.len()), None, "not opened");
            let mut nothing = Vec::new();
            pack(&[], 1, &mut nothing).unwrap();
            new(&nothing)
                .unwrap()
                .open(&mut opened, [].into_iter())
                .unwrap();
            opened.clear();
            q.open(&mut opened, [(0, other.len())].into_iter()).unwrap();
            assert!(*q.some(&opened, 0, other.len()).unwrap() == other);
            opened.clear();
        }
        for at in [0, PIECE, PIECE - 64, 3 * PIECE + 64, 64] {
            assert_eq!(p.get::<64>(at).unwrap(), raw[at..at + 64], "{at}");
        }
        assert_eq!(p.get::<64>(3 * PIECE + 128), None);
        assert_eq!(p.get::<64>(usize::MAX), None);
        let mut none = Vec::new();
        pack(&[], 1, &mut none).unwrap();
        let none = new(&none).unwrap();
        assert!(none.all().unwrap().is_empty());
        // Two threads unpack this. The buffer had more bytes before, then fewer.
        let many: Vec<u8> = (0..(MANY + 2) * PIECE + 64)
            .map(|i| (i / 60) as u8)
            .collect();
        let mut packed = Vec::new();
        pack(&many, -1, &mut packed).unwrap();
        let p = new(&packed).unwrap();
        for spare in [0, 100, 2 * many.len()] {
            assert!(p.all_into(vec![7; spare]).unwrap() == many);
        }
        for i in 0..p.ends.len() {
            // If either thread fails to unpack a piece, the answer is nothing. It is not the old content of the buffer.
            let mut bad = packed.clone();
            let at = i.checked_sub(1).map_or(p.first, |before| p.ends[before]);
            bad[at..at + 4].fill(0);
            assert_eq!(
                new(&bad).unwrap().all_into(vec![7; many.len()]),
                None,
                "{i}"
            );
        }
        // Damaged data never causes a panic.
        for n in 0..blob.len().min(300) {
            let mut bad = blob.clone();
            bad[n] ^= 0x55;
            if let Some(p) = new(&bad) {
                p.get::<64>(0);
                p.open(&mut Opened::default(), [(0, p.len())].into_iter());
                p.all();
            }
            assert!(new(&blob[..n]).is_none());
        }
    }
}

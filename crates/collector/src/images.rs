//! The program images that have open streams. Nothing is kept of other ones, since a recording may
//! have any number of them.

use crate::collected::MappedFile;
use hindsight_trace::{StreamInfo, StreamKind};
use std::collections::{BTreeMap, HashMap};

/// Bytes for mapped files, of all images together. What does not fit has no name in a message.
const MOST_BYTES: usize = 64 << 20;

/// Where the stream is that has an image's mappings and code.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// It was not seen yet.
    #[default]
    Unknown,
    /// In this ring.
    Ring(usize),
    /// The stream has ended.
    Ended,
}

#[derive(Default)]
struct ImageState {
    /// Number of streams that have not ended.
    open: usize,
    carrier: Carrier,
    /// Its process has gone on to a program that is not recorded.
    left: bool,
    /// Its process has gone on to another image, and others share its memory.
    replaced: bool,
    /// By address. Of two at one address the one that was mapped first comes first.
    maps: BTreeMap<(u64, u64), MappedFile>,
}

/// See the module's description.
#[derive(Default)]
pub struct Images {
    all: HashMap<u32, ImageState>,
    /// Number of mappings so far.
    count: u64,
    /// Bytes for all that are known.
    bytes: usize,
}

impl Images {
    /// Notes that a stream begins in ring `ring`.
    pub fn begin(&mut self, info: &StreamInfo, ring: usize) {
        let known = self.all.entry(info.image).or_default();
        known.open += 1;
        if info.kind == StreamKind::Image {
            known.carrier = Carrier::Ring(ring);
        }
    }

    /// Notes that a stream that had begun has ended.
    pub fn end(&mut self, info: &StreamInfo) {
        let Some(known) = self.all.get_mut(&info.image) else {
            return;
        };
        known.open = known.open.saturating_sub(1);
        if known.open == 0 {
            self.bytes -= known.maps.values().map(MappedFile::memory).sum::<usize>();
            self.all.remove(&info.image);
        } else if info.kind == StreamKind::Image {
            known.carrier = Carrier::Ended;
        }
    }

    /// Where the stream with the image's mappings and code is.
    pub fn carrier(&self, image: u32) -> Carrier {
        self.all.get(&image).map_or(Carrier::Unknown, |k| k.carrier)
    }

    /// Notes that the image's process has gone on to a program that is not recorded.
    pub fn leave(&mut self, image: u32) {
        if let Some(known) = self.all.get_mut(&image) {
            known.left = true;
        }
    }

    /// Notes that the image's process has gone on to another image, and others in its memory have
    /// not.
    pub fn replace(&mut self, image: u32) {
        if let Some(known) = self.all.get_mut(&image) {
            known.replaced = true;
        }
    }

    /// Whether the image's process has gone on, so that only others in its memory may still be in
    /// the image.
    pub fn is_replaced(&self, image: u32) -> bool {
        self.all.get(&image).is_some_and(|k| k.replaced)
    }

    /// Number of streams of the image that have not ended.
    pub fn open(&self, image: u32) -> usize {
        self.all.get(&image).map_or(0, |k| k.open)
    }

    /// Whether the image's process has gone on to a program that is not recorded.
    pub fn has_left(&self, image: u32) -> bool {
        self.all.get(&image).is_some_and(|k| k.left)
    }

    /// Notes that something was mapped or unmapped. `file` says what, if it is an executable part
    /// of a file.
    pub fn map(&mut self, image: u32, addr: u64, len: u64, file: Option<MappedFile>) {
        let Some(known) = self.all.get_mut(&image) else {
            return;
        };
        let end = addr.saturating_add(len);
        let covered = |m: &MappedFile| m.addr.saturating_add(m.len) <= end;
        let within = known.maps.range((addr, 0)..=(end, u64::MAX));
        let gone: Vec<_> = within
            .filter(|(_, m)| covered(m))
            .map(|(k, _)| *k)
            .collect();
        for key in gone {
            let file = known.maps.remove(&key);
            self.bytes -= file.map_or(0, |f| f.memory());
        }
        if let Some(file) = file.filter(|f| self.bytes + f.memory() <= MOST_BYTES) {
            self.bytes += file.memory();
            self.count += 1;
            known.maps.insert((addr, self.count), file);
        }
    }

    /// The executable parts of files that the image has mapped. If two share an address, the later
    /// one counts there.
    pub fn maps(&self, image: u32) -> Vec<MappedFile> {
        let known = self.all.get(&image);
        known.map_or(Vec::new(), |k| k.maps.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_forgotten() {
        let of = |image, kind| StreamInfo {
            image,
            kind,
            ..StreamInfo::default()
        };
        let mut images = Images::default();
        for image in 1..100 {
            let (whole, thread) = (of(image, StreamKind::Image), of(image, StreamKind::Thread));
            images.begin(&thread, 8);
            assert_eq!(images.carrier(image), Carrier::Unknown);
            images.begin(&whole, 7);
            assert_eq!(images.carrier(image), Carrier::Ring(7));
            images.end(&whole);
            assert_eq!(images.carrier(image), Carrier::Ended);
            images.leave(image);
            assert!(images.has_left(image));
            images.end(&thread);
            assert!(!images.has_left(image));
        }
        assert!(images.all.is_empty() && images.bytes == 0);
    }

    #[test]
    fn files_that_are_mapped_again_and_again_take_no_room() {
        let mut images = Images::default();
        let info = StreamInfo {
            image: 1,
            ..StreamInfo::default()
        };
        images.begin(&info, 0);
        let file = |addr, len| MappedFile {
            addr,
            len,
            offset: 0,
            path: b"/lib/x".to_vec(),
        };
        for _ in 0..100 {
            images.map(1, 0x1000, 0x3000, Some(file(0x1000, 0x3000)));
            images.map(1, 0x8000, 0x1000, Some(file(0x8000, 0x1000)));
            images.map(1, 0x8000, 0x10_0000, None);
        }
        assert_eq!(images.maps(1), [file(0x1000, 0x3000)]);
        images.map(1, 0x2000, 0x1000, None);
        assert_eq!(images.maps(1).len(), 1, "part of it is still there");
        let later = MappedFile {
            path: b"/lib/y".to_vec(),
            ..file(0x1000, 0x2000)
        };
        images.map(1, 0x1000, 0x2000, Some(later.clone()));
        assert_eq!(images.maps(1), [file(0x1000, 0x3000), later]);
        images.map(1, 0, u64::MAX, None);
        assert_eq!((images.maps(1).len(), images.bytes), (0, 0));
    }

    #[test]
    fn endless_mappings_take_bounded_memory() {
        let mut images = Images::default();
        let info = StreamInfo {
            image: 1,
            ..StreamInfo::default()
        };
        images.begin(&info, 0);
        for i in 0..100_000u64 {
            let file = MappedFile {
                addr: i << 12,
                len: 0x1000,
                offset: 0,
                path: vec![b'x'; 4000],
            };
            images.map(1, file.addr, file.len, Some(file));
        }
        assert!(images.bytes <= MOST_BYTES && images.bytes > MOST_BYTES / 2);
        images.end(&info);
        assert_eq!(images.bytes, 0);
    }
}

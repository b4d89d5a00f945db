//! The program images that have open streams. Of others nothing is kept: there may be any number of
//! them in a recording.

use crate::collected::MappedFile;
use hindsight_trace::{StreamInfo, StreamKind};
use std::collections::HashMap;

/// Where the stream with an image's mappings and code is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// It has not been seen.
    #[default]
    Unknown,
    /// In this ring.
    Ring(usize),
    Ended,
}

#[derive(Default)]
struct Known {
    /// Streams that have not ended.
    open: usize,
    carrier: Carrier,
    /// Its process went on to a program that is not recorded.
    left: bool,
    maps: Vec<MappedFile>,
}

/// See the module's description.
#[derive(Default)]
pub struct Images(HashMap<u32, Known>);

impl Images {
    /// A stream begins in ring `ring`.
    pub fn begin(&mut self, info: &StreamInfo, ring: usize) {
        let known = self.0.entry(info.image).or_default();
        known.open += 1;
        if info.kind == StreamKind::Image {
            known.carrier = Carrier::Ring(ring);
        }
    }

    /// A stream that began has ended.
    pub fn end(&mut self, info: &StreamInfo) {
        let Some(known) = self.0.get_mut(&info.image) else {
            return;
        };
        known.open -= 1;
        if known.open == 0 {
            self.0.remove(&info.image);
        } else if info.kind == StreamKind::Image {
            known.carrier = Carrier::Ended;
        }
    }

    pub fn carrier(&self, image: u32) -> Carrier {
        self.0.get(&image).map_or(Carrier::Unknown, |k| k.carrier)
    }

    /// The image's process has gone on to a program that is not recorded.
    pub fn leave(&mut self, image: u32) {
        if let Some(known) = self.0.get_mut(&image) {
            known.left = true;
        }
    }

    pub fn has_left(&self, image: u32) -> bool {
        self.0.get(&image).is_some_and(|k| k.left)
    }

    /// Something was mapped or unmapped; `file`: if it is part of a file, and executable.
    pub fn map(&mut self, image: u32, addr: u64, len: u64, file: Option<MappedFile>) {
        if let Some(known) = self.0.get_mut(&image) {
            let covered = |m: &MappedFile| {
                m.addr >= addr && m.addr.saturating_add(m.len) <= addr.saturating_add(len)
            };
            known.maps.retain(|m| !covered(m));
            known.maps.extend(file);
        }
    }

    /// Executable parts of files as the image has them mapped. Where two lie at one address, the
    /// last is there.
    pub fn maps(&self, image: u32) -> &[MappedFile] {
        self.0.get(&image).map_or(&[], |k| &k.maps)
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
        assert!(images.0.is_empty());
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
    }
}

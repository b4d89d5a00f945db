//! Index files.

use super::recording::{self, DATA};
use hindsight_timeline::{Cancel, Depth, Options, Timeline, index_path};
use std::path::PathBuf;
use xxhash_rust::xxh3::xxh3_64;

/// A recording and where its index is, for one thread.
struct Scene {
    _folder: tempfile::TempDir,
    trace: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("made.hst");
        std::fs::write(&trace, recording::bytes()).unwrap();
        Scene {
            _folder: folder,
            trace,
        }
    }

    /// Opens the recording, with an index in one level or in two.
    fn open(&self, unsaved: bool, levels: usize) -> Timeline {
        let (interval, coarse) = match levels {
            1 => (16, 0),
            _ => (2, 4),
        };
        let options = Options {
            interval,
            coarse,
            unsaved,
            ..Options::default()
        };
        Timeline::open(&self.trace, options).unwrap()
    }
}

fn with_scene<T>(then: impl FnOnce(&Scene) -> T) -> T {
    thread_local! {
        static SCENE: Scene = Scene::new();
    }
    SCENE.with(then)
}

pub fn seeds() -> Vec<Vec<u8>> {
    with_scene(|s| {
        let seed = |levels| {
            let _ = std::fs::remove_file(index_path(&s.trace));
            let t = s.open(false, levels);
            let status = t
                .build_index(Depth::Full, &|_, _| {}, &Cancel::new())
                .unwrap();
            assert_eq!(status.fine_present > 0, levels > 1);
            let bytes = std::fs::read(index_path(&s.trace)).unwrap();
            // The example is whole: nothing of it is replaced.
            assert_eq!(mended(&bytes), bytes);
            bytes
        };
        [1, 2].map(seed).into()
    })
}

/// The same with a header and directories whose checksums fit.
fn mended(bytes: &[u8]) -> Vec<u8> {
    const HEAD: usize = 32;
    const RECORD: usize = 48;
    let mut b = bytes.to_vec();
    if b.len() < HEAD {
        return b;
    }
    let sum = xxh3_64(&b[..24]);
    b[24..32].copy_from_slice(&sum.to_le_bytes());
    let mut at = HEAD;
    while b.len() - at > RECORD {
        let word = |i: usize| u64::from_le_bytes(b[at + i..at + i + 8].try_into().unwrap());
        let (all, directory) = (word(24), word(32));
        let body = &b[at + RECORD..];
        if all > body.len() as u64 || directory > all {
            break;
        }
        let (all, directory) = (all as usize, directory as usize);
        let sum = xxh3_64(&body[all - directory..all]);
        b[at + 40..at + RECORD].copy_from_slice(&sum.to_le_bytes());
        at += RECORD + all;
    }
    b
}

pub fn run(bytes: &[u8]) {
    with_scene(|s| {
        for bytes in [bytes.to_vec(), mended(bytes)] {
            std::fs::write(index_path(&s.trace), bytes).unwrap();
            for levels in [1, 2] {
                let t = s.open(true, levels);
                t.index_status();
                let mut c = t.cursor().unwrap();
                c.seek(t.range().unwrap().1).unwrap();
                // Damage is found and what it was about made again. What checksums vouch for is believed.
                let _ = c.last_write(DATA + 8, 8);
                let _ = c.known_memory(DATA, 64);
                let _ = c.registers();
            }
        }
    });
}

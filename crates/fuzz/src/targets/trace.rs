//! Trace files, and what is stored beside them in the same form.

use super::recording;
use crate::events;
use crate::made::{Made, chunk, chunks, encode, header as description};
use hindsight_events::{Decoder, Event};
use hindsight_trace::chunk::{ChunkHeader, HEADER_LEN, Kind, MAGIC, MAX_RAW, VERSION};
use hindsight_trace::files::{Stored, references};
use hindsight_trace::{
    ChunkBuilder, ModuleHash, ModuleInfo, StreamInfo, Summary, Text, Trace, Writer,
};
use std::cell::OnceCell;
use xxhash_rust::xxh3::xxh3_64;

pub fn seeds() -> Vec<Vec<u8>> {
    let (two_streams, _) = events::trace(&mut events::Random::new(21), 4);
    let mut made = Made::new(&description());
    made.module("/lib/small.so", ModuleHash::of(b"small"), 5);
    made.piece(0, 0, 5, b"small");
    vec![recording::bytes(), two_streams, made.bytes, copies()]
}

/// A trace with a chunk that copies from another one.
fn copies() -> Vec<u8> {
    let mut w = Writer::new(Vec::new(), &description()).unwrap();
    let (masks, words) = ([0xff; 64], [7; 4096]);
    let page = |at: u64| Event::Lines {
        line: at,
        masks: &masks,
        words: &words,
    };
    let mut events: Vec<_> = (0..160u64)
        .map(|n| {
            let event = Event::Patch {
                line: 64 * n,
                mask: 0xff,
                words: [n * n + 1; 8],
            };
            (n, event)
        })
        .collect();
    events.push((160, page(1 << 20)));
    for stream in [1, 2] {
        let info = StreamInfo {
            stream,
            image: 1,
            ..StreamInfo::default()
        };
        w.begin(&info).unwrap();
        let mut b = ChunkBuilder::default();
        b.push(&encode(&events), |_, _| None);
        w.stream(stream, &mut b).unwrap();
    }
    w.finish(Summary::default()).unwrap().0
}

/// The same with checksums and lengths that fit, so that what was changed is read at all.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let (mut b, mut at) = (bytes.to_vec(), 0);
    while b.len() - at >= HEADER_LEN {
        let (head, rest) = b[at..].split_at_mut(HEADER_LEN);
        let wanted = u32::from_le_bytes(head[40..44].try_into().unwrap()) as usize;
        let len = wanted.min(rest.len());
        head[..7].copy_from_slice(&MAGIC);
        head[7] = VERSION;
        head[40..44].copy_from_slice(&(len as u32).to_le_bytes());
        if head[9] == 0 {
            head[44..48].copy_from_slice(&(len as u32).to_le_bytes());
        }
        head[48..56].copy_from_slice(&xxh3_64(&rest[..len]).to_le_bytes());
        mend(head);
        at += HEADER_LEN + len;
    }
    b
}

/// Writes the checksum of a header.
fn mend(head: &mut [u8]) {
    let crc = crc32fast::hash(&head[..60]);
    head[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// Reads all that can be read.
fn read(bytes: Vec<u8>) {
    let len = bytes.len() as u64;
    let Ok(t) = Trace::from_bytes(bytes) else {
        return;
    };
    for s in t.streams() {
        for c in t.chunks(s) {
            let Ok(b) = t.load(c) else { continue };
            assert!(b.len() <= MAX_RAW);
            let (mut decoder, mut at) = (Decoder::default(), 0);
            while let Some((_, _, n)) = decoder.decode(&b[at..]) {
                at += n;
            }
            assert!(at <= b.len());
        }
    }
    for m in t.modules().iter().filter(|m| m.size < 1 << 24) {
        let _ = t.module_bytes(m.hash);
    }
    let _ = (t.summary(), t.counts(), t.images(), t.identity());
    assert_eq!(t.len(), len);
}

pub fn run(bytes: &[u8]) {
    read(bytes.to_vec());
    read(mended(bytes));
}

pub fn headers() -> Vec<Vec<u8>> {
    let list = seeds().into_iter().flat_map(|s| chunks(&s));
    list.map(|(h, _)| h.to_bytes().to_vec()).collect()
}

pub fn header(bytes: &[u8]) {
    let mut b = [0; HEADER_LEN];
    let n = bytes.len().min(HEADER_LEN);
    b[..n].copy_from_slice(&bytes[..n]);
    b[..7].copy_from_slice(&MAGIC);
    b[7] = VERSION;
    mend(&mut b);
    if let Ok(h) = ChunkHeader::from_bytes(&b, 0) {
        assert_eq!(ChunkHeader::from_bytes(&h.to_bytes(), 0).unwrap(), h);
    }
}

/// What stored copies contain.
const CONTENT: &[u8] = b"the content of a small library";

pub fn stored() -> Vec<Vec<u8>> {
    let info = ModuleInfo {
        path: Text::from("/lib/small.so"),
        hash: ModuleHash::of(CONTENT),
        size: CONTENT.len() as u64,
        shared: false,
    };
    let piece = ChunkHeader {
        last_pos: CONTENT.len() as u64,
        ..ChunkHeader::blank(Kind::Piece)
    };
    let info = chunk(
        ChunkHeader::blank(Kind::Module),
        &serde_json::to_vec(&info).unwrap(),
    );
    let good = [info, chunk(piece, CONTENT)].concat();
    folder(|dir| {
        let hash = ModuleHash::of(CONTENT);
        std::fs::write(dir.join(hash.to_string()), &good).unwrap();
        assert!(Stored::open(dir, hash).is_ok(), "the example is good");
    });
    // References are in traces.
    let mut all = vec![good];
    all.extend(seeds());
    all
}

/// Has a folder used that is this thread's.
fn folder<T>(then: impl FnOnce(&std::path::Path) -> T) -> T {
    thread_local! {
        static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
    }
    FOLDER.with(|f| then(f.get_or_init(|| tempfile::tempdir().unwrap()).path()))
}

pub fn store(bytes: &[u8]) {
    folder(|dir| {
        let hash = ModuleHash::of(CONTENT);
        for bytes in [bytes.to_vec(), mended(bytes)] {
            let path = dir.join(hash.to_string());
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(s) = Stored::open(dir, hash) {
                assert!(s.bytes() <= bytes.len() as u64);
            }
            let _ = references(&path);
        }
    });
}

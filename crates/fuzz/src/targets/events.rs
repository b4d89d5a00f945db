//! Events, and what else lies in memory that recorded programs can write to.

use crate::events::{Random, wire};
use hindsight_events::Decoder;
use hindsight_events::shared_cache::{self, NAME, SharedCache, kind};
use hindsight_trace::columns::{self, ChunkBuilder, Content, Pushed};
use std::cell::RefCell;

pub fn wires() -> Vec<Vec<u8>> {
    (1..4).map(|n| wire(&mut Random::new(n), 6)).collect()
}

pub fn contents() -> Vec<Vec<u8>> {
    let content = |wire: Vec<u8>| {
        let mut b = ChunkBuilder::default();
        let (_, pushed) = b.push(&wire, |_, _| None);
        assert_ne!(pushed, Pushed::Bad);
        let mut content = Content::default();
        b.take(&mut content);
        content.raw
    };
    wires().into_iter().map(content).collect()
}

pub fn columns(raw: &[u8]) {
    if let Some(wire) = columns::merge(raw) {
        assert!(wire.len() <= raw.len());
    }
    columns::outline(raw);
}

pub fn ring(bytes: &[u8]) {
    let mut builder = ChunkBuilder::default();
    let mut at = 0;
    loop {
        let (n, pushed) = builder.push(&bytes[at..], |_, _| None);
        at += n;
        let mut content = Content::default();
        builder.take(&mut content);
        // What the builder took can be merged again.
        let merged = columns::merge(&content.raw).expect("columns that were just made");
        let outline = columns::outline(&content.raw).expect("columns that were just made");
        for wire in [merged, outline] {
            let (mut decoder, mut done) = (Decoder::default(), 0);
            while done < wire.len() {
                done += decoder.decode(&wire[done..]).expect("whole events").2;
            }
        }
        if pushed != Pushed::Full {
            break;
        }
    }
}

/// Memory for a shared cache, which is all zero. What is written to it is kept small and zeroed again.
fn with_cache<T>(then: impl FnOnce(SharedCache<'_>) -> T) -> T {
    thread_local! {
        static MEMORY: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    MEMORY.with_borrow_mut(|m| {
        // Fresh memory comes from the kernel page by page, as it is touched.
        *m = vec![0; shared_cache::LEN / 8];
        // SAFETY: aligned and long enough, zero, and used through the cache only.
        then(unsafe { SharedCache::new(m.as_mut_ptr().cast()) })
    })
}

/// The content of each entry in [`stocks`].
const CONTENT: [u8; 50] = [0x5a; 50];
const ENTRIES: u64 = 6;

pub fn stocks() -> Vec<Vec<u8>> {
    with_cache(|c| {
        for key in 0..ENTRIES {
            c.put(kind::BLOCK, key << 32 | key, &CONTENT);
        }
        let stock = c.stock(1 << 16, true);
        vec![[stock.names, stock.entries].concat()]
    })
}

pub fn cache(bytes: &[u8]) {
    with_cache(|c| {
        let (names, kept) = bytes.split_at((ENTRIES as usize * NAME).min(bytes.len()));
        let c = c.with_kept(kept);
        c.adopt(names, 0);
        // No damaged entry is found.
        for key in 0..ENTRIES {
            for found in c.find(kind::BLOCK, key << 32 | key) {
                assert_eq!(found.content, CONTENT);
            }
        }
        c.count();
        assert!(c.stock(1 << 16, true).entries.len() <= bytes.len());
    });
}

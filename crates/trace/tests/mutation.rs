//! Reading ends with a result or an error, in bounded time and memory, whatever the bytes of a trace. It
//! takes a moment; `HINDSIGHT_FUZZ_SECONDS` makes it run longer.

mod common;

use common::{Random, trace};
use hindsight_events::Decoder;
use hindsight_trace::chunk::{ChunkHeader, HEADER_LEN, MAGIC, VERSION};
use hindsight_trace::{ChunkBuilder, Pushed, Trace, columns};
use std::time::{Duration, Instant};

fn budget() -> Duration {
    const SECONDS: &str = "HINDSIGHT_FUZZ_SECONDS";
    let seconds = std::env::var(SECONDS).map_or(2.0, |s| s.parse().expect(SECONDS));
    Duration::from_secs_f64(seconds)
}

/// Calls `one` with new random numbers until the time is up.
fn fuzz(mut one: impl FnMut(&mut Random)) {
    let start = Instant::now();
    let mut n = 0;
    while n < 20 || start.elapsed() < budget() {
        one(&mut Random::new(n));
        n += 1;
    }
}

/// Reads everything that can be read. Says whether all of it was good.
fn read_all(bytes: Vec<u8>) -> bool {
    let len = bytes.len();
    let Ok(t) = Trace::from_bytes(bytes) else {
        return false;
    };
    let mut good = t.completeness() == hindsight_trace::Completeness::Complete;
    for s in t.streams() {
        for c in t.chunks(s) {
            let Ok(b) = t.load(c) else {
                good = false;
                continue;
            };
            assert!(b.len() <= hindsight_trace::chunk::MAX_RAW);
            let (mut dec, mut at) = (Decoder::default(), 0);
            while let Some((_, _, n)) = dec.decode(&b[at..]) {
                at += n;
            }
            good &= at == b.len();
        }
    }
    for m in t.modules() {
        good &= t.module_bytes(m.hash).is_ok();
    }
    assert!(t.len() == len as u64);
    good
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (bytes, _) = trace(&mut Random::new(11), 12);
    assert!(read_all(bytes.clone()));
    let mut r = Random::new(12);
    let mut at = 0;
    while at < bytes.len() {
        let mut b = bytes.clone();
        b[at] ^= 1 << r.below(8);
        assert!(!read_all(b), "byte {at}");
        at += 1 + r.below(bytes.len() as u64 / 700) as usize;
    }
}

#[test]
fn headers_with_valid_checksums_and_any_content_are_survived() {
    let (bytes, _) = trace(&mut Random::new(21), 30);
    let mut starts = vec![0];
    loop {
        let at = starts[starts.len() - 1];
        let len = u32::from_le_bytes(bytes[at + 40..at + 44].try_into().unwrap());
        let next = at + HEADER_LEN + len as usize;
        if next == bytes.len() {
            break;
        }
        starts.push(next);
    }
    fuzz(|r| {
        let mut b = bytes.clone();
        for _ in 0..1 + r.below(3) {
            let at = starts[r.below(starts.len() as u64) as usize];
            b[at + 8 + r.below(48) as usize] = r.any() as u8;
            let crc = crc32fast::hash(&b[at..at + 60]);
            b[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
        }
        if r.below(4) == 0 {
            b.truncate(r.below(b.len() as u64) as usize);
        }
        read_all(b);
    });
}

#[test]
fn any_header_bytes_are_survived() {
    fuzz(|r| {
        let mut b: [u8; HEADER_LEN] = std::array::from_fn(|_| r.any() as u8);
        b[..7].copy_from_slice(&MAGIC);
        b[7] = VERSION;
        let crc = crc32fast::hash(&b[..60]);
        b[60..].copy_from_slice(&crc.to_le_bytes());
        if let Ok(h) = ChunkHeader::from_bytes(&b, 0) {
            assert_eq!(ChunkHeader::from_bytes(&h.to_bytes(), 0).unwrap(), h);
        }
    });
}

#[test]
fn any_columns_are_survived() {
    let wire = common::wire(&mut Random::new(31), 40);
    let mut b = ChunkBuilder::default();
    let (_, pushed) = b.push(&wire, |_, _| None);
    assert_ne!(pushed, Pushed::Bad);
    let mut content = columns::Content::default();
    b.take(&mut content);
    fuzz(|r| {
        let mut raw = content.raw.clone();
        for _ in 0..1 + r.below(4) {
            let end = if r.below(2) == 0 {
                400
            } else {
                raw.len() as u64
            };
            let at = r.below(end) as usize;
            raw[at] = r.any() as u8;
        }
        if let Some(wire) = columns::merge(&raw) {
            assert!(wire.len() <= raw.len());
        }
    });
}

#[test]
fn any_ring_content_is_survived() {
    let wire = common::wire(&mut Random::new(41), 60);
    fuzz(|r| {
        let mut b = wire.clone();
        for _ in 0..1 + r.below(4) {
            let at = r.below(b.len() as u64) as usize;
            b[at] = r.any() as u8;
        }
        let mut builder = ChunkBuilder::default();
        let mut at = 0;
        loop {
            let (n, pushed) = builder.push(&b[at..], |_, _| None);
            at += n;
            let mut content = columns::Content::default();
            builder.take(&mut content);
            // What the builder took can be merged again.
            let merged = columns::merge(&content.raw).expect("columns that were just made");
            let (mut dec, mut done) = (Decoder::default(), 0);
            while done < merged.len() {
                done += dec.decode(&merged[done..]).expect("whole events").2;
            }
            if pushed != Pushed::Full {
                break;
            }
        }
    });
}

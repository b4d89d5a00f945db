//! Each changed bit of a trace is noticed. What random changes with checksums that fit do is tested in `crates/fuzz`.

mod common;

use common::{Random, trace};
use hindsight_events::Decoder;
use hindsight_trace::Trace;

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

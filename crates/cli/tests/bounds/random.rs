//! A recording of a program, changed at random, with checksums that fit.

use crate::made::{chunk, chunks};
use crate::watch::{MOST_KIB, Place};
use hindsight_trace::chunk::{ChunkHeader, Kind};
use std::time::{Duration, Instant};

/// Numbers that follow from a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A number near which faults are likely.
    fn odd(&mut self) -> u64 {
        let near = self.next() % 5;
        let bit = 1u64 << (self.next() % 64);
        match self.next() % 4 {
            0 => near,
            1 => bit.wrapping_add(near).wrapping_sub(2),
            2 => u64::MAX - near,
            _ => self.next(),
        }
    }
}

/// Changes something in a header.
fn change_header(r: &mut Random, h: &mut ChunkHeader) {
    let n = r.odd();
    match r.below(7) {
        0 => h.flags = n as u16,
        1 => h.stream = n as u32,
        2 => h.sequence = n as u32,
        3 => h.events = n as u32,
        4 => h.first_pos = n,
        5 => h.last_pos = n,
        _ => {
            const KINDS: [Kind; 6] = [
                Kind::Stream,
                Kind::Module,
                Kind::Piece,
                Kind::Begin,
                Kind::End,
                Kind::Taken,
            ];
            h.kind = KINDS[r.below(KINDS.len())];
        }
    }
}

/// Changes something in a content.
fn change_content(r: &mut Random, raw: &mut Vec<u8>) {
    if raw.is_empty() {
        return;
    }
    match r.below(5) {
        // A digit or a letter of a description, a byte of an event.
        0 | 1 => {
            let at = r.below(raw.len());
            raw[at] = r.next() as u8;
        }
        // A number of many digits.
        2 => {
            let digits = raw.iter().enumerate().filter(|(_, b)| b.is_ascii_digit());
            let places: Vec<usize> = digits.map(|d| d.0).collect();
            if let Some(at) = places.get(r.below(places.len())) {
                let n = r.odd().to_string();
                raw.splice(*at..at + 1, n.bytes());
            }
        }
        // A long integer in a column, or a length before the columns.
        3 => {
            let at = r.below(raw.len().min(2000));
            let n = r.odd().to_le_bytes();
            let end = (at + 1 + r.below(8)).min(raw.len());
            raw[at..end].copy_from_slice(&n[..end - at]);
        }
        _ => {
            let (a, b) = (r.below(raw.len()), r.below(raw.len()));
            let part = raw[a.min(b)..a.max(b)].to_vec();
            let at = r.below(raw.len());
            raw.splice(at..at, part);
        }
    }
}

/// `HINDSIGHT_FUZZ_SECONDS` is how long this tries, and `HINDSIGHT_FUZZ_SEED` chooses the changes.
#[test]
fn changed_recordings_end_in_bounds() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |s| s.parse().expect(name));
    let seconds = number("HINDSIGHT_FUZZ_SECONDS", 5);
    let seed = number("HINDSIGHT_FUZZ_SEED", 0x005e_ed0f_bad1_dea5);
    let place = Place::new();
    let honest = place.path("honest.hst");
    let honest = honest.to_str().unwrap();
    let done = place.run(&["record", "-q", "-o", honest, "--", "/bin/true"]);
    assert_eq!(done.code(), Some(0), "{done:?}");
    let list = chunks(&std::fs::read(honest).unwrap());
    let mut r = Random(seed | 1);
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < 10 || begin.elapsed() < Duration::from_secs(seconds) {
        rounds += 1;
        // Changes in the content of a library show nothing.
        let others: Vec<usize> = (0..list.len())
            .filter(|i| list[*i].0.kind != Kind::Piece)
            .collect();
        let victim = others[r.below(others.len())];
        let mut bytes = Vec::new();
        for (i, (h, raw)) in list.iter().enumerate() {
            let (mut h, mut raw) = (*h, raw.clone());
            if i == victim {
                for _ in 0..1 + r.below(3) {
                    match r.below(2) {
                        0 => change_header(&mut r, &mut h),
                        _ => change_content(&mut r, &mut raw),
                    }
                }
            }
            bytes.extend(chunk(h, &raw));
        }
        let file = place.write("store/changed.hst", &bytes);
        let all = crate::commands(&file);
        // gdb takes long, and reads only what its server has read.
        let some = [r.below(all.len() - 1), r.below(all.len() - 1)];
        for c in some.map(|i| &all[i]) {
            let done = place.run(c);
            let what = format!("seed {seed:#x}, round {rounds}, {}", c.join(" "));
            assert!(done.kib <= MOST_KIB, "{what}: {done:?}");
            assert!(done.code().is_some_and(|c| c <= 3), "{what}: {done:?}");
            assert!(!done.output.contains("panicked"), "{what}: {done:?}");
        }
        let _ = std::fs::remove_file(place.path("exported"));
        let _ = std::fs::remove_file(place.path("store/changed.hsx"));
    }
}

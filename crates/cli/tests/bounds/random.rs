//! A recording of a program, changed at random, with checksums that fit.

use crate::watch::{ANSWERS, Home, MOST_KIB};
use hindsight_fuzz::Rng;
use hindsight_fuzz::made::{chunk, chunks};
use hindsight_fuzz::mutate::{change, odd};
use hindsight_trace::chunk::{ChunkHeader, Kind};
use std::time::{Duration, Instant};

/// Changes something of a header.
fn change_header(r: &mut Rng, h: &mut ChunkHeader) {
    let n = odd(r);
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
            h.kind = r.pick(&KINDS);
        }
    }
}

/// `HINDSIGHT_FUZZ_SECONDS` is how long this tries, and `HINDSIGHT_FUZZ_SEED` chooses the changes. With
/// `HINDSIGHT_FUZZ_COMMAND` only this command is run.
#[test]
fn changed_recordings_end_in_bounds() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |s| s.parse().expect(name));
    let seconds = number("HINDSIGHT_FUZZ_SECONDS", 5);
    let seed = number("HINDSIGHT_FUZZ_SEED", 0x005e_ed0f_bad1_dea5);
    let home = Home::new();
    let honest = home.path("honest.hst");
    let honest = honest.to_str().unwrap();
    let done = home.run(&["record", "-q", "-o", honest, "--", "/bin/true"]);
    assert_eq!(done.code(), Some(0), "{done:?}");
    // What is asked below has answers as long as nothing is changed.
    let done = home.run(&["serve", honest]);
    let mut lines = done.output.lines();
    assert_eq!(lines.find(|l| l.starts_with("{\"error\":")), None);
    let is_result = |l: &&str| l.starts_with("{\"id\":") && l.contains(",\"result\":");
    let results = done.output.lines().filter(is_result);
    let results = results.filter(|l| !l.contains(",\"items\":"));
    assert_eq!(results.count(), ANSWERS);
    let list = chunks(&std::fs::read(honest).unwrap());
    let mut r = Rng(seed);
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < 10 || begin.elapsed() < Duration::from_secs(seconds) {
        rounds += 1;
        // Changes in the content of a library show nothing.
        let others: Vec<usize> = (0..list.len())
            .filter(|i| list[*i].0.kind != Kind::Piece)
            .collect();
        let victim = r.pick(&others);
        let mut bytes = Vec::new();
        for (i, (h, raw)) in list.iter().enumerate() {
            let (mut h, mut raw) = (*h, raw.clone());
            if i == victim {
                for _ in 0..1 + r.below(3) {
                    match r.below(2) {
                        0 => change_header(&mut r, &mut h),
                        _ => change(&mut r, &mut raw),
                    }
                }
            }
            bytes.extend(chunk(h, &raw));
        }
        let file = home.write("store/changed.hst", &bytes);
        let all = crate::commands(&file);
        let only = std::env::var("HINDSIGHT_FUZZ_COMMAND").ok();
        let one = only.map(|name| all.iter().find(|c| c[0] == name).expect("a command"));
        // gdb takes long, and reads only what its server has read.
        let some = [0; 2].map(|_| r.below(all.len() as u64 - 1) as usize);
        let some = some.map(|i| &all[i]);
        let some = one.map_or(some.to_vec(), |c| vec![c]);
        for c in some {
            let done = home.run(c);
            let what = format!("seed {seed:#x}, round {rounds}, {}", c.join(" "));
            assert!(done.kib <= MOST_KIB, "{what}: {done:?}");
            assert!(done.code().is_some_and(|c| c <= 5), "{what}: {done:?}");
            assert!(!done.output.contains("panicked"), "{what}: {done:?}");
        }
        let _ = std::fs::remove_file(home.path("exported"));
        let _ = std::fs::remove_file(home.path("store/changed.hsx"));
    }
}

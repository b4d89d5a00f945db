//! What a ring removes from an image's code never changes what a replay sees of it.

use hindsight_replay::Code;
use hindsight_trace::ring::prune::{Fate, Said, Times, code, mappings};
use proptest::prelude::*;

const START: u64 = 0x1fc0;
const SPAN: u64 = 128;

/// Pieces of code around a page boundary, in the order in which they came. Code that differs begins an epoch.
fn pieces() -> impl Strategy<Value = Vec<(u64, u64, Vec<u8>)>> {
    let piece = (0..3u64, 0..SPAN, 1..40usize, 0..4u8);
    prop::collection::vec(piece, 1..60).prop_map(|list| {
        let (mut epoch, mut content) = (0, 0);
        list.into_iter()
            .map(|(step, at, len, byte)| {
                epoch += step;
                content = if step > 0 { byte } else { content };
                (epoch, START + at, vec![content; len])
            })
            .collect()
    })
}

fn read(pieces: &[&(u64, u64, Vec<u8>)], epoch: u64) -> Vec<Option<u8>> {
    let mut list: Vec<_> = pieces.iter().map(|(e, a, b)| (*e, *a, &b[..])).collect();
    let code = Code::new(&mut list).unwrap();
    let one = |addr| {
        let mut b = [0];
        (code.fetch(addr, epoch, &mut b) == 1).then_some(b[0])
    };
    (START..START + SPAN + 40).map(one).collect()
}

fn times(list: &[(u64, u64)]) -> Times {
    let mut times = Times::default();
    list.iter()
        .for_each(|(from, len)| times.add(*from, from + len));
    times
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn code_at_a_needed_epoch_stays(
        all in pieces(),
        needed in prop::collection::vec((0..60u64, 0..4u64), 0..4),
    ) {
        let said: Vec<_> = all
            .iter()
            .map(|(e, a, b)| Said { addr: *a, len: b.len() as u64, from: (*e, *e) })
            .collect();
        let fates = code(&said, &times(&needed));
        let kept: Vec<_> = all.iter().zip(&fates).filter(|(_, f)| **f != Fate::Gone).collect();
        let kept: Vec<_> = kept.into_iter().map(|(p, _)| p).collect();
        let all: Vec<_> = all.iter().collect();
        let latest = all.last().map_or(0, |p| p.0);
        for epoch in needed.iter().flat_map(|(from, len)| *from..=from + len).chain([latest]) {
            prop_assert_eq!(read(&all, epoch), read(&kept, epoch), "epoch {}", epoch);
        }
        // Pruning is worth something: nothing is left that no needed epoch uses.
        let now = |e| all.iter().rev().find(|p| p.1 <= e && e < p.1 + p.2.len() as u64);
        if needed.is_empty() {
            let used: std::collections::HashSet<_> =
                (START..START + SPAN + 40).filter_map(now).map(|p| *p as *const _).collect();
            prop_assert_eq!(kept.len(), used.len());
        }
    }

    #[test]
    fn mappings_at_a_needed_time_stay(
        list in prop::collection::vec((0..16u64, 1..8u64, any::<bool>(), 0..3u64, 0..3u64), 1..60),
        needed in prop::collection::vec((0..90u64, 0..4u64), 0..4),
    ) {
        // The time of each entry lies between two times, in ascending order.
        let mut time = 0;
        let all: Vec<_> = list
            .iter()
            .map(|(addr, len, maps, early, late)| {
                let from = (time, time + early + late);
                let exact = time + early;
                time += early + late;
                (Said { addr: *addr, len: *len, from }, *maps, exact)
            })
            .collect();
        let said: Vec<_> = all.iter().map(|(s, maps, _)| (*s, *maps)).collect();
        let fates = mappings(&said, &times(&needed));
        // The entry that maps each address after all entries up to a time.
        let at = |time: u64, kept: bool| -> Vec<Option<usize>> {
            let mut there = vec![None; 32];
            for (i, (s, maps, exact)) in all.iter().enumerate() {
                if *exact <= time && (!kept || fates[i] != Fate::Gone) {
                    (s.addr..s.addr + s.len).for_each(|a| there[a as usize] = maps.then_some(i));
                }
            }
            there
        };
        for t in needed.iter().flat_map(|(from, len)| *from..=from + len).chain([u64::MAX]) {
            prop_assert_eq!(at(t, false), at(t, true), "time {}", t);
        }
    }
}

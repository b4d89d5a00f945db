//! Several generations say the same of pages as a single one.

use super::*;
use crate::index::by_page::Generating;
use crate::index::draft::{Draft, Interval};
use crate::index::history::History;
use std::collections::BTreeSet;

#[test]
fn generations_say_the_same() {
    let range = PartRange {
        thread: ThreadId(3),
        chunk: 0,
        until: 1,
        stepped: false,
        from: 100,
        to: 100 + 1000 * 90,
        last: true,
        level: crate::index::Level::Only,
    };
    let mut draft = Draft {
        from: range.from,
        to: range.to,
        intervals: Vec::new(),
        generations: Default::default(),
    };
    let mut seed = 7u32;
    let mut random = |n: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % n
    };
    let mut generating = Generating::default();
    for i in 0..90u64 {
        let pages: BTreeSet<u32> = (0..80).map(|_| random(600)).collect();
        let touched = |page: u32| {
            let mut words = [[0; 2]; 64];
            (0..40).for_each(|_| words[random(64) as usize] = [random(256) as u8, 1]);
            PageAccess::new(page, &words)
        };
        draft.intervals.push(Interval {
            from: range.from + 1000 * i,
            to: range.from + 1000 * (i + 1),
            frame: Stored::Memory(i.to_le_bytes()[..].into()),
            history: pages.into_iter().map(touched).collect::<History>().into(),
            summary: Stored::Memory(Vec::new().into()),
        });
        let all = draft.intervals.len();
        let mut histories = draft.intervals.iter().map(|i| i.history.clone());
        generating
            .add(&mut histories, all, all as f64 / 90.0)
            .unwrap();
    }
    let body = |draft: &Draft| {
        let part = draft.encode().unwrap();
        let (bytes, len) = in_memory(&part).unwrap();
        Body::open(range, &part.0, bytes, len).unwrap()
    };
    let one = body(&draft);
    draft.generations = generating.finish().unwrap();
    assert!(draft.generations.all.len() > 1, "several generations");
    let several = body(&draft);
    assert_eq!(one.generations.len(), 1);
    assert_eq!(several.generations.len(), draft.generations.all.len() + 1);
    let past = |b: &Body, page| b.past(page, &|n| b.unpack_pages(n).map(Arc::new)).unwrap();
    let all = (0..600).map(|p| past(&one, p).len()).sum::<usize>();
    assert!(all > 6000, "{all}");
    for page in 0..602 {
        assert_eq!(past(&one, page), past(&several, page), "{page}");
    }
}

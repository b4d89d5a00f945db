//! Joins two intervals where something else than the thread changed memory in between.

use super::codec::{LINE, bits};
use super::history::History;
use super::summary::IntervalSummary;
use super::summary::covered;

/// Lines of a page that differ from what the first interval left: page, mask of lines, differences.
pub type Given = (u32, u64, Vec<u8>);

/// For lines that both intervals accessed: how the second one's first content differs from the first one's last.
/// `changes` are the stretches, by address and length, that something else changed in the second interval before the
/// thread accessed them there. The steps say what the thread did. Nothing else says what was changed in between.
/// `None`: the data is damaged.
pub fn between(
    [first, second]: [&History; 2],
    [left, found]: [&IntervalSummary; 2],
    changes: &[(u64, u64)],
) -> Option<Vec<Given>> {
    let mut out = Vec::new();
    for t in first.iter() {
        let Some(later) = second.touched(t.page) else {
            continue;
        };
        let (mut new, mut differences) = (0, Vec::new());
        for i in bits(t.any() & later.any()) {
            let changed = |c: &(u64, u64)| covered(t.page, i, c.0, c.1) != 0;
            if !changes.iter().any(changed) {
                continue;
            }
            let (was, is) = (left.line(t.page, i)?, found.first(t.page, i)?);
            if was != is {
                new |= 1 << i;
                let difference: [u8; LINE] = std::array::from_fn(|b| was[b] ^ is[b]);
                differences.extend_from_slice(&difference);
            }
        }
        if new != 0 {
            out.push((t.page, new, differences));
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::draft::Interval;
    use super::super::frame::IndexFrame;
    use super::super::maker::Accesses;
    use super::super::maker::Maker;
    use super::super::{codec::LEVEL_STEPS, page_access::PageAccess};
    use super::*;
    use hindsight_isa::{CpuState, VecState};
    use hindsight_replay::{Gap, State};

    /// An interval that begins at `from` and touches the first two lines of page 9.
    fn interval(from: u64, begin: [u8; 2], end: [u8; 2]) -> Interval {
        let state = State {
            position: from,
            gap: Gap::Outside,
            epoch: 0,
            cpu: CpuState::default(),
            vec: VecState::default(),
        };
        let (mut mask, mut bodies) = (0, Vec::new());
        let (mut new, mut differences) = (0, Vec::new());
        for i in 0..2 {
            if begin[i] != 0 {
                mask |= 1 << i;
                bodies.extend_from_slice(&[begin[i]; LINE]);
            }
            if begin[i] != end[i] {
                new |= 1 << i;
                differences.extend_from_slice(&[begin[i] ^ end[i]; LINE]);
            }
        }
        let mut m = Maker::default();
        m.stepped = true;
        m.step(from, None);
        let its = Accesses {
            any: 3,
            bytes: &[0, 1].map(|i| match begin[i] == end[i] {
                true => [u64::MAX, 0],
                false => [0, u64::MAX],
            }),
        };
        m.differ(9, its, new, &differences);
        let mut words = [[0; 2]; 64];
        words[..2].fill([0xff; 2]);
        Interval {
            from,
            to: from + 10,
            frame: IndexFrame::made(&state, &[(9, mask)], &bodies, LEVEL_STEPS).unwrap(),
            history: [PageAccess::new(9, &words)]
                .into_iter()
                .collect::<History>()
                .into(),
            summary: m.pack(LEVEL_STEPS).unwrap(),
        }
    }

    /// The kernel wrote in the second interval before the thread read. No step has that.
    #[test]
    fn what_was_changed_between_two_intervals_is_in_the_one_that_they_become() {
        let (a, b) = (interval(0, [0, 5], [7, 6]), interval(10, [1, 6], [1, 8]));
        for (changes, want) in [(vec![(9 * 4096, 16)], [1, 8]), (vec![], [7, 8])] {
            let both = a.join(&b, &changes, true, None).unwrap();
            let summary = both.open().unwrap().1;
            assert_eq!(summary.steps.len(), 2);
            assert_eq!([0, 1].map(|i| summary.first(9, i).unwrap()[0]), [0, 5]);
            let held = [0, 1].map(|i| summary.line(9, i).unwrap());
            assert_eq!(held, want.map(|b| [b; LINE]), "{changes:?}");
            // The steps still say which bytes they accessed.
            for (step, line, wrote) in [(0, 0, true), (0, 1, true), (1, 0, false), (1, 1, true)] {
                let at = (9 * 4096 + line * LINE) as u64;
                assert_eq!(
                    [false, true].map(|reads| summary.touches(step, at, 8, reads)),
                    [Some(wrote), Some(true)],
                    "{step} {line}"
                );
            }
        }
    }
}

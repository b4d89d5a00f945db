//! What memory holds at the beginning of a step.

use super::super::codec::{LINE, PAGE, bits};
use super::super::pieces::Opened;
use super::{Changed, IntervalSummary};
use hindsight_replay::Lines as Content;

/// What is unpacked of an interval: lines of its frame, and differences.
#[derive(Default)]
pub struct OpenedSummary {
    framed: Opened,
    differences: Opened,
}

impl OpenedSummary {
    /// Prepares it for another interval.
    pub fn clear(&mut self) {
        self.framed.clear();
        self.differences.clear();
    }
}

/// What is needed to know a page at the beginning of a step.
struct Needed<'a> {
    page: u32,
    /// Mask of the lines that are needed.
    wanted: u64,
    /// Mask of the lines that the frame has, and the number of lines that it has in earlier pages.
    framed: u64,
    at: usize,
    /// How earlier steps changed it.
    changed: Vec<&'a Changed>,
}

impl IntervalSummary {
    /// What the window must hold at the beginning of a step: the lines that the step accesses.
    ///
    /// - `since: None`: all of them, except lines of zeros.
    /// - `since`: the number of an earlier step. Only lines that no step from that one on accessed. Lines of zeros are
    ///   there too.
    /// - `opened`: what is unpacked of this interval.
    ///
    /// The pages of the answer are all pages that the step accesses. `None`: the data is damaged.
    pub fn content(
        &self,
        step: usize,
        since: Option<usize>,
        opened: &mut OpenedSummary,
    ) -> Option<Content> {
        let all = self.needed(step, since)?;
        let count = |mask: u64| mask.count_ones() as usize * LINE;
        let wanted = || all.iter().filter(|n| n.wanted != 0);
        let framed = wanted().map(|n| (n.at * LINE, count(n.framed)));
        self.frame.lines.open(&mut opened.framed, framed)?;
        let changed = wanted().flat_map(|n| n.changed.iter().filter(|o| o.new & n.wanted != 0));
        let changed = changed.map(|o| (o.before * LINE, count(o.new)));
        self.lines.open(&mut opened.differences, changed)?;
        let (mut bytes, mut now) = (Vec::new(), [0; PAGE]);
        for n in wanted() {
            let lines = (self.frame.lines).some(&opened.framed, n.at * LINE, count(n.framed))?;
            let mut lines = lines.as_chunks::<LINE>().0.iter();
            for i in bits(n.wanted | n.framed) {
                let line = if n.framed & (1 << i) != 0 {
                    lines.next()
                } else {
                    None
                };
                if n.wanted & (1 << i) != 0 {
                    now[i * LINE..(i + 1) * LINE].copy_from_slice(line.unwrap_or(&[0; LINE]));
                }
            }
            for o in n.changed.iter().filter(|o| o.new & n.wanted != 0) {
                let from = (self.lines).some(&opened.differences, o.before * LINE, count(o.new))?;
                for (i, d) in bits(o.new).zip(from.as_chunks::<LINE>().0) {
                    if n.wanted & (1 << i) != 0 {
                        let to = &mut now[i * LINE..(i + 1) * LINE];
                        to.iter_mut().zip(d).for_each(|(b, d)| *b ^= d);
                    }
                }
            }
            for i in bits(n.wanted) {
                bytes.extend_from_slice(&now[i * LINE..(i + 1) * LINE]);
            }
        }
        let pages = all.iter().map(|n| (n.page, n.wanted)).collect();
        Content::new(pages, bytes)
    }

    /// What [`IntervalSummary::content`] needs of each page that the step accesses.
    fn needed(&self, step: usize, since: Option<usize>) -> Option<Vec<Needed<'_>>> {
        let its = &self.steps.get(step)?.pages;
        let mut before: Vec<&[Changed]> = self.steps[..step].iter().map(|s| &s.pages[..]).collect();
        let mut frame = &self.frame.pages[..];
        let mut all = Vec::with_capacity(its.len());
        for c in its {
            let (mut have, mut new, mut changed) = (0, 0, Vec::new());
            for (n, r) in before.iter_mut().enumerate() {
                let i = r.iter().take_while(|o| o.page < c.page).count();
                *r = &r[i..];
                let Some(other) = r.first().filter(|o| o.page == c.page) else {
                    continue;
                };
                if since.is_some_and(|since| since <= n) {
                    have |= other.any;
                }
                new |= other.new;
                changed.push(other);
            }
            let i = frame.iter().take_while(|f| f.0 < c.page).count();
            frame = &frame[i..];
            let framed = frame.first().filter(|f| f.0 == c.page);
            let (framed, at) = framed.map_or((0, 0), |f| (f.1, f.2));
            all.push(Needed {
                page: c.page,
                wanted: match since {
                    Some(_) => c.any & !have,
                    None => c.any & (framed | new),
                },
                framed,
                at,
                changed,
            });
        }
        Some(all)
    }
}

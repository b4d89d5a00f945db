//! What memory holds at the borders of coarse intervals. A coarse part says of each interval how memory changed in it.
//! These changes lead from one border to the next one, and back.

use super::Engine;
use crate::base::sync::lock;
use crate::index::{self, IndexPart, IntervalSummary, LINE, PAGE, Page, PartRange, Start};
use crate::{Error, Result, ThreadId};
use hindsight_replay::{Lines, State};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Pages of the window, by number.
type Pages = BTreeMap<u32, Box<Page>>;

/// What memory holds at a border.
#[derive(Clone)]
pub struct AtBorder {
    /// The part: its thread, and where its intervals begin.
    thread: ThreadId,
    borders: Vec<u64>,
    /// The number of the interval that begins there.
    border: usize,
    pages: Pages,
}

/// Other borders are remembered as long as all of them together have at most `MOST` bytes and are `MANY`. Several players, each at
/// another place, then do not take the content from each other.
const MOST: usize = 256 << 20;
const MANY: usize = 16;

impl AtBorder {
    fn is_of(&self, part: &IndexPart) -> bool {
        self.thread == part.thread && self.borders == part.borders
    }

    fn size(&self) -> usize {
        PAGE * self.pages.len()
    }
}

impl Engine {
    /// The state at the beginning of an interval, and what the window then must hold.
    pub fn frame_of(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
        spare: Vec<u8>,
    ) -> Result<(State, Lines)> {
        let frame = part.frame(self, interval)?;
        if part.range.is_coarse() {
            drop(spare);
            let (state, accessed) = frame.open().ok_or_else(|| self.bad_frame())?;
            let accessed = accessed.pages.iter().map(|p| p.0);
            let content = |pages: &Pages| lines_of(pages, accessed);
            return Ok((state, self.at_border(part, interval..=interval, content)?));
        }
        frame.load(spare).ok_or_else(|| self.bad_frame())
    }

    /// The state at the beginning of an interval of a coarse part, and all that memory holds there.
    pub fn whole_frame(
        self: &Arc<Self>,
        part: &IndexPart,
        interval: usize,
    ) -> Result<(State, Lines)> {
        let frame = part.frame(self, interval)?;
        let (state, _) = frame.open().ok_or_else(|| self.bad_frame())?;
        let content = |pages: &Pages| lines_of(pages, pages.keys().copied());
        Ok((state, self.at_border(part, interval..=interval, content)?))
    }

    /// What a line holds at one of these borders of a coarse part. It must hold the same at all of them.
    pub fn line_at(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
        page: u32,
        line: usize,
    ) -> Result<[u8; LINE]> {
        self.at_border(part, borders, |pages| {
            let mut out = [0; LINE];
            if let Some(p) = pages.get(&page) {
                out.copy_from_slice(&p[line * LINE..(line + 1) * LINE]);
            }
            out
        })
    }

    /// What a replay of a range begins with. `None`: with the key frame of the recording.
    pub(super) fn start(
        self: &Arc<Self>,
        range: PartRange,
        progress: &index::Progress,
    ) -> Result<Option<Start>> {
        let index::Level::Fine { of } = range.level else {
            return Ok(None);
        };
        if of == range.from {
            return Ok(None);
        }
        let all = self.part_ranges_of(range.thread);
        let coarse = all.iter().find(|p| p.from == of);
        let coarse = *coarse.ok_or(Error::NoThread(range.thread))?;
        let coarse = match self.part_if_built(coarse) {
            Some(c) => c,
            None => self.build(coarse, progress)?,
        };
        let i = coarse.interval(range.from);
        if coarse.bounds(i) != (range.from, range.to) {
            return Err(Error::Index {
                path: self.sidecar.path.display().to_string(),
                what: "its coarse level was made anew while it was in use; ask again".into(),
            });
        }
        let (state, content) = self.frame_of(&coarse, i, Vec::new())?;
        Ok(Some(Start { state, content }))
    }

    /// Asks about memory at the one of these borders that is the nearest to the last question.
    fn at_border<T>(
        self: &Arc<Self>,
        part: &IndexPart,
        borders: RangeInclusive<usize>,
        ask: impl FnOnce(&Pages) -> T,
    ) -> Result<T> {
        let mut held = lock(&self.at_border);
        let size: usize = held.iter().map(AtBorder::size).sum();
        let target = |h: &AtBorder| h.border.clamp(*borders.start(), *borders.end());
        let far = |h: &AtBorder| target(h).abs_diff(h.border);
        let nearest = (0..held.len()).filter(|i| held[*i].is_of(part));
        let mut now = match nearest.min_by_key(|i| far(&held[*i])) {
            // The one used last is the last one.
            Some(i) if far(&held[i]) > 1 && held.len() < MANY && size + held[i].size() <= MOST => {
                held[i].clone()
            }
            Some(i) => held.remove(i),
            None => {
                if size > MOST {
                    held.clear();
                }
                AtBorder {
                    thread: part.thread,
                    borders: part.borders.clone(),
                    border: 0,
                    pages: self.begins_with(part.range)?,
                }
            }
        };
        let to = target(&now);
        self.lead(part, &mut now, to)?;
        let answer = ask(&now.pages);
        held.push(now);
        while held.len() > 1 && held.iter().map(AtBorder::size).sum::<usize>() > MOST {
            held.remove(0);
        }
        Ok(answer)
    }

    /// Leads to another border. One thread unpacks the changes, the other one makes them.
    fn lead(self: &Arc<Self>, part: &IndexPart, now: &mut AtBorder, to: usize) -> Result<()> {
        let back = to < now.border;
        let mut on_the_way: Vec<usize> = (now.border.min(to)..now.border.max(to)).collect();
        if back {
            on_the_way.reverse();
        }
        let unpack = |interval: usize| -> Result<_> {
            let change = part.change(self, interval)?;
            let differences = change.differences().ok_or_else(|| self.bad_frame())?;
            Ok((change, differences))
        };
        let mut make = |interval: usize, (change, differences): (IntervalSummary, Vec<u8>)| {
            let changed = change.toggle(&differences, &mut now.pages);
            changed.ok_or_else(|| self.bad_frame())?;
            now.border = interval + !back as usize;
            Ok(())
        };
        match on_the_way[..] {
            [] => return Ok(()),
            [one] => return make(one, unpack(one)?),
            _ => {}
        }
        std::thread::scope(|s| {
            let (send, receive) = sync_channel(1);
            s.spawn(move || {
                for i in on_the_way {
                    // When the other thread fails, nobody receives any more.
                    if send.send((i, unpack(i))).is_err() {
                        break;
                    }
                }
            });
            receive.into_iter().try_for_each(|(i, u)| make(i, u?))
        })
    }

    /// What changes in a part are relative to.
    fn begins_with(&self, range: PartRange) -> Result<Pages> {
        let mut pages = Pages::new();
        if self.scan(range.thread)?.is_based(range.from) {
            let start = index::start_of(&self.recording, range)?;
            let mut put = |page, bytes: &Page| {
                pages.insert(page, Box::new(*bytes));
            };
            start.content.each(&mut put);
        }
        Ok(pages)
    }
}

/// These pages, with their lines that are not zero.
fn lines_of(pages: &Pages, accessed: impl Iterator<Item = u32>) -> Lines {
    let (mut masks, mut bytes) = (Vec::new(), Vec::new());
    for page in accessed {
        let mut mask = 0u64;
        for (i, line) in
            (pages.get(&page).iter()).flat_map(|held| held.as_chunks::<LINE>().0.iter().enumerate())
        {
            if *line != [0; LINE] {
                mask |= 1 << i;
                bytes.extend_from_slice(line);
            }
        }
        masks.push((page, mask));
    }
    Lines::new(masks, bytes).unwrap_or_default()
}

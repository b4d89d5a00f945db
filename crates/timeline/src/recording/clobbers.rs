//! What may have changed memory where the recording does not say which bytes. Three things may: the kernel in system
//! calls, threads where they are not recorded, and new mappings.
//!
//! Within a thread, the replay itself forgets what was known at the right place. This module is about what other
//! threads knew, and about what happened at the same time.

use super::Recording;
use crate::base::sync::lock;
use crate::scan::{Clobber, FORKS, Instant, Raw, Scan, When};
use crate::{Result, Segment, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The list is divided by pages of `PAGE` bytes. What covers `LARGE` pages or more is in no page's list.
const PAGE: u64 = 4096;
const LARGE: u64 = 16;

/// What a thread did in the stretch that the recording no longer has. It may have written anything since another thread
/// created it.
fn unkept(
    scans: &BTreeMap<ThreadId, Scan>,
    of: &[ThreadId],
    thread: ThreadId,
    tid: i32,
    scan: &Scan,
) -> Clobber {
    let closes = scan.numbers.first().map(|n| n.0);
    let made = of.iter().filter_map(|t| {
        let maker = scans.get(t)?;
        let calls = maker.events.iter().filter_map(|(count, e)| match e {
            Raw::Syscall {
                number,
                result: Some(r),
                ..
            } if FORKS.contains(number) && *r as i32 == tid => Some(*count),
            _ => None,
        });
        calls.map(|count| maker.segment(*t, count).opens).max()
    });
    Clobber {
        thread,
        from: 0,
        endless: false,
        opens: made
            .filter(|n| closes.is_none_or(|c| *n < c))
            .max()
            .unwrap_or(0),
        closes,
        address: 0,
        len: u64::MAX,
    }
}

/// The unrecorded changes in an image.
#[derive(Default, Debug)]
pub struct Clobbers {
    list: Vec<Clobber>,
    /// Indices into the list, by page.
    pages: HashMap<u64, Vec<u32>>,
    large: Vec<u32>,
    /// What threads may have done in stretches that the recording no longer has.
    unkept: Vec<Clobber>,
    /// The stacks of threads, if there are stretches that the recording no longer has. Only a stack's own thread is
    /// assumed to have written there. Otherwise it would not be known what idle threads wait for.
    stacks: Vec<(ThreadId, Range<u64>)>,
    /// Threads that ended by themselves: their ids, and their last order numbers.
    gone: Vec<(i32, ThreadId, u64)>,
}

impl Recording {
    /// What may have changed the memory of an image without being recorded.
    pub fn clobbers(&self, image: u32) -> Result<Arc<Clobbers>> {
        if let Some(d) = lock(&self.clobbers).get(&image) {
            return Ok(Arc::clone(d));
        }
        let (scans, of) = (self.scans()?, self.threads_of(image));
        let tid = |t: ThreadId| self.trace.stream_info(t.0).map_or(0, |i| i.tid);
        let mut new = Clobbers::new(scans, &of, &tid);
        for t in of.iter().filter(|_| !new.unkept.is_empty()) {
            let Some(rsp) = scans.get(t).and_then(|s| s.stack) else {
                continue;
            };
            let mapped = self.mappings(image, self.thread(*t)?.first)?;
            let Some(i) = mapped.iter().position(|m| m.start <= rsp && rsp < m.end) else {
                continue;
            };
            // The kernel's stack grows downwards, at most to the next mapping.
            let from = match (&mapped[i].path[..], i.checked_sub(1)) {
                ("[stack]", below) => below.map_or(0, |b| mapped[b].end),
                _ => mapped[i].start,
            };
            new.stacks.push((*t, from..mapped[i].end));
        }
        let new = Arc::new(new);
        lock(&self.clobbers).insert(image, Arc::clone(&new));
        Ok(new)
    }
}

impl Clobbers {
    /// Collects the changes of an image's threads, `of`. `tid` tells the id that a thread had.
    pub fn new(
        scans: &BTreeMap<ThreadId, Scan>,
        of: &[ThreadId],
        tid: &dyn Fn(ThreadId) -> i32,
    ) -> Clobbers {
        let mut out = Clobbers::default();
        for t in of {
            let Some(scan) = scans.get(t) else { continue };
            for d in scan.clobbers(*t) {
                out.add(d);
            }
            if scan.from > 0 {
                out.unkept.push(unkept(scans, of, *t, tid(*t), scan));
            }
            if let Some(crate::Ending::Exit(_)) = scan.ending {
                let number = scan.numbers.last().map_or(0, |n| n.0);
                out.gone.push((tid(*t), *t, number));
            }
        }
        out
    }

    fn add(&mut self, d: Clobber) {
        let i = self.list.len() as u32;
        let (first, last) = (d.address / PAGE, d.address.saturating_add(d.len - 1) / PAGE);
        match last - first {
            0..LARGE => {
                for page in first..=last {
                    self.pages.entry(page).or_default().push(i);
                }
            }
            _ => self.large.push(i),
        }
        self.list.push(d);
    }

    /// Whether something may have changed a byte between the access at `when` and `now`. `seen` is the segment of the
    /// access.
    pub fn may_have_changed(
        &self,
        address: u64,
        when: When,
        seen: &Segment,
        now: &Instant,
    ) -> bool {
        !self.parts((address, 1), when, seen, now).is_empty()
    }

    /// The same for a stretch, as an address and a length: the parts that something may have changed, as addresses, in
    /// their order.
    pub fn parts(
        &self,
        (address, len): (u64, u64),
        when: When,
        seen: &Segment,
        now: &Instant,
    ) -> Vec<Range<u64>> {
        let end = address.saturating_add(len);
        let counts = |d: &&Clobber| {
            let begun = match d.thread == now.home.0 {
                true => d.from < now.home.1,
                false => now.may_follow(d.thread, d.opens),
            };
            // Changes of the same thread have their places in its stream, and the replay knows of them.
            let over = match d.thread == when.thread {
                true => !d.endless,
                false => d.closes.is_some_and(|c| c <= seen.opens),
            };
            begun && !over
        };
        let inside = |d: &Clobber| {
            let part = d.address.max(address)..d.address.saturating_add(d.len).min(end);
            (part.start < part.end && counts(&d)).then_some(part)
        };
        let pages = address / PAGE..=end.saturating_sub(1) / PAGE;
        let small = pages.filter_map(|p| self.pages.get(&p)).flatten();
        let listed = small.chain(&self.large).map(|i| &self.list[*i as usize]);
        let mut out: Vec<Range<u64>> = listed.filter_map(inside).collect();
        let unkept = self.unkept.iter().filter_map(inside);
        out.extend(unkept.flat_map(|part| self.but_own_stacks(part, when.thread)));
        out.sort_unstable_by_key(|part| (part.start, part.end));
        // Many calls may have written to the same buffer.
        out.dedup_by(|next, part| {
            let meets = next.start <= part.end;
            part.end = if meets {
                part.end.max(next.end)
            } else {
                part.end
            };
            meets
        });
        out
    }

    /// What of some addresses is on no stack that only this thread can have changed.
    fn but_own_stacks(&self, part: Range<u64>, thread: ThreadId) -> Vec<Range<u64>> {
        let mut parts = vec![part];
        for (_, own) in self.stacks.iter().filter(|s| s.0 == thread) {
            let rest = |p: Range<u64>| [p.start..p.end.min(own.start), p.start.max(own.end)..p.end];
            parts = parts.into_iter().flat_map(rest).collect();
            parts.retain(|p| p.start < p.end);
        }
        parts
    }

    /// Whether anything but instructions may have changed a byte by `now`.
    pub fn any(&self, address: u64, now: &Instant) -> bool {
        let nobody = When {
            thread: ThreadId(u32::MAX),
            from: 0,
            to: 0,
        };
        let before = Segment {
            thread: nobody.thread,
            opens: 0,
            closes: None,
            from: 0,
            to: 0,
            left_out: 0,
        };
        self.may_have_changed(address, nobody, &before, now)
    }

    /// Whether any thread ended by itself.
    pub fn has_dead(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether a word may be the id of a thread that has ended. The kernel clears words that hold such ids
    /// (`set_tid_address`, robust locks), and the recording does not say when. `known`: which bytes of the word are
    /// known.
    pub fn names_the_dead(&self, word: [u8; 4], known: [bool; 4], now: &Instant) -> bool {
        const ID: u32 = 0x3fff_ffff;
        self.gone.iter().any(|(tid, t, number)| {
            let id = (*tid as u32 & ID).to_le_bytes();
            let same = (0..4).all(|i| {
                let mask = ID.to_le_bytes()[i];
                !known[i] || (word[i] ^ id[i]) & mask == 0
            });
            same && *t != now.home.0 && known.contains(&true) && now.may_follow(*t, *number)
        })
    }
}

//! Records the bytes of executed code in the process stream, with a new epoch for each change.

use crate::memory::maps::regions;
use crate::stream::ring;
use crate::sys::{PROT_EXEC, PROT_READ};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use hashbrown::HashMap;
use hindsight_events::Event;
use xxhash_rust::xxh3::xxh3_64;

const PAGE: u64 = 4096;
const LINE: u64 = 64;

/// Hashes of a page's lines. They take less memory than the page.
type Lines = Box<[u32; (PAGE / LINE) as usize]>;

/// What the stream holds of one page.
enum Page {
    /// The whole page: its hash and those of its lines. `stale`: the mapping may have changed
    /// since.
    Whole {
        hash: u64,
        lines: Lines,
        stale: bool,
    },
    /// Single bytes of memory that the program may write.
    Bytes(Box<Bytes>),
}

struct Bytes {
    bytes: [u8; PAGE as usize],
    known: [u64; PAGE as usize / 64],
    /// Where a byte is not known, the stream may hold another value from when it had the whole
    /// page.
    outdated: bool,
}

/// What the process stream holds of the code.
pub struct Recorder {
    pages: HashMap<u64, Page, foldhash::fast::FixedState>,
    /// For each page that has changed: the last epoch with which it did.
    changed: HashMap<u64, u64, foldhash::fast::FixedState>,
    /// The present epoch.
    pub epoch: u64,
}

impl Recorder {
    /// The stream holds nothing.
    pub fn new() -> Recorder {
        Recorder {
            pages: HashMap::default(),
            changed: HashMap::default(),
            epoch: 0,
        }
    }

    /// Makes sure that the stream holds `src`, the code at `pc`. If that replaces other code, a new
    /// epoch begins. Then returns the range that is replaced. `writable`: the program may write a part of it,
    /// or of what follows. Each page decides for itself then. Otherwise a page before a writable one would be
    /// recorded as a whole for some blocks and byte by byte for others, with a new epoch each time.
    pub fn record(&mut self, pc: u64, src: &[u8], writable: bool) -> Option<Range<u64>> {
        let mut replaced: Option<Range<u64>> = None;
        let mut at = pc;
        let end = pc + src.len() as u64;
        while at < end {
            let stop = end.min((at & !(PAGE - 1)) + PAGE);
            let part = &src[(at - pc) as usize..(stop - pc) as usize];
            let before = self.epoch;
            let range = if writable && regions().is_writable(at) {
                self.bytes(at, part)
            } else {
                self.whole(at & !(PAGE - 1), part, at)
            };
            if self.epoch != before {
                self.changed.insert(at / PAGE, self.epoch);
            }
            if let Some(r) = range {
                let all = replaced.unwrap_or(r.clone());
                replaced = Some(all.start.min(r.start)..all.end.max(r.end));
            }
            at = stop;
        }
        replaced
    }

    /// The epoch that a thread must have announced before it runs the code in `range`: the last one
    /// with which one of its pages changed.
    pub fn since(&self, range: Range<u64>) -> u64 {
        let pages = range.start / PAGE..=(range.end - 1) / PAGE;
        let epochs = pages.filter_map(|p| self.changed.get(&p));
        epochs.max().copied().unwrap_or(0)
    }

    /// Whether no page has ever changed.
    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether the page at address `page`, which the program may not write, has content with the
    /// hash `wanted`. If so, the stream holds it after this.
    pub fn expect(&mut self, page: u64, wanted: u64) -> bool {
        match self.pages.get(&(page / PAGE)) {
            Some(Page::Whole {
                hash, stale: false, ..
            }) => return *hash == wanted,
            Some(_) => return false,
            None => {}
        }
        let mut bytes = [0; PAGE as usize];
        if crate::sys::guard::read(page, &mut bytes).is_err() || xxh3_64(&bytes) != wanted {
            return false;
        }
        self.pages.insert(page / PAGE, Page::whole(&bytes, wanted));
        ring::emit_process(&Event::Code {
            epoch: self.epoch,
            addr: page,
            bytes: &bytes,
        });
        true
    }

    /// Notes that the mapping of `addr..addr+len` has changed.
    pub fn forget(&mut self, addr: u64, len: u64) {
        let range = addr / PAGE..(addr + len).div_ceil(PAGE);
        for (p, page) in self.pages.iter_mut() {
            if range.contains(p)
                && let Page::Whole { stale, .. } = page
            {
                *stale = true;
            }
        }
    }

    fn whole(&mut self, page: u64, part: &[u8], at: u64) -> Option<Range<u64>> {
        if let Some(Page::Whole {
            lines,
            stale: false,
            ..
        }) = self.pages.get(&(page / PAGE))
            && are(lines, at, part)
        {
            return None;
        }
        let mut bytes = [0; PAGE as usize];
        if crate::sys::guard::read(page, &mut bytes).is_err() {
            // The page may be executed only, or lie half behind a file's end. What was translated
            // is all there is.
            return self.bytes(at, part);
        }
        // If the page is changing right now, what was translated counts.
        bytes[(at - page) as usize..][..part.len()].copy_from_slice(part);
        let hash = xxh3_64(&bytes);
        let before = self.pages.insert(page / PAGE, Page::whole(&bytes, hash));
        let replaced = match before {
            None => None,
            Some(Page::Whole { hash: old, .. }) if old == hash => return None,
            Some(_) => {
                self.epoch += 1;
                Some(page..page + PAGE)
            }
        };
        ring::emit_process(&Event::Code {
            epoch: self.epoch,
            addr: page,
            bytes: &bytes,
        });
        replaced
    }

    fn bytes(&mut self, at: u64, part: &[u8]) -> Option<Range<u64>> {
        let entry = self
            .pages
            .entry(at / PAGE)
            .or_insert_with(|| Page::Bytes(Bytes::unknown()));
        if let Page::Whole { .. } = entry {
            self.epoch += 1;
            let (bytes, replaced) = Bytes::of_page(at, part);
            let (addr, told) = match bytes.outdated {
                true => (at, part),
                false => (replaced.start, &bytes.bytes[..]),
            };
            ring::emit_process(&Event::Code {
                epoch: self.epoch,
                addr,
                bytes: told,
            });
            *entry = Page::Bytes(bytes);
            return Some(replaced);
        }
        let Page::Bytes(b) = entry else { return None };
        let off = (at % PAGE) as usize;
        let mut news = false;
        let mut conflict: Option<Range<u64>> = None;
        for (i, v) in part.iter().enumerate() {
            let o = off + i;
            let known = b.known[o / 64] & 1 << (o % 64) != 0;
            news |= !known;
            let differs = match known {
                true => b.bytes[o] != *v,
                false => b.outdated,
            };
            if differs {
                let here = at + i as u64;
                conflict = Some(conflict.map_or(here, |c| c.start)..here + 1);
            }
            b.known[o / 64] |= 1 << (o % 64);
            b.bytes[o] = *v;
        }
        if conflict.is_some() {
            self.epoch += 1;
        }
        if news || conflict.is_some() {
            ring::emit_process(&Event::Code {
                epoch: self.epoch,
                addr: at,
                bytes: part,
            });
        }
        conflict
    }
}

impl Page {
    fn whole(bytes: &[u8; PAGE as usize], hash: u64) -> Page {
        let mut lines = Box::new([0; (PAGE / LINE) as usize]);
        for (hash, line) in lines.iter_mut().zip(bytes.chunks(LINE as usize)) {
            *hash = of_line(line);
        }
        Page::Whole {
            hash,
            lines,
            stale: false,
        }
    }
}

fn of_line(line: &[u8]) -> u32 {
    xxh3_64(line) as u32
}

/// Whether `part`, the code at `at`, agrees with the hashes of its page's lines. Also memory that
/// the program may not write can change: it may be a file's, or be written through
/// `/proc/self/mem`.
fn are(lines: &Lines, at: u64, part: &[u8]) -> bool {
    let end = at + part.len() as u64;
    let (mut from, mut line) = (at & !(LINE - 1), [0; LINE as usize]);
    while from < end {
        if crate::sys::guard::read(from, &mut line).is_err() {
            return false;
        }
        let (a, b) = (at.max(from), end.min(from + LINE));
        line[(a - from) as usize..(b - from) as usize]
            .copy_from_slice(&part[(a - at) as usize..(b - at) as usize]);
        if of_line(&line) != lines[(from % PAGE / LINE) as usize] {
            return false;
        }
        from += LINE;
    }
    true
}

impl Bytes {
    fn unknown() -> Box<Bytes> {
        Box::new(Bytes {
            bytes: [0; PAGE as usize],
            known: [0; PAGE as usize / 64],
            outdated: false,
        })
    }

    /// For a page that the stream had as a whole, and of which `part`, at `at`, is executed after
    /// it became writable. Returns its bytes and its range.
    ///
    /// All of the page becomes known anew. Otherwise, code that is written elsewhere in it would
    /// not be seen to replace what the stream holds. Its epoch would be one that threads have
    /// announced already.
    fn of_page(at: u64, part: &[u8]) -> (Box<Bytes>, Range<u64>) {
        let page = at & !(PAGE - 1);
        let off = (at - page) as usize;
        let mut b = Bytes::unknown();
        b.outdated = crate::sys::guard::read(page, &mut b.bytes).is_err();
        if !b.outdated {
            b.known = [u64::MAX; PAGE as usize / 64];
        }
        // Another thread may be writing there. What was translated counts.
        b.bytes[off..off + part.len()].copy_from_slice(part);
        for o in off..off + part.len() {
            b.known[o / 64] |= 1 << (o % 64);
        }
        (b, page..page + PAGE)
    }
}

/// The hash of the content of the page at address `page`. `None` if it cannot be read.
pub fn hash(page: u64) -> Option<u64> {
    let mut bytes = [0; PAGE as usize];
    crate::sys::guard::read(page, &mut bytes).ok()?;
    Some(xxh3_64(&bytes))
}

/// Code at `pc` for the translator to look ahead. Adds the page to `pages`. Code that can change
/// without the recorder's knowledge is not looked at.
pub fn peek(pc: u64, pages: &mut Vec<u64>) -> &'static [u8] {
    let r = regions();
    match r.find(pc) {
        Some(m)
            if m.prot & (PROT_EXEC | PROT_READ) == PROT_EXEC | PROT_READ && !r.is_writable(pc) =>
        {
            pages.push(pc >> 12);
            // No further than the page: a mapped file may end before its mapping does.
            let end = m.end.min((pc & !4095) + 4096).min(pc + 64);
            // SAFETY: the list of mappings says that these bytes can be read, and that the program
            // may not write them. They may still change under the reader, through the file. The
            // reader takes any bytes.
            unsafe { core::slice::from_raw_parts(pc as *const u8, (end - pc) as usize) }
        }
        _ => &[],
    }
}

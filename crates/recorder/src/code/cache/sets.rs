//! Sets: all blocks of one file that an image of a program has executed, as one entry in the shared
//! cache. The next image of that program takes them all at once, with the jumps between them, when
//! it first comes to the file.
//!
//! - The first image of a program in a recording only says that it was there. So a program that is
//!   executed once costs nothing.
//! - The second one remembers which jumps it links, and leaves a set of each file when it ends.
//! - Later images take these sets.

use super::{Block, BlockId, Cache, Entry, MARGIN, SHARED, SIZE, base, key, memory, mend, mode};
use crate::code::{epochs, shared_translations};
use crate::memory::maps::{Region, regions};
use crate::stream::ring;
use crate::sys::{config, generation, guard, program};
use crate::thread::Thread;
use alloc::vec::Vec;
use hashbrown::HashMap;
use hindsight_events::shared_cache::kind;
use hindsight_translate::{FileTranslation, FileTranslationBuilder};
use linux_raw_sys::general::{PROT_EXEC, PROT_READ};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const PAGE: u64 = 4096;

/// Bytes. No more blocks are added to a larger set. What was executed first is in it.
const MOST: usize = 24 << 20;

/// A block is found by at least this many bytes of code (see [`shared_translations::key`]).
const SHORTEST: usize = 32;

/// What this image does with sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has executed nothing yet.
    Unknown,
    /// It takes sets, and leaves those that were missing.
    Takes,
    /// It neither takes nor leaves any.
    Nothing,
}

/// A mapping of code of a file.
#[derive(Clone, Copy)]
pub struct File {
    region: Region,
    /// The address of the file's first byte, or where it would be.
    origin: u64,
    plain: bool,
    /// The name of its set in the shared cache.
    name: u64,
}

/// The sets that concern this image.
pub struct Sets {
    role: Role,
    /// Mappings to which it has come: start, and whether by plain code.
    seen: Vec<(u64, bool)>,
    /// Files that had no set.
    missing: Vec<File>,
    /// Links that were made: cache offset of the displacement, and the block to which it leads.
    links: Vec<(u32, BlockId)>,
}

impl Sets {
    /// Nothing is executed yet.
    pub fn new() -> Sets {
        Sets {
            role: Role::Unknown,
            seen: Vec::new(),
            missing: Vec::new(),
            links: Vec::new(),
        }
    }

    /// From here on the image neither takes nor leaves sets, for one of these reasons:
    ///
    /// - Its code is not only what files hold.
    /// - Its code is not all in one chunk.
    /// - It is not the image that was executed.
    pub fn end(&mut self) {
        *self = Sets::new();
        self.role = Role::Nothing;
    }

    /// The file of this mapping, if the image comes to it for the first time and takes sets. The
    /// mapping cannot be written.
    pub fn first_look(&mut self, region: &Region, plain: bool) -> Option<File> {
        if self.role == Role::Nothing || self.seen.contains(&(region.start, plain)) {
            return None;
        }
        let path: Vec<u8> = {
            let all = regions();
            let now = all.find(region.start).filter(|r| *r == region)?;
            all.path(now).into()
        };
        if !path.starts_with(b"/") {
            return None;
        }
        let program = program::loaded();
        if self.role == Role::Unknown {
            self.role = role(xxh3_64_with_seed(&program, 0));
        }
        self.seen.push((region.start, plain));
        let seed = xxh3_64_with_seed(&program, 1 + plain as u64);
        (self.role == Role::Takes).then_some(File {
            region: *region,
            origin: region.start.checked_sub(region.offset)?,
            plain,
            name: xxh3_64_with_seed(&path, seed),
        })
    }

    /// Notes a jump that was linked.
    pub(super) fn linked(&mut self, at: u32, to: BlockId) {
        if !self.missing.is_empty() {
            self.links.push((at, to));
        }
    }
}

/// What an image of the program with this name does with sets.
fn role(program: u64) -> Role {
    let c = config::get();
    // Single blocks and jumps matter in these cases.
    if c.chaos != 0 || c.select[0] != 0 || c.fill_fresh != 0 || c.attached != 0 {
        return Role::Nothing;
    }
    let Some(shared) = ring::shared_cache() else {
        return Role::Nothing;
    };
    if shared.find(kind::MET, program).next().is_some() {
        return Role::Takes;
    }
    shared.put(kind::MET, program, &[]);
    Role::Nothing
}

/// The name of a set. There may be two, of blocks with and without the order of atomic operations.
fn name(file: &File, ordered: bool) -> u64 {
    file.name.wrapping_add(ordered as u64)
}

impl Cache {
    /// Takes the set of a file, if there is one that serves.
    pub(super) fn take_set(&mut self, t: &Thread, file: &File) -> bool {
        let Some(shared) = ring::shared_cache() else {
            return false;
        };
        let name = name(file, self.translator.ordered);
        let mut found = shared.find(kind::SET, name).peekable();
        if found.peek().is_none() {
            self.sets.missing.push(*file);
            return false;
        }
        found.any(|f| {
            FileTranslation::read(f.content)
                .is_some_and(|set| self.install(t, file, &set).is_some())
        })
    }

    fn install(&mut self, t: &Thread, file: &File, set: &FileTranslation) -> Option<()> {
        let (region, origin) = (&file.region, file.origin);
        let within = |at: u64, len: u64| region.start <= at && at + len <= region.end;
        let mut members = set.members();
        if !set.serves(origin)
            || region.prot & (PROT_EXEC | PROT_READ) != PROT_EXEC | PROT_READ
            || !self.code.is_unchanged()
            || !members.all(|m| within(origin + m.pc as u64, m.src_len as u64))
        {
            return None;
        }
        let unrecorded = t.is_unrecorded();
        for (number, hash, _) in set.pages() {
            let page = origin + number as u64 * PAGE;
            let same = match unrecorded {
                _ if !within(page, PAGE) => false,
                true => epochs::hash(page) == Some(hash),
                false => self.code.expect(page, hash),
            };
            if !same {
                return None;
            }
        }
        let s = &mut self.chunks[self.current];
        let (hot_len, cold_len) = set.sizes();
        if s.hot + (hot_len + cold_len) as u64 + MARGIN > s.cold {
            return None;
        }
        s.prepare();
        let (hot, cold) = s.take(hot_len as u64, cold_len as u64);
        // SAFETY: `take` gave out both ranges, which lie in the chunk between its two ends, where
        // nothing is. They do not overlap.
        let [to_hot, to_cold] = [(hot, hot_len), (cold, cold_len)].map(|(at, len)| unsafe {
            core::slice::from_raw_parts_mut(memory::writable(at, len as u64), len)
        });
        set.relocate(origin, (to_hot, hot), (to_cold, cold), base())?;
        let first = s.blocks.len() as u32;
        let mut bytes = s.bytes.len() as u32;
        mend::make_room(&mut s.bytes, set.bytes.len());
        s.bytes.extend_from_slice(set.bytes);
        mend::make_room(&mut s.blocks, set.count());
        let id = |number: u32| BlockId::new(self.current, (first + number) as usize);
        for (number, m) in (0..).zip(set.members()) {
            let pc = origin + m.pc as u64;
            s.blocks.push(Block {
                pc,
                src_len: m.src_len as u32,
                hot: (hot - base()) as u32 + m.hot,
                hot_len: m.hot_len,
                self_check: false,
                plain: file.plain,
                ordered: self.translator.ordered,
                fuse: self.translator.fuse,
                live: true,
                since: 0,
                bytes,
                peeked: m.peeked,
            });
            bytes += m.src_len as u32 + m.peeked as u32;
            self.translated += m.instrs as u64;
            let entry = Entry {
                id: id(number),
                hot: (hot - base()) as u32 + m.hot,
                takes_flags: m.takes_flags,
            };
            SHARED.blocks.set(key(pc, file.plain), entry);
        }
        log!(
            Debug,
            "takes a set of {} blocks for the file at {origin:#x}",
            set.count()
        );
        for (number, _, users) in set.pages() {
            let blocks = self.by_page.entry(origin / PAGE + number as u64);
            blocks.or_default().extend(users.map(id));
        }
        Some(())
    }

    /// Leaves sets of the files that had none. Called when the image ends.
    pub fn give_sets(&mut self) {
        let missing = core::mem::take(&mut self.sets.missing);
        let Some(shared) = ring::shared_cache() else {
            return;
        };
        if generation::present() != 1 || !self.code.is_unchanged() {
            return;
        }
        for file in &missing {
            let name = name(file, self.translator.ordered);
            // Another image may have been quicker.
            let there = shared.find(kind::SET, name).next().is_some();
            let set = (!there).then(|| self.gather(file)).flatten();
            if let Some(set) = set.filter(|s| self.may_leave(s, file.origin, file.plain)) {
                set.save(|parts| shared.put_parts(kind::SET, name, parts));
            }
        }
    }

    /// The set of a file: what this image has executed of it.
    fn gather(&mut self, file: &File) -> Option<FileTranslationBuilder> {
        const NONE: (u32, u32) = (u32::MAX, 0);
        let (region, origin) = (file.region, file.origin);
        let path: Vec<u8> = {
            let all = regions();
            let now = all.find(region.start).filter(|r| **r == region)?;
            all.path(now).into()
        };
        (self.mapped, self.translator.policy.mode) = (None, mode(file.plain));
        let s = &self.chunks[self.current];
        let mut set = FileTranslationBuilder::new(origin);
        // For each block: its number in the set, and the offset of its hot part there.
        let mut places = alloc::vec![NONE; s.blocks.len()];
        let mut pages: HashMap<u32, Vec<u32>, foldhash::fast::FixedState> = HashMap::default();
        let mut looked = Vec::new();
        let within = |at: u64, len: u64| region.start <= at && at + len <= region.end;
        for (b, place) in s.blocks.iter().zip(&mut places) {
            if set.len() > MOST {
                break;
            }
            let own = b.src_len as usize;
            if b.plain != file.plain
                || !b.live
                || b.self_check
                || b.ordered != self.translator.ordered
                || !within(b.pc, b.src_len as u64)
            {
                continue;
            }
            let Some((code, rest)) = s.bytes[b.bytes as usize..].split_at_checked(own) else {
                continue;
            };
            let mut source = [0; super::SOURCE];
            let n = own.max(SHORTEST).min((region.end - b.pc) as usize);
            if guard::read(b.pc, &mut source[..n]).is_err() || !source.starts_with(code) {
                continue;
            }
            let at = shared_translations::bucket(&path, region.offset + (b.pc - region.start));
            let key = shared_translations::key(&self.translator, b.pc, &source[..n], at);
            looked.clear();
            shared_translations::find(key, b.pc, &source[..n], &mut looked, |saved, looked| {
                let same = saved.source.len() == own
                    && saved.hot_len() == b.hot_len as usize
                    && rest.get(..b.peeked as usize) == Some(saved.peeked)
                    && looked.iter().all(|p| within(p * PAGE, PAGE));
                let Some(new) = same.then(|| set.add(b.pc, saved)).flatten() else {
                    return false;
                };
                *place = new;
                let last = b.pc + b.src_len as u64 - 1;
                let own = b.pc / PAGE..=last / PAGE;
                let mut all: Vec<u64> = own.chain(looked.iter().copied()).collect();
                all.sort_unstable();
                all.dedup();
                for p in all {
                    let number = (p - origin / PAGE) as u32;
                    pages.entry(number).or_default().push(new.0);
                }
                true
            });
        }
        for (at, to) in &self.sets.links {
            let from = s.blocks.partition_point(|b| b.hot <= *at).checked_sub(1)?;
            let b = &s.blocks[from];
            let to = places.get(to.number()).copied().unwrap_or(NONE);
            let distance = at - b.hot;
            if places[from] != NONE && to != NONE && distance + 4 <= b.hot_len {
                set.link(places[from].1 + distance, to.1);
            }
        }
        for (number, users) in &pages {
            set.page(
                *number,
                epochs::hash(origin + *number as u64 * PAGE)?,
                users,
            );
        }
        (!set.is_empty()).then_some(set)
    }
}

const _: () = assert!(SIZE < u32::MAX as u64);

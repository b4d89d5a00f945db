//! The translation cache: translated blocks, where they came from, and the jumps between them.
//!
//! The cache is one mapping of several chunks, of which one is in use. In a chunk, hot code grows
//! up from the start, and cold code with its stubs grows down from the end. When they meet, the
//! generation goes on in another chunk. When it has as many as it may have, or most of its blocks
//! are dead, a new generation begins. New code is reached only through the runtime, where each
//! thread notices the new generation. Old chunks are used again when all threads have noticed.

mod block_table;
mod boundary;
mod chunks;
mod codecheck;
mod invalidate;
mod make;
mod maker;
pub mod memory;
mod mend;
mod sets;

pub use block_table::Entry;
pub use boundary::{boundary, fault_state, source};
pub use make::get;

use crate::code::epochs;
use crate::line;
use crate::stream::ring;
use crate::sys::lock::{Guard, Lock};
use crate::sys::range::AtomicRange;
use crate::sys::{self, fail, generation, invariant};
use crate::thread::{Thread, borrowers, threads};
use alloc::vec::Vec;
use chunks::{BlockId, CHUNKS, CacheChunk, MARGIN, SIZE};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use hashbrown::HashMap;
use hindsight_confine::Checker;
use hindsight_events::Event;
use hindsight_isa::Desc;
use hindsight_isa::ctx::table;
use hindsight_translate::{Mode, Policy, Translator};

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// The most bytes of guest code that the translator gets for one block.
const SOURCE: usize = 512;

/// When this many exits could not be linked because of one thread, a new generation begins without
/// it.
const PATIENCE: u32 = 50_000;

/// One translated block.
#[derive(Clone)]
struct Block {
    pc: u64,
    src_len: u32,
    /// Offset of its hot code from the cache's base.
    hot: u32,
    hot_len: u32,
    self_check: bool,
    /// Plain code, which no recorded thread runs.
    plain: bool,
    /// The value that [`Translator::ordered`] had.
    ordered: bool,
    /// The value that [`Translator::fuse`] had.
    fuse: bool,
    live: bool,
    /// The code epoch of its code. Threads whose streams have not announced that epoch must not
    /// come here.
    since: u64,
    /// Offset in [`CacheChunk::bytes`] of its guest code. Behind that stands what the translator
    /// looked at behind its exits.
    bytes: u32,
    /// Bytes that the translator looked at.
    peeked: u8,
}

/// Why there is no translation of an address.
#[derive(Clone, Copy, Debug)]
pub enum Fetch {
    /// Nothing is mapped there.
    NotMapped,
    /// It may not be executed.
    NotExecutable,
}

/// The process's translation cache.
pub struct Cache {
    chunks: Vec<CacheChunk>,
    /// Index of the chunk in use.
    current: usize,
    /// How blocks are translated now. Of blocks that are in the cache it makes maps.
    translator: Translator,
    /// The block whose map the translator holds.
    mapped: Option<BlockId>,
    by_page: Map<u64, Vec<BlockId>>,
    /// Number of exits in the present generation that could not be linked, because a thread has not
    /// announced the present code.
    refused: u32,
    sets: sets::Sets,
    /// Reads sets before they are left to others.
    checker: Checker,
    /// The cache was begun anew once. What chunks had before may not be freed.
    mended: bool,
    /// Number of blocks of the present generation that are dead.
    dead: usize,
    /// The code that the stream has.
    pub code: epochs::Recorder,
    /// Number of guest instructions translated.
    pub translated: u64,
    /// Blocks that were translated one by one.
    made: u64,
}

/// First address of the cache. Descriptors and their offsets count from here.
pub fn base() -> u64 {
    SHARED.range.start()
}

/// The descriptor of an exit.
pub fn desc(offset: u64) -> Desc {
    // SAFETY: exit stubs store the offset of a descriptor in the cache. Its chunk is used again
    // only after this thread has noticed a new generation, which it does later.
    unsafe { Desc::of_exit(base(), offset) }
}

/// The process's translated code. The child of a `fork` has a copy, and goes on with it.
struct Shared {
    /// The cache, once [`init`] has made it. Whoever places, links or drops blocks locks it.
    cache: Lock<Option<Cache>>,
    /// The blocks that may be entered. Changed with the cache locked, read without.
    blocks: block_table::BlockTable,
    /// Grows whenever a translation that is being made may have become wrong: code has changed, or
    /// how it is translated, or a generation has begun. Changed with the cache locked.
    changes: AtomicU64,
    /// A new generation has to begin.
    outdated: AtomicBool,
    /// The present epoch of the code, to be looked at without the lock. Changed with the cache locked.
    epoch: AtomicU64,
    /// Where the cache is. Set once, before any code is translated; signal handlers read it.
    range: AtomicRange,
}

static SHARED: Shared = Shared {
    cache: Lock::mended(None, mend::mend),
    blocks: block_table::BlockTable::new(),
    changes: AtomicU64::new(0),
    outdated: AtomicBool::new(false),
    epoch: AtomicU64::new(0),
    range: AtomicRange::new(),
};

/// The locked cache.
pub struct LockedCache(Guard<'static, Option<Cache>>);

impl core::ops::Deref for LockedCache {
    type Target = Cache;
    fn deref(&self) -> &Cache {
        match self.0.as_ref() {
            Some(c) => c,
            None => none(),
        }
    }
}

impl core::ops::DerefMut for LockedCache {
    fn deref_mut(&mut self) -> &mut Cache {
        match self.0.as_mut() {
            Some(c) => c,
            None => none(),
        }
    }
}

fn none() -> ! {
    invariant::violated("the cache is made before anybody asks for it", None)
}

/// Waits for the process's cache. It must have been made by [`init`].
pub fn cache() -> LockedCache {
    LockedCache(SHARED.cache.lock())
}

/// Makes the cache. Ends the process with a message if there is no memory.
pub fn init(policy: Policy) {
    let base = match memory::map() {
        Ok(b) => b,
        Err(e) => fail::die(
            fail::STATUS,
            &line!("cannot map memory for translated code (error {e})"),
        ),
    };
    SHARED.range.set(base..base + memory::LEN);
    *SHARED.cache.lock() = Some(Cache {
        chunks: chunks::all(base),
        current: 0,
        translator: Translator::new(policy),
        mapped: None,
        by_page: Map::default(),
        refused: 0,
        sets: sets::Sets::new(),
        checker: Checker::new(),
        mended: false,
        dead: 0,
        code: epochs::Recorder::new(),
        translated: 0,
        made: 0,
    });
}

/// Whether a host address lies in translated code, or on the way from one block to another.
pub fn contains(pc: u64) -> bool {
    SHARED.range.contains(pc) || hindsight_glue::in_search(pc)
}

impl Cache {
    /// What a thread does first that has locked the cache to get code. May begin a new generation.
    fn attend(&mut self, t: &mut Thread) {
        notice(t);
        if SHARED.outdated.load(Relaxed) {
            self.flush(t);
        }
        self.tell_epoch(t);
    }

    /// Translations that are being made are made again.
    fn change(&mut self) {
        SHARED.changes.fetch_add(1, Relaxed);
    }

    /// Records which epoch of the code the thread runs from here on.
    fn tell_epoch(&mut self, t: &mut Thread) {
        let epoch = self.code.epoch;
        if t.is_unrecorded() {
            // From its code the only way to recorded code leads through here.
            return t.code.announce(u64::MAX);
        }
        if epoch != t.code.epoch {
            t.code.epoch = epoch;
            t.event(&Event::CodeEpoch { epoch });
        }
        t.code.announce(epoch);
    }

    /// What is translated may be wrong. Whoever comes for code next begins a new generation.
    pub fn outdate(&mut self) {
        SHARED.outdated.store(true, SeqCst);
        self.change();
    }

    /// From now on the order of atomic operations is recorded.
    pub fn sequence_atomics(&mut self, t: &mut Thread) {
        if !self.translator.ordered {
            self.translator.ordered = true;
            self.flush(t);
        }
    }

    /// Begins a new generation: nothing is translated.
    pub fn flush(&mut self, t: &mut Thread) {
        self.retire();
        self.sets.end();
        generation::next();
        notice(t);
        SHARED.blocks.clear();
        self.by_page.clear();
        self.mapped = None;
        (self.refused, self.dead) = (0, 0);
        SHARED.outdated.store(false, SeqCst);
        self.change();
        log!(Info, "generation {} of code begins", generation::present());
        let mut spins = 0u32;
        loop {
            if self.begin_chunk() {
                return;
            }
            borrowers::sweep();
            // All chunks have threads in them that have not noticed a generation for that long.
            spins += 1;
            if spins > 100_000 {
                panic!("no room for translated code: a thread does not leave the old");
            }
            sys::sched_yield();
        }
    }

    /// Called in a child that has a copy of the memory. The translations, and what is recorded of
    /// the code, belong to the child from here on.
    pub fn inherit(&mut self) {
        let epoch = self.code.epoch;
        ring::emit_process(&Event::CodeFrom { epoch });
        self.sets.end();
        self.translated = 0;
    }

    /// Links the direct exit whose displacement is at cache offset `patch` to the block `to`. Does so only if the exit belongs to this generation, and if all threads may go there
    /// before they announce a new epoch.
    pub fn link(&mut self, patch: u32, to: Entry) {
        let (at, host) = (base() + patch as u64, to.host());
        if !self.is_present(at) {
            return;
        }
        invariant!(
            self.is_present(host),
            "code is linked only to code of its own generation",
            "{at:#x} to {host:#x}"
        );
        let since = self.block(to.id).since;
        if since > 0 && since > threads::oldest_epoch(generation::present()) {
            self.refused += 1;
            if self.refused > PATIENCE {
                self.outdate();
            }
            return;
        }
        self.sets.linked(patch, to.id);
        let rel = host.wrapping_sub(at + 4) as u32;
        // SAFETY: `patch` comes from a descriptor in the cache. It names a displacement in a
        // chunk of the present generation, as was just checked. The translator keeps a displacement within eight
        // aligned bytes, so other threads see the old or the new one.
        unsafe { core::ptr::write_volatile(memory::writable(at, 4).cast(), rel.to_le_bytes()) }
    }
}

/// The translation of `pc` of the present generation, if there is one and nothing else is to be done
/// before the thread runs it. Takes no lock.
pub fn known(t: &mut Thread, pc: u64) -> Option<Entry> {
    // Somebody may begin a generation or an epoch and then look who may run old code. Then either
    // that one sees this store, or this thread sees the new number below.
    if threads::is_alone() {
        // No other thread can look.
        t.code.enter(Relaxed);
    } else {
        t.code.enter(SeqCst);
    }
    if !is_up_to_date(t) {
        return None;
    }
    let found = SHARED.blocks.find(key(pc, t.is_plain()));
    // A block of a later generation or epoch was entered after that had begun.
    found.filter(|_| is_up_to_date(t))
}

/// Whether the thread has noticed all that concerns the code that it may run.
fn is_up_to_date(t: &Thread) -> bool {
    let epoch = t.is_unrecorded()
        || SHARED.epoch.load(SeqCst) == t.code.epoch && t.code.announced() == t.code.epoch;
    epoch && generation::present() == t.code.generation && !SHARED.outdated.load(SeqCst)
}

/// Notices the present generation, before the thread runs code of it.
fn notice(t: &mut Thread) {
    let now = generation::present();
    if t.code.generation != now {
        t.code.generation = now;
        t.ctx.ibl[table::CHECKED].clear();
        if t.is_plain() || t.regime.quiet || t.gaps.has_spare() {
            t.ctx.ibl[table::PLAIN].clear();
        }
    }
    t.code.enter(Release);
}

/// Distinguishes plain code from other code at the same address. The two highest bits of a valid
/// address are equal. It is 0 for none.
fn key(pc: u64, plain: bool) -> u64 {
    pc ^ 1 << 62 ^ (plain as u64) << 63
}

fn mode(plain: bool) -> Mode {
    if plain { Mode::Plain } else { Mode::Record }
}

/// The translator's policy for this configuration and machine.
pub fn policy(plain: bool, predictor: hindsight_isa::Predictor, wide_checks: bool) -> Policy {
    Policy {
        mode: mode(plain),
        predictor,
        wide_checks: wide_checks && !plain,
    }
}

//! Translated blocks that all machines of a replay share.
//!
//! Programs of one recording execute much of the same code. A forked process runs its parent's code. Programs
//! map the same libraries, perhaps at different addresses. A machine can use a block that another one
//! translated if all bytes of code are the same. This includes the code that the translator looked at behind
//! the block's exits.

use crate::cpu::Observe;
use crate::maps::{Map, Mix};
use hindsight_translate::{Saved, Translator};
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// Identifies a block: its guest address, and the number of instructions to which it is limited (0: not
/// limited).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub pc: u64,
    pub limit: u32,
}

impl Key {
    /// Used in place of a limit. The block has one instruction and does not announce that it may write to
    /// watched memory. Ordinary blocks do announce it, even one that is limited to one instruction because
    /// something is due behind it.
    pub const UNWATCHED: u32 = u32::MAX;
}

/// Bytes at a block's start that are hashed to find it.
const PREFIX: usize = 16;
/// Number of locks. With many, machines rarely wait for each other.
const SHARDS: usize = 64;
/// How many blocks with the same hash are tried.
const VARIANTS: usize = 8;
/// Most bytes that the library holds.
const MOST: usize = 256 << 20;

/// Ends a list.
const NONE: u32 = u32::MAX;
/// Bytes of an entry before its content: offset of the previous entry with the same name, and length.
const HEAD: usize = 8;

/// Entries one behind the other. Separate allocations would be many and small.
#[derive(Default)]
struct Shard {
    /// The last entry of each name.
    names: Map<u64, u32>,
    entries: Vec<u8>,
}

impl Shard {
    /// The offset of the previous entry, and the content, of the entry at `at`.
    fn entry(&self, at: u32) -> Option<(u32, &[u8])> {
        let (head, rest) = self
            .entries
            .get(at as usize..)?
            .split_first_chunk::<HEAD>()?;
        let [before, len] = *head.as_chunks::<4>().0 else {
            return None;
        };
        let content = rest.get(..u32::from_le_bytes(len) as usize)?;
        Some((u32::from_le_bytes(before), content))
    }
}

/// The shared blocks. Machines that share a library translate alike: they have the same window size, and
/// count and mark the same things.
pub struct Library {
    shards: Vec<Mutex<Shard>>,
    /// Bytes that the library holds.
    bytes: AtomicUsize,
    /// How often a block was found.
    found: AtomicU64,
    /// How often a block was not found.
    made: AtomicU64,
    /// Which access marks the machines set.
    marking: OnceLock<Observe>,
}

impl Default for Library {
    fn default() -> Self {
        Library {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            bytes: AtomicUsize::new(0),
            found: AtomicU64::new(0),
            made: AtomicU64::new(0),
            marking: OnceLock::new(),
        }
    }
}

impl Library {
    /// Registers a machine that sets these access marks. All machines of a library must agree: their code
    /// differs otherwise.
    pub(crate) fn serve(&self, marking: Observe) {
        let first = *self.marking.get_or_init(|| marking);
        assert_eq!(
            first, marking,
            "machines that mark otherwise share their blocks"
        );
    }

    /// The name of a block whose code begins with `source`. It includes the offset in the page: many
    /// functions begin with the same bytes.
    fn name(key: Key, source: &[u8]) -> u64 {
        let mut start = [0; PREFIX];
        let n = source.len().min(PREFIX);
        start[..n].copy_from_slice(&source[..n]);
        let mut mix = Mix::default();
        mix.write_u64(key.pc & 0xfff | (key.limit as u64) << 12);
        mix.write_u64(u64::from_le_bytes(*start.first_chunk().unwrap_or(&[0; 8])));
        mix.write_u64(u64::from_le_bytes(*start.last_chunk().unwrap_or(&[0; 8])));
        mix.finish()
    }

    fn shard(&self, name: u64) -> std::sync::MutexGuard<'_, Shard> {
        self.shards[(name >> 32) as usize % SHARDS]
            .lock()
            .unwrap_or_else(|e| e.into_inner())
    }

    /// Looks for a block of `key` whose code begins with `source`, and makes it the translator's current
    /// block. `look` gives the known code at an address.
    pub fn restore<'c>(
        &self,
        translator: &mut Translator,
        key: Key,
        source: &[u8],
        look: &mut dyn FnMut(u64) -> &'c [u8],
    ) -> bool {
        let name = Library::name(key, source);
        let shard = self.shard(name);
        let mut at = shard.names.get(&name).copied().unwrap_or(NONE);
        let mut left = VARIANTS;
        while let Some((before, bytes)) = shard.entry(at)
            && left > 0
        {
            (at, left) = (before, left - 1);
            let Some(saved) = Saved::read(bytes) else {
                continue;
            };
            let mut same = |(distance, seen): (i64, &[u8])| {
                let now = look(key.pc.wrapping_add_signed(distance));
                now.starts_with(seen) && now.is_empty() == seen.is_empty()
            };
            if saved.serves(key.pc)
                && source.starts_with(saved.source)
                && saved.looks().all(&mut same)
                && translator.restore(key.pc, &saved).is_some()
            {
                self.found.fetch_add(1, Relaxed);
                return true;
            }
        }
        self.made.fetch_add(1, Relaxed);
        false
    }

    /// Stores the translator's current block. It was made for `key` from code that begins with `source`, and
    /// is not placed yet.
    pub fn insert(&self, translator: &Translator, key: Key, source: &[u8]) {
        if self.bytes.load(Relaxed) > MOST {
            return;
        }
        let block = &translator.block;
        let name = Library::name(key, source);
        let mut shard = self.shard(name);
        let Shard { names, entries } = &mut *shard;
        let last = names.entry(name).or_insert(NONE);
        let at = entries.len();
        entries.extend_from_slice(&last.to_le_bytes());
        entries.extend_from_slice(&[0; 4]);
        block.save(key.pc, &source[..block.src_len as usize], entries);
        let len = entries.len() - at;
        entries[at + 4..at + HEAD].copy_from_slice(&((len - HEAD) as u32).to_le_bytes());
        *last = at as u32;
        self.bytes.fetch_add(len, Relaxed);
    }

    /// How many blocks were found, and how many had to be made.
    pub fn counts(&self) -> (u64, u64) {
        (self.found.load(Relaxed), self.made.load(Relaxed))
    }
}

#[cfg(test)]
impl Library {
    /// Puts other bytes in place of the last ones that are these, in each shard. Returns how often.
    pub fn spoil(&self, these: [u8; 3], others: [u8; 3]) -> usize {
        let mut spoiled = 0;
        for shard in &self.shards {
            let entries = &mut shard.lock().unwrap().entries;
            if let Some(at) = entries.windows(3).rposition(|w| w == these) {
                entries[at..at + 3].copy_from_slice(&others);
                spoiled += 1;
            }
        }
        spoiled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_isa::Predictor;
    use hindsight_translate::{Input, Mode, Policy};

    const HIGH: u64 = 0x7f00_0000_1230;
    /// The code is `inc rax; add rbx, [rip+16]; jne +5`.
    const CODE: &[u8] = &[
        0x48, 0xff, 0xc0, 0x48, 0x03, 0x1d, 0x10, 0, 0, 0, 0x75, 0x05,
    ];
    /// The code at the jump's target. `xor eax, eax` needs no flags; `adc eax, eax` does.
    const BEHIND: [&[u8]; 2] = [&[0x31, 0xc0, 0xc3], &[0x11, 0xc0, 0xc3]];

    fn translator(predictor: Predictor) -> Translator {
        Translator::new(Policy {
            mode: Mode::Replay,
            predictor,
            wide_checks: false,
        })
    }

    fn translate(t: &mut Translator, pc: u64, behind: &'static [u8]) {
        let input = Input {
            pc,
            code: CODE,
            max_instrs: 64,
            self_check: false,
            peeked: &[],
        };
        t.translate(&input, &mut |_| behind).unwrap();
    }

    #[test]
    fn serves_elsewhere_if_all_is_the_same() {
        let (library, mut t) = (Library::default(), translator(Predictor::WINDOW));
        let key = |pc| Key { pc, limit: 0 };
        translate(&mut t, HIGH, BEHIND[0]);
        library.insert(&t, key(HIGH), CODE);
        let mut restore = |pc, code: &[u8], behind: &'static [u8]| {
            library
                .restore(&mut t, key(pc), code, &mut |_| behind)
                .then(|| (t.block.hot.clone(), t.block.cold.clone()))
        };
        for pc in [HIGH, HIGH + 0x55_5555_5000] {
            let mut fresh = translator(Predictor::WINDOW);
            translate(&mut fresh, pc, BEHIND[0]);
            let wanted = Some((fresh.block.hot, fresh.block.cold));
            assert_eq!(restore(pc, CODE, BEHIND[0]), wanted);
        }
        assert_eq!(restore(HIGH, CODE, BEHIND[1]), None, "needs other flags");
        assert_eq!(restore(HIGH, CODE, &[]), None, "not known what comes next");
        assert_eq!(restore(HIGH, &CODE[..11], BEHIND[0]), None, "cut");
        let mut other = CODE.to_vec();
        other[2] ^= 1;
        assert_eq!(restore(HIGH, &other, BEHIND[0]), None);
        assert_eq!(restore(0x1230, CODE, BEHIND[0]), None, "other encodings");
        assert_eq!(library.counts(), (2, 5));
    }

    #[test]
    #[should_panic(expected = "mark otherwise")]
    fn is_not_for_machines_that_mark_otherwise() {
        let library = Library::default();
        library.serve(Observe::Anywhere);
        library.serve(Observe::Anywhere);
        library.serve(Observe::Near);
    }

    #[test]
    fn cells_of_small_predictors_do_not_move() {
        let predictor = Predictor::parse("cache:64k").unwrap();
        let (library, mut t) = (Library::default(), translator(predictor));
        let key = |pc| Key { pc, limit: 0 };
        translate(&mut t, HIGH, BEHIND[0]);
        library.insert(&t, key(HIGH), CODE);
        let mut restore = |pc| library.restore(&mut t, key(pc), CODE, &mut |_| BEHIND[0]);
        assert!(restore(HIGH));
        assert!(!restore(HIGH + 0x5000));
    }
}

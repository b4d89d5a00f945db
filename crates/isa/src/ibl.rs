//! The indirect-branch lookup table: guest addresses and the host addresses of their translations.

use core::ops::Range;

/// Number of slots. The low 16 bits of an address choose its slot. WebAssembly never runs translated code, and has little memory.
const SLOTS: usize = if cfg!(target_family = "wasm") {
    4
} else {
    1 << 16
};

/// One entry: a known target.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    /// The negated guest address. So `lea` and `jrcxz` can test for equality without changing
    /// flags. If the target's code may need flags on entry, it is one less: the address's
    /// complement.
    neg_pc: u64,
    /// Address of the translation.
    host: u64,
}

/// A lookup table. Each slot has three entries.
///
/// - Translated code looks at the first entry.
/// - Shared code (`hindsight_glue`) looks at the two others. It swaps what it finds there with the
///   first entry, where the next lookup finds it. It does not swap targets that may need flags.
///
/// While `host` of the first entry is zero, the other two have never been used, and nobody looks
/// there. So most of their memory is never touched.
#[repr(C)]
pub struct LookupTable {
    first: [Entry; SLOTS],
    second: [[Entry; 2]; SLOTS],
}

/// `neg_pc` of an empty entry of `slot`: a value that no lookup in this slot compares equal. It is
/// zero, as in fresh memory, except in two slots. Zero is the negation of the lowest address and
/// the complement of the highest one.
const fn none(slot: usize) -> u64 {
    match slot {
        0 | 0xffff => 3,
        _ => 0,
    }
}

const fn slot(pc: u64) -> usize {
    pc as usize & (SLOTS - 1)
}

/// Bytes of an entry.
pub const ENTRY: usize = size_of::<Entry>();

/// Offset in [`LookupTable`] of the first entry of `pc`'s slot.
pub const fn first_entry(pc: u64) -> usize {
    slot(pc) * ENTRY
}

/// Offset in an entry of the translation's address.
pub const HOST: usize = core::mem::offset_of!(Entry, host);

/// `host` of an empty first entry, while the other two may be in use.
const OTHERS: u64 = 1;

/// Offset in [`LookupTable`] of the second and third entries.
pub const SECOND: usize = core::mem::offset_of!(LookupTable, second);

fn addresses<T>(entries: &[T]) -> Range<u64> {
    let all = entries.as_ptr_range();
    all.start as u64..all.end as u64
}

impl Entry {
    /// Whether this is the entry of `pc`.
    fn is(&self, pc: u64) -> bool {
        self.neg_pc == pc.wrapping_neg() || self.neg_pc == !pc
    }

    /// Whether the entry is in use. Targets are in the lower half of the address space.
    fn is_used(&self) -> bool {
        self.neg_pc >> 63 != 0
    }
}

impl LookupTable {
    /// Makes an empty table. All of its memory must be zero.
    pub fn begin(&mut self) {
        for slot in [0, SLOTS - 1] {
            let neg_pc = none(slot);
            self.first[slot].neg_pc = neg_pc;
            self.second[slot].iter_mut().for_each(|f| f.neg_pc = neg_pc);
        }
    }

    /// Host addresses of the first entries.
    pub fn first_entries(&self) -> Range<u64> {
        addresses(&self.first)
    }

    /// Host addresses of the memory that is all zero in an empty table. That is nearly all of it.
    pub fn zero_when_empty(&self) -> [Range<u64>; 2] {
        let inner = 1..SLOTS - 1;
        [
            addresses(&self.first[inner.clone()]),
            addresses(&self.second[inner]),
        ]
    }

    /// Forgets all targets. Writes to no more memory than it must.
    pub fn clear(&mut self) {
        for slot in 0..SLOTS {
            for f in self.entries(slot).filter(|f| f.is_used()) {
                f.neg_pc = none(slot);
            }
        }
    }

    /// The entries of a slot that may be in use.
    fn entries(&mut self, slot: usize) -> impl Iterator<Item = &mut Entry> {
        let first = &mut self.first[slot];
        let others = match first.host {
            0 => [].iter_mut(),
            _ => self.second[slot].iter_mut(),
        };
        core::iter::once(first).chain(others)
    }

    /// Enters the translation `host` of `pc`. `takes_flags` says whether its code may need flags on
    /// entry.
    pub fn set(&mut self, pc: u64, host: u64, takes_flags: bool) {
        self.forget(pc);
        let neg_pc = pc.wrapping_neg().wrapping_sub(takes_flags as u64);
        let new = Entry { neg_pc, host };
        if !new.is_used() {
            return;
        }
        let first = &mut self.first[slot(pc)];
        // Code that looks at the first entry may have changed flags on the way. So a target that
        // may need flags never goes there.
        let mut old = match takes_flags {
            true => new,
            false => core::mem::replace(first, new),
        };
        if !old.is_used() {
            return;
        }
        if first.host == 0 {
            first.host = OTHERS;
        }
        let [a, b] = &mut self.second[slot(pc)];
        if a.is_used() {
            core::mem::swap(a, &mut old);
            *b = old;
        } else {
            *a = old;
        }
    }

    /// The translation of `pc`, if it is known.
    pub fn find(&mut self, pc: u64) -> Option<u64> {
        let mut all = self.entries(slot(pc));
        Some(all.find(|f| f.is_used() && f.is(pc))?.host)
    }

    /// Forgets `pc`.
    pub fn forget(&mut self, pc: u64) {
        for f in self.entries(slot(pc)).filter(|f| f.is(pc)) {
            f.neg_pc = none(slot(pc));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    extern crate std;
    use super::*;
    use alloc::boxed::Box;

    fn table() -> Box<LookupTable> {
        // SAFETY: the table consists of plain integers, for which zeros are valid.
        let mut t = unsafe { Box::<LookupTable>::new_zeroed().assume_init() };
        t.begin();
        t
    }

    #[test]
    fn nothing_is_found_at_first() {
        let mut t = table();
        for pc in [0, 1, 0xfffe, 0xffff, 0x1_0000, u64::MAX] {
            assert_eq!(t.find(pc), None, "{pc:#x}");
        }
    }

    #[test]
    fn targets_share_a_slot() {
        let mut t = table();
        let targets = [
            (0x1_2345, 100),
            (0x2_2345, 200),
            (0x3_ffff, 300),
            (0x4_ffff, 400),
            (0x5_ffff, 500),
            (0x6_0000, 600),
        ];
        for (pc, host) in targets {
            t.set(pc, host, false);
        }
        for (pc, host) in targets {
            assert_eq!(t.find(pc), Some(host), "{pc:#x}");
        }
        t.forget(0x1_2345);
        assert_eq!((t.find(0x1_2345), t.find(0x2_2345)), (None, Some(200)));
        t.clear();
        for (pc, _) in targets {
            assert_eq!(t.find(pc), None, "{pc:#x}");
        }
    }

    /// The first entry says whether the others can be in use. So their memory is not touched for
    /// nothing.
    #[test]
    fn the_other_entries_are_used_when_one_does_not_do() {
        let mut t = table();
        assert_eq!((t.entries(0x5432).count(), t.find(0x1_5432)), (1, None));
        t.forget(0x1_5432);
        assert_eq!(t.entries(0x5432).count(), 1);
        // Where flags may be needed, the first entry stays empty.
        t.set(0x1_5432, 300, true);
        assert_eq!(
            (t.entries(0x5432).count(), t.find(0x1_5432)),
            (3, Some(300))
        );
        t.clear();
        t.set(0x2_5432, 400, false);
        assert_eq!((t.find(0x1_5432), t.find(0x2_5432)), (None, Some(400)));
    }

    /// Translated code looks only at the first entry. It must not find a target there that may need
    /// flags.
    #[test]
    fn flags_are_not_forgotten() {
        let mut t = table();
        t.set(0x1_2345, 100, true);
        assert_eq!(t.first[slot(0x1_2345)].neg_pc, 0);
        assert_eq!(t.find(0x1_2345), Some(100));
    }

    /// The table may forget what a map remembers, but what it finds is right.
    #[test]
    fn what_is_found_is_right() {
        let mut t = table();
        let mut known = std::collections::HashMap::new();
        let mut x = 1u64;
        let mut found = 0;
        // Miri takes a thousand times as long.
        let rounds = if cfg!(miri) { 2000 } else { 200_000u64 };
        for n in 0..rounds {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(99);
            let pc = 0x5555_0000_0000 + (x >> 33) % 100_000;
            match x >> 60 {
                0 => {
                    t.forget(pc);
                    known.remove(&pc);
                }
                1..=7 => {
                    t.set(pc, 0x6800_0000_0000 + n, x >> 59 & 1 != 0);
                    known.insert(pc, 0x6800_0000_0000 + n);
                }
                _ => {
                    let got = t.find(pc);
                    assert!(got.is_none() || got == known.get(&pc).copied(), "{pc:#x}");
                    found += got.is_some() as u64;
                }
            }
        }
        // Under Miri there are too few to meet again.
        assert!(cfg!(miri) || found > rounds / 10, "{found}");
    }

    #[test]
    fn a_target_is_there_once() {
        let mut t = table();
        t.set(0x1_2345, 100, false);
        t.set(0x2_2345, 200, false);
        t.set(0x1_2345, 101, false);
        t.set(0x2_2345, 201, false);
        assert_eq!((t.find(0x1_2345), t.find(0x2_2345)), (Some(101), Some(201)));
        t.forget(0x1_2345);
        t.forget(0x2_2345);
        assert_eq!((t.find(0x1_2345), t.find(0x2_2345)), (None, None));
    }
}

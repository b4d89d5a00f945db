//! Where indirect branches go: guest addresses and their translations.

use core::ops::Range;

/// Different low halves of addresses.
const SLOTS: usize = 1 << 16;

/// One known target.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    /// Two's complement negation of the guest address (so that a flag-free `lea` and `jrcxz`
    /// can test for equality); one less, its complement, if some flags may be needed there.
    neg_pc: u64,
    /// Address of its translation.
    host: u64,
}

/// A table of targets, which go by the low 16 bits of their addresses.
///
/// Translated code looks at one place. Code that all of it shares (`glue`) looks at two more: what it finds
/// there goes to the first place, where the next look will find it, and what was there takes its place. As
/// long as the `host` of the first place is zero, nothing has ever been in the others, and nobody looks there:
/// most of their memory is never touched.
#[repr(C)]
pub struct Targets {
    first: [Found; SLOTS],
    second: [[Found; 2]; SLOTS],
}

/// What stands in empty places of `slot`, and is nothing that is looked for there: as far as possible zero,
/// which fresh memory holds, and is the negation of the lowest and the complement of the highest address.
const fn none(slot: usize) -> u64 {
    match slot {
        0 | 0xffff => 3,
        _ => 0,
    }
}

const fn slot(pc: u64) -> usize {
    pc as usize & (SLOTS - 1)
}

/// Bytes of a place.
pub const PLACE: usize = size_of::<Found>();

/// Offset in [`Targets`] of the first place of `pc`.
pub const fn place(pc: u64) -> usize {
    slot(pc) * PLACE
}

/// Offset in a place of the address of the translation.
pub const HOST: usize = core::mem::offset_of!(Found, host);

/// `host` of a first place that is empty, while there may be something in the others.
const OTHERS: u64 = 1;

/// Offset in [`Targets`] of the other places.
pub const SECOND: usize = core::mem::offset_of!(Targets, second);

fn addresses<T>(places: &[T]) -> Range<u64> {
    let all = places.as_ptr_range();
    all.start as u64..all.end as u64
}

impl Found {
    /// Whether it is the one of `pc`.
    fn is(&self, pc: u64) -> bool {
        self.neg_pc == pc.wrapping_neg() || self.neg_pc == !pc
    }

    /// Whether it is a target: those are in the lower half of the address space.
    fn is_used(&self) -> bool {
        self.neg_pc >> 63 != 0
    }
}

impl Targets {
    /// Makes an empty table of memory that is all zero.
    pub fn begin(&mut self) {
        for slot in [0, SLOTS - 1] {
            let neg_pc = none(slot);
            self.first[slot].neg_pc = neg_pc;
            self.second[slot].iter_mut().for_each(|f| f.neg_pc = neg_pc);
        }
    }

    /// Addresses of the first places.
    pub fn first_places(&self) -> Range<u64> {
        addresses(&self.first)
    }

    /// Addresses of memory that is all zero in an empty table, which is nearly all of it.
    pub fn zero_when_empty(&self) -> [Range<u64>; 2] {
        let inner = 1..SLOTS - 1;
        [
            addresses(&self.first[inner.clone()]),
            addresses(&self.second[inner]),
        ]
    }

    /// Forgets all targets, writing to no more memory than it must.
    pub fn clear(&mut self) {
        for slot in 0..SLOTS {
            for f in self.places(slot).filter(|f| f.is_used()) {
                f.neg_pc = none(slot);
            }
        }
    }

    /// The places of a slot that can be in use.
    fn places(&mut self, slot: usize) -> impl Iterator<Item = &mut Found> {
        let first = &mut self.first[slot];
        let others = match first.host {
            0 => [].iter_mut(),
            _ => self.second[slot].iter_mut(),
        };
        core::iter::once(first).chain(others)
    }

    /// Enters `pc` with its translation `host`, at whose beginning some flags may be needed or not.
    pub fn set(&mut self, pc: u64, host: u64, takes_flags: bool) {
        self.forget(pc);
        let neg_pc = pc.wrapping_neg().wrapping_sub(takes_flags as u64);
        let new = Found { neg_pc, host };
        if !new.is_used() {
            return;
        }
        let first = &mut self.first[slot(pc)];
        // On some ways to a first place flags have been changed.
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
        let mut all = self.places(slot(pc));
        Some(all.find(|f| f.is_used() && f.is(pc))?.host)
    }

    /// Forgets `pc`.
    pub fn forget(&mut self, pc: u64) {
        for f in self.places(slot(pc)).filter(|f| f.is(pc)) {
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

    fn table() -> Box<Targets> {
        // SAFETY: zeros are a valid table, of plain integers.
        let mut t = unsafe { Box::<Targets>::new_zeroed().assume_init() };
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
    fn targets_share_a_place() {
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

    /// Memory that nobody needs is not touched: the first place says whether there can be anything.
    #[test]
    fn the_other_places_are_used_when_one_does_not_do() {
        let mut t = table();
        assert_eq!((t.places(0x5432).count(), t.find(0x1_5432)), (1, None));
        t.forget(0x1_5432);
        assert_eq!(t.places(0x5432).count(), 1);
        // Where flags may be needed, the first place stays empty.
        t.set(0x1_5432, 300, true);
        assert_eq!((t.places(0x5432).count(), t.find(0x1_5432)), (3, Some(300)));
        t.clear();
        t.set(0x2_5432, 400, false);
        assert_eq!((t.find(0x1_5432), t.find(0x2_5432)), (None, Some(400)));
    }

    /// Translated code, which looks at one place, must not find what may need flags.
    #[test]
    fn flags_are_not_forgotten() {
        let mut t = table();
        t.set(0x1_2345, 100, true);
        assert_eq!(t.first[slot(0x1_2345)].neg_pc, 0);
        assert_eq!(t.find(0x1_2345), Some(100));
    }

    /// Against a map, which it forgets from but is never wrong about.
    #[test]
    fn what_is_found_is_right() {
        let mut t = table();
        let mut known = std::collections::HashMap::new();
        let mut x = 1u64;
        let mut found = 0;
        for n in 0..200_000u64 {
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
                    found += got.is_some() as u32;
                }
            }
        }
        assert!(found > 20_000, "{found}");
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

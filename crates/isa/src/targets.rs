//! Where indirect branches go: guest addresses and their translations.

/// Different low halves of addresses.
const SLOTS: usize = 1 << 16;

/// One known target.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Found {
    /// Two's complement negation of the guest address (so that a flag-free `lea` and `jrcxz`
    /// can test for equality); one less, its complement, if some flags may be needed there: only
    /// the shared code finds it then.
    pub neg_pc: u64,
    /// Address of its translation.
    pub host: u64,
}

/// A table of targets. Each has its place by the low 16 bits of its address, or is in the next one:
/// translated code looks into the first, and code that all of it shares (`glue`) into the second.
/// Two targets that a program goes to by turns and that differ only in other bits are common.
#[repr(C)]
pub struct Targets {
    pub found: [Found; SLOTS + 1],
}

/// The empty place `i`, which matches no address that is looked for there: as far as possible zeros,
/// which fresh memory holds.
const fn empty(i: usize) -> Found {
    // 0 is the negation of the very first address, which is looked for in the first two places, and the
    // complement of the very last one.
    let neg_pc = if i < 2 || i == SLOTS - 1 { 3 } else { 0 };
    Found { neg_pc, host: 0 }
}

const fn slot(pc: u64) -> usize {
    pc as usize & (SLOTS - 1)
}

/// Offset in [`Targets`] of the first place of `pc`.
pub const fn place(pc: u64) -> usize {
    slot(pc) * size_of::<Found>()
}

impl Targets {
    /// Makes an empty table of memory that is all zero, touching no more of it than it must.
    pub fn begin(&mut self) {
        for i in [0, 1, SLOTS - 1] {
            self.found[i] = empty(i);
        }
    }

    /// Forgets all targets.
    pub fn clear(&mut self) {
        for (i, f) in self.found.iter_mut().enumerate() {
            if f.neg_pc != empty(i).neg_pc {
                *f = empty(i);
            }
        }
    }

    /// Enters `pc` with its translation `host`, at whose beginning some flags may be needed or not.
    pub fn set(&mut self, pc: u64, host: u64, takes_flags: bool) {
        self.forget(pc);
        let neg_pc = pc.wrapping_neg().wrapping_sub(takes_flags as u64);
        let i = slot(pc);
        let new = Found { neg_pc, host };
        let old = core::mem::replace(&mut self.found[i], new);
        let next = &mut self.found[i + 1];
        // What stood there moves on, if it is looked for in the next place too and that is of no more use.
        let movable = old.neg_pc != empty(i).neg_pc && slot(old.neg_pc.wrapping_neg()) == i;
        let at_home = [0, 1].map(|one| slot(next.neg_pc.wrapping_neg().wrapping_sub(one)));
        if movable && !at_home.contains(&(i + 1)) {
            *next = old;
        }
    }

    /// The translation of `pc`, if it is known.
    pub fn find(&self, pc: u64) -> Option<u64> {
        let i = slot(pc);
        let mut both = self.found[i..i + 2].iter();
        let f = both
            .find(|f| f.neg_pc == pc.wrapping_neg())
            .or(Some(&self.found[i]).filter(|f| f.neg_pc == !pc))?;
        Some(f.host)
    }

    /// Forgets `pc`.
    pub fn forget(&mut self, pc: u64) {
        let i = slot(pc);
        for k in i..i + 2 {
            if self.found[k].neg_pc == pc.wrapping_neg() || k == i && self.found[k].neg_pc == !pc {
                self.found[k] = empty(k);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
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
        let t = table();
        for pc in [0, 1, 0xffff, 0x1_0000, u64::MAX] {
            assert_eq!(t.find(pc), None, "{pc:#x}");
        }
    }

    #[test]
    fn two_targets_share_a_place() {
        let mut t = table();
        for (pc, host) in [
            (0x1_2345, 100),
            (0x2_2345, 200),
            (0x3_ffff, 300),
            (0x4_ffff, 400),
        ] {
            t.set(pc, host, false);
        }
        assert_eq!((t.find(0x1_2345), t.find(0x2_2345)), (Some(100), Some(200)));
        assert_eq!((t.find(0x3_ffff), t.find(0x4_ffff)), (Some(300), Some(400)));
        // One that has its own place there is not driven out.
        t.set(0x5_2346, 500, false);
        t.set(0x2_2345, 201, false);
        t.set(0x1_2345, 101, false);
        assert_eq!((t.find(0x5_2346), t.find(0x1_2345)), (Some(500), Some(101)));
        t.forget(0x1_2345);
        assert_eq!((t.find(0x1_2345), t.find(0x5_2346)), (None, Some(500)));
        t.clear();
        assert_eq!((t.find(0x5_2346), t.find(0x4_ffff)), (None, None));
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

//! Random numbers for tests and measurements. The same seed gives the same numbers everywhere.

/// The generator SplitMix64. Its whole state is one number, which is the seed at first.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.u64() % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A value, with a preference for edge cases.
    pub fn value(&mut self) -> u64 {
        let v = self.u64();
        match v >> 61 {
            0 => v & 0xff,
            1 => self.pick(&[
                0,
                1,
                u64::MAX,
                1 << 63,
                (1 << 63) - 1,
                0x8000_0000,
                0x7fff_ffff,
                0xffff_ffff,
                0x80,
                0x7f,
                0xff80,
            ]),
            2 => (v as i8) as u64,
            3 => v as u32 as u64,
            _ => self.u64(),
        }
    }
}

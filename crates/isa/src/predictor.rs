//! Geometry of the read predictor.
//!
//! The predictor is an array of byte cells without tags. The cell of guest address `a` has the
//! offset `a mod 2^bits`. The first page of the array is mapped a second time behind its end, so
//! an access that starts in the last cells continues in the first ones.

/// Bytes of the first page that are mapped again behind the end.
pub const ALIAS: usize = 4096;

/// A predictor of `2^bits` cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predictor {
    /// 32 for the shadow window; 12 to 31 for a bounded cache.
    pub bits: u8,
}

impl Predictor {
    /// The shadow window: 4 GiB of address space, committed as it is touched.
    pub const WINDOW: Predictor = Predictor { bits: 32 };

    /// Number of cells (bytes).
    pub const fn size(self) -> u64 {
        1 << self.bits
    }

    /// Offset of the cell of address `a`.
    pub const fn cell(self, a: u64) -> u64 {
        a & (self.size() - 1)
    }

    /// Parses `window` or `cache:SIZE` (SIZE a power of two from 4k to 2g, with suffix k, m or g).
    pub fn parse(s: &str) -> Option<Predictor> {
        if s == "window" {
            return Some(Predictor::WINDOW);
        }
        let size = s.strip_prefix("cache:")?;
        let (digits, shift) = match size.as_bytes().last()? {
            b'k' | b'K' => (&size[..size.len() - 1], 10),
            b'm' | b'M' => (&size[..size.len() - 1], 20),
            b'g' | b'G' => (&size[..size.len() - 1], 30),
            _ => (size, 0),
        };
        let n: u64 = digits.parse().ok()?;
        let n = n.checked_mul(1 << shift)?;
        (n.is_power_of_two() && (4096..=1 << 31).contains(&n)).then(|| Predictor {
            bits: n.trailing_zeros() as u8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sizes() {
        assert_eq!(Predictor::parse("window"), Some(Predictor::WINDOW));
        assert_eq!(Predictor::parse("cache:64k"), Some(Predictor { bits: 16 }));
        assert_eq!(Predictor::parse("cache:4096"), Some(Predictor { bits: 12 }));
        for bad in [
            "",
            "cache:",
            "cache:0",
            "cache:3k",
            "cache:4g",
            "cache:k",
            "cache:99999999999999999999k",
            "x",
        ] {
            assert_eq!(Predictor::parse(bad), None, "{bad}");
        }
    }
}

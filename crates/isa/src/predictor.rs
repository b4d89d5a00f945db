//! Geometry of the shadow memory.
//!
//! The shadow memory is an array of cells, one byte each, without tags. The cell of guest address
//! `a` has the offset `a mod 2^bits`. The first page is mapped a second time behind the end. So an
//! access that begins in the last cells continues in the first ones.

/// Bytes of the first page that are mapped again behind the end.
pub const ALIAS: usize = 4096;

/// A shadow memory of `2^bits` cells.
///
/// ```
/// use hindsight_isa::Predictor;
/// assert_eq!(Predictor::WINDOW.cell(0x7fff_1234_5678), 0x1234_5678);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predictor {
    /// 32 for the window, 12 to 31 for a smaller shadow memory.
    pub bits: u8,
}

impl Predictor {
    /// The window: 4 GiB of address space, committed page by page as it is touched.
    pub const WINDOW: Predictor = Predictor { bits: 32 };

    /// Number of cells, which is also the number of bytes.
    pub const fn size(self) -> u64 {
        1 << self.bits
    }

    /// Offset of the cell of address `a`.
    pub const fn cell(self, a: u64) -> u64 {
        a & (self.size() - 1)
    }

    /// Parses `window` or `cache:SIZE`. SIZE is a power of two from 4k to 2g, with suffix k, m, g
    /// or none. `None` for anything else.
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

//! Reads and zeroes lines of access marks, on x86-64 with the widest vectors that the processor has.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

pub const LINE: usize = 64;

/// Two masks of a line of marks: the bytes that are not zero, and those that say that the value is known.
pub type Bits = [u64; 2];

// Only the mark of a known value has its highest bit set.
const _: () =
    assert!(hindsight_isa::observe::MARK == 0xff && hindsight_isa::observe::UNKNOWN < 0x80);

/// Looks at up to 64 lines of marks and zeroes them. Returns a bit for each line that had marks, and puts the
/// masks of these lines into `bits`.
#[cfg(target_arch = "x86_64")]
pub fn sweep(lines: &mut [[u8; LINE]], bits: &mut [Bits]) -> u64 {
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { by_avx2(lines, bits) };
    }
    by_sse2(lines, bits)
}

/// Looks at up to 64 lines of marks and zeroes them. Returns a bit for each line that had marks, and puts the
/// masks of these lines into `bits`.
#[cfg(not(target_arch = "x86_64"))]
pub fn sweep(lines: &mut [[u8; LINE]], bits: &mut [Bits]) -> u64 {
    by_bytes(lines, bits)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn by_bytes(lines: &mut [[u8; LINE]], bits: &mut [Bits]) -> u64 {
    let mut any = 0;
    for (i, (line, bits)) in lines.iter_mut().zip(bits).enumerate() {
        if *line == [0; LINE] {
            continue;
        }
        any |= 1 << i;
        *bits = [0; 2];
        for (k, mark) in line.iter().enumerate() {
            bits[0] |= u64::from(*mark != 0) << k;
            bits[1] |= u64::from(mark >> 7) << k;
        }
        line.fill(0);
    }
    any
}

#[cfg(target_arch = "x86_64")]
fn by_sse2(lines: &mut [[u8; LINE]], bits: &mut [Bits]) -> u64 {
    let mut any = 0;
    for (i, (line, bits)) in lines.iter_mut().zip(bits).enumerate() {
        let (mut zero, mut known) = (0u64, 0u64);
        for (n, part) in line.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: all x86-64 processors have SSE2, and the part has 16 bytes.
            let (z, k) = unsafe {
                let v = _mm_loadu_si128(part.as_ptr().cast());
                let z = _mm_cmpeq_epi8(v, _mm_setzero_si128());
                (_mm_movemask_epi8(z), _mm_movemask_epi8(v))
            };
            zero |= (z as u64) << (16 * n);
            known |= (k as u64) << (16 * n);
        }
        if zero != u64::MAX {
            any |= 1 << i;
            *bits = [!zero, known];
            line.fill(0);
        }
    }
    any
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_avx2(lines: &mut [[u8; LINE]], bits: &mut [Bits]) -> u64 {
    let none = _mm256_setzero_si256();
    let mut any = 0;
    for (i, (line, bits)) in lines.iter_mut().zip(bits).enumerate() {
        let at = line.as_mut_ptr().cast::<__m256i>();
        // SAFETY: the line has 64 bytes, which are two vectors of 32.
        let (a, b) = unsafe { (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))) };
        let both = _mm256_or_si256(a, b);
        if _mm256_testz_si256(both, both) != 0 {
            continue;
        }
        let mask = |a, b| {
            let (a, b) = (_mm256_movemask_epi8(a), _mm256_movemask_epi8(b));
            a as u32 as u64 | (b as u32 as u64) << 32
        };
        any |= 1 << i;
        let zero = mask(_mm256_cmpeq_epi8(a, none), _mm256_cmpeq_epi8(b, none));
        *bits = [!zero, mask(a, b)];
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_si256(at, none);
            _mm256_storeu_si256(at.add(1), none);
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_isa::observe::{MARK, UNKNOWN};

    #[test]
    fn all_ways_say_the_same() {
        let mut lines = [[0; LINE]; 64];
        let mut want = [[0u64; 2]; 64];
        let mut any = 0u64;
        // Some lines have no marks.
        for i in (0..64).filter(|i| i % 3 != 0) {
            for (k, b) in lines[i].iter_mut().enumerate() {
                *b = [0, MARK, UNKNOWN, 0, MARK][(i + k) * k % 5];
                want[i][0] |= ((*b != 0) as u64) << k;
                want[i][1] |= ((*b == MARK) as u64) << k;
            }
            any |= ((want[i][0] != 0) as u64) << i;
        }
        let ways = [
            sweep,
            by_bytes,
            #[cfg(target_arch = "x86_64")]
            by_sse2,
        ];
        for way in ways {
            let (mut l, mut bits) = (lines, [[0; 2]; 64]);
            assert_eq!(way(&mut l, &mut bits), any);
            assert_eq!((l, bits), ([[0; LINE]; 64], want));
            assert_eq!(way(&mut l[..7], &mut bits), 0);
        }
    }
}

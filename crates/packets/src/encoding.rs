//! Numbers, bytes and run lengths as the protocol writes them.

/// A hexadecimal number of at most 64 bits, of digits only.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, d| {
        let digit = (*d as char).to_digit(16)?;
        (n.leading_zeros() >= 4).then_some(n << 4 | digit as u64)
    })
}

/// Two numbers with a separator between them.
pub(crate) fn numbers(both: &[u8], separator: u8) -> Option<(u64, u64)> {
    let (a, b) = split(both, separator)?;
    Some((number(a)?, number(b)?))
}

/// What is before and behind the first separator.
pub(crate) fn split(both: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = both.iter().position(|b| *b == separator)?;
    Some((&both[..at], &both[at + 1..]))
}

/// Bytes, of which each has two digits.
pub(crate) fn bytes(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|d| Some(number(d)? as u8)).collect()
}

/// Appends bytes as two digits each.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for b in bytes {
        out.extend([DIGITS[(b >> 4) as usize], DIGITS[(b & 15) as usize]]);
    }
}

/// Binary data as it stands in a packet: `#`, `$`, `}` and `*` are escaped.
pub fn escape(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    for b in data {
        match b {
            b'#' | b'$' | b'}' | b'*' => out.extend([b'}', b ^ 0x20]),
            _ => out.push(*b),
        }
    }
    out
}

/// Binary data as it was before it was escaped. `None`: the last byte begins an escape.
pub(crate) fn unescape(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(data.len());
    let mut rest = data.iter();
    while let Some(b) = rest.next() {
        out.push(match b {
            b'}' => rest.next()? ^ 0x20,
            other => *other,
        });
    }
    Some(out)
}

/// A run is a byte, a star, and how often the byte comes again, plus this.
const REPEAT: u8 = 29;
/// The longest run: the count is printable.
const LONGEST: usize = (b'~' - REPEAT) as usize + 1;
/// The shortest run that is worth it.
const SHORTEST: usize = 4;

/// Shortens runs of equal bytes.
pub(crate) fn shorten(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some(first) = rest.first() {
        let equal = rest.iter().take(LONGEST).take_while(|b| *b == first);
        let mut n = equal.count();
        if n < SHORTEST {
            out.extend(&rest[..n]);
        } else {
            // The count must not look like the end or the beginning of a packet.
            while matches!(REPEAT + (n - 1) as u8, b'#' | b'$') {
                n -= 1;
            }
            out.extend([*first, b'*', REPEAT + (n - 1) as u8]);
        }
        rest = &rest[n..];
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The opposite of [`shorten`].
    pub(crate) fn lengthen(content: &[u8]) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        let mut rest = content.iter();
        while let Some(b) = rest.next() {
            match (b, out.last().copied()) {
                (b'*', Some(last)) => {
                    let n = rest.next().unwrap() - REPEAT;
                    out.extend(std::iter::repeat_n(last, n as usize));
                }
                _ => out.push(*b),
            }
        }
        out
    }

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(number(b"1aF"), Some(0x1af));
        assert_eq!(number(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(number(b"0000000000000000001"), Some(1));
        for bad in [&b""[..], b"+1", b"-1", b"1g", b"0x1", b"10000000000000000"] {
            assert_eq!(number(bad), None);
        }
        assert_eq!(bytes(b"00ff"), Some(vec![0, 255]));
        assert_eq!((bytes(b"0"), bytes(b"+1")), (None, None));
        assert_eq!(unescape(b"a}"), None);
    }

    proptest! {
        #[test]
        fn runs_come_back(text in "(a{0,12}|b{0,120}|c){0,6}") {
            let short = shorten(text.as_bytes());
            prop_assert!(!short.iter().any(|b| matches!(b, b'#' | b'$')));
            prop_assert!(short.len() <= text.len());
            prop_assert_eq!(lengthen(&short), text.as_bytes());
        }

        #[test]
        fn escaped_data_comes_back(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let escaped = escape(&data);
            prop_assert!(!shorten(&escaped).iter().any(|b| matches!(b, b'#' | b'$')));
            let sent = lengthen(&shorten(&escaped));
            prop_assert_eq!(unescape(&sent).unwrap(), data);
        }
    }
}

//! Hexadecimal numbers in queries. The engine's parser takes `0x1f` for a string of bytes; people mean a number.

use std::borrow::Cow;

/// A query in which hexadecimal numbers are decimal ones.
pub struct Query<'a> {
    /// What the engine gets.
    pub text: Cow<'a, str>,
    /// Where the text behind a number begins, in both.
    shifts: Vec<(usize, usize)>,
}

impl Query<'_> {
    /// Where a byte of the engine's text is in the user's.
    pub fn origin(&self, at: usize) -> usize {
        let n = self.shifts.partition_point(|s| s.0 <= at);
        match n.checked_sub(1).map(|n| self.shifts[n]) {
            Some((made, given)) => given + (at - made),
            None => at,
        }
    }
}

/// Replaces numbers such as `0x1f`, but not in texts, names and comments. A number that is too large stays.
pub fn decimal(query: &str) -> Query<'_> {
    let bytes = query.as_bytes();
    let (mut out, mut shifts) = (String::new(), Vec::new());
    let (mut at, mut done) = (0, 0);
    while at < bytes.len() {
        let rest = &query[at..];
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
        let until = |end: &str| {
            rest[1..]
                .find(end)
                .map_or(rest.len(), |n| 1 + n + end.len())
        };
        match bytes[at] {
            quote @ (b'\'' | b'"' | b'`') => at += until(&(quote as char).to_string()),
            _ if rest.starts_with("--") => at += until("\n"),
            _ if rest.starts_with("/*") => at += until("*/"),
            b if word(b) => {
                let len = rest.bytes().take_while(|b| word(*b)).count();
                let digits = rest[..len]
                    .strip_prefix("0x")
                    .or(rest[..len].strip_prefix("0X"));
                if let Some(n) = digits.and_then(|d| u64::from_str_radix(d, 16).ok()) {
                    out += &query[done..at];
                    out += &n.to_string();
                    done = at + len;
                    shifts.push((out.len(), done));
                }
                at += len;
            }
            _ => at += 1,
        }
    }
    let text = match shifts.is_empty() {
        true => query.into(),
        false => (out + &query[done..]).into(),
    };
    Query { text, shifts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_decimal() {
        let of = |q| decimal(q).text.into_owned();
        assert_eq!(of("a = 0x1f and b=0XA"), "a = 31 and b=10");
        assert_eq!(of("writes(0x404060, 8)"), "writes(4210784, 8)");
        assert_eq!(of("0xffffffffffffffff"), u64::MAX.to_string());
        for same in [
            "'0x1f'",
            "\"0x1f\"",
            "a0x1f",
            "0x1g",
            "-- 0x1f",
            "/* 0x1f */",
            "0x",
            "'it''s 0x1'",
            "0x1ffffffffffffffff",
            "'é 0x1",
            "",
        ] {
            assert_eq!(of(same), same);
        }
        assert_eq!(of("-- c\n0x10 'x' 0x11"), "-- c\n16 'x' 17");
    }

    #[test]
    fn places_are_found_again() {
        let given = "select 0x7fffffffffff, x, 0x1 y";
        let q = decimal(given);
        for word in ["select", "x,", "y"] {
            let (made, was) = (q.text.find(word), given.rfind(word));
            assert_eq!(q.origin(made.unwrap()), was.unwrap(), "{word}");
        }
    }
}

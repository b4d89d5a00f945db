//! Words of the command line that several commands know.

use hindsight_timeline::Place;

/// A number as programmers write it: decimal, or hexadecimal with `0x`.
pub fn number(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|_| "expected a number, hexadecimal with 0x before it".into())
}

/// Two places with `..` between them.
pub fn range(text: &str) -> Result<(Place, Place), String> {
    let place = |t: &str| t.parse::<Place>().map_err(|e| e.to_string());
    let both = |at: usize| Ok((place(&text[..at])?, place(&text[at + 2..])?));
    // A name may have dots, too.
    let mut ways = text.match_indices("..").map(|(at, _)| both(at));
    let first = ways
        .next()
        .ok_or("expected two places with .. between them")?;
    first.or_else(|e: String| ways.find_map(Result::ok).ok_or(e))
}

//! Finds bytes in memory.

use crate::{Result, mappings};
use hindsight_timeline::{Cancel, Cursor, KnownByte, Mapping};
use memchr::memmem::Finder;

/// Bytes that are asked for at a time. An answer takes a hundred times as much memory.
const AT_A_TIME: u64 = 1 << 19;
/// Larger mappings are left out: they are reserved address space. Each byte that is asked for takes time.
const LARGEST: u64 = 4 << 30;
/// So many bytes are shown from where the wanted ones begin.
const SHOWN: usize = 64;

/// Where bytes were found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Match<'a> {
    /// The first address.
    pub address: u64,
    /// The mapping that has it.
    pub mapping: &'a Mapping,
    /// What is there and behind it, 64 bytes or fewer.
    pub bytes: &'a [Option<KnownByte>],
}

/// Finds the places at which the process in which the cursor stands has these bytes, in the order of their addresses. Of places that
/// overlap only the first one counts. Bytes that are not
/// known are not found, nor those in mappings that nobody may access or that have more than 4 GiB. `each` gets them, and says whether
/// it goes on.
///
/// # Errors
/// The recording does not answer, it was cancelled, or `each` fails.
pub fn grep<E: From<crate::Error>>(
    cursor: &mut Cursor,
    wanted: &[u8],
    cancel: &Cancel,
    each: &mut dyn FnMut(&Match) -> std::result::Result<bool, E>,
) -> std::result::Result<(), E> {
    if wanted.is_empty() {
        return Ok(());
    }
    let mut all = mappings(cursor)?;
    all.retain(|m| m.prot != 0 && m.end > m.start && m.end - m.start <= LARGEST);
    let finder = Finder::new(wanted);
    // What lies side by side is one.
    for here in all.chunk_by(|a, b| a.end == b.start) {
        let (Some(first), Some(last)) = (here.first(), here.last()) else {
            continue;
        };
        let overlap = wanted.len().max(SHOWN) as u64;
        let (mut at, stop) = (first.start, last.end);
        // Where the last match ended.
        let mut free = at;
        while at < stop {
            let end = at.saturating_add(AT_A_TIME).min(stop);
            let len = end.saturating_add(overlap).min(stop) - at;
            let known = known(cursor, (at, len as usize), cancel)?;
            for i in places(&finder, &known, wanted.len()) {
                let address = at + i as u64;
                if address < free {
                    continue;
                }
                let Some(mapping) = here.iter().find(|m| address < m.end) else {
                    continue;
                };
                if address >= end {
                    break;
                }
                free = address + wanted.len() as u64;
                let found = Match {
                    address,
                    mapping,
                    bytes: &known[i..known.len().min(i + SHOWN)],
                };
                if !each(&found)? {
                    return Ok(());
                }
            }
            at = end;
        }
    }
    Ok(())
}

/// Where bytes begin among known ones. Places do not overlap: otherwise those of many zeros would take for ever.
fn places(finder: &Finder, known: &[Option<KnownByte>], len: usize) -> Vec<usize> {
    let mut out = Vec::new();
    let mut at = 0;
    for run in known.chunk_by(|a, b| a.is_some() == b.is_some()) {
        let bytes: Vec<u8> = run.iter().flatten().map(|k| k.value).collect();
        let mut from = 0;
        while bytes.len() == run.len() && from + len <= bytes.len() {
            let Some(n) = finder.find(&bytes[from..]) else {
                break;
            };
            out.push(at + from + n);
            from += n + len;
        }
        at += run.len();
    }
    out
}

fn known(
    cursor: &mut Cursor,
    (at, len): (u64, usize),
    cancel: &Cancel,
) -> Result<Vec<Option<KnownByte>>> {
    cancel.check()?;
    let found = cursor.cancellable(cancel, |c| c.known_memory(at, len))?;
    Ok(found.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_timeline::Ground;

    #[test]
    fn unknown_bytes_are_in_no_match_and_matches_do_not_overlap() {
        let byte = |b: &u8| {
            (*b != b'?').then_some(KnownByte {
                value: *b,
                ground: Ground::Read,
            })
        };
        let find = |text: &[u8], what: &[u8]| {
            let known: Vec<_> = text.iter().map(byte).collect();
            places(&Finder::new(what), &known, what.len())
        };
        assert_eq!(find(b"aaaa?aa", b"aa"), [0, 2, 5]);
        assert_eq!(find(b"ab?ab", b"aba"), [0usize; 0]);
        assert_eq!(find(b"??ab", b"ab"), [2]);
        assert_eq!(find(b"a", b"ab"), [0usize; 0]);
    }
}

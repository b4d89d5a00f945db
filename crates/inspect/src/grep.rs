//! Finds bytes in memory.

use crate::{Result, mappings};
use hindsight_timeline::{Cancel, Cursor, KnownByte, Mapping};

/// Bytes that are asked for at a time. An answer takes a hundred times as much memory.
const AT_A_TIME: u64 = 1 << 19;
/// Larger mappings are left out: they are reserved address space. Each byte that is asked for takes time.
const LARGEST: u64 = 4 << 30;
/// So many bytes are shown from where the wanted ones begin.
pub const SHOWN: usize = 64;

/// Where bytes were found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Match<'a> {
    /// The first address.
    pub address: u64,
    /// The mapping that has it.
    pub mapping: &'a Mapping,
    /// What is there and behind it, [`SHOWN`] bytes or fewer.
    pub bytes: &'a [Option<KnownByte>],
}

/// Finds all places at which the process in which the cursor stands has these bytes, in the order of their addresses. Bytes that are not
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
    let all = mappings(cursor)?;
    let overlap = wanted.len().max(SHOWN) as u64;
    for m in all.iter().filter(|m| m.prot != 0 && m.end > m.start) {
        if m.end - m.start > LARGEST || wanted.is_empty() {
            continue;
        }
        let mut at = m.start;
        while at < m.end {
            let end = at.saturating_add(AT_A_TIME).min(m.end);
            let len = end.saturating_add(overlap).min(m.end) - at;
            let known = known(cursor, (at, len as usize), cancel)?;
            for i in 0..(end - at) as usize {
                let is = |(b, w): (&Option<KnownByte>, &u8)| b.is_some_and(|k| k.value == *w);
                let here = &known[i..];
                if here.len() < wanted.len() || !here.iter().zip(wanted).all(is) {
                    continue;
                }
                let found = Match {
                    address: at + i as u64,
                    mapping: m,
                    bytes: &here[..here.len().min(SHOWN)],
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

fn known(
    cursor: &mut Cursor,
    (at, len): (u64, usize),
    cancel: &Cancel,
) -> Result<Vec<Option<KnownByte>>> {
    cancel.check()?;
    let found = cursor.cancellable(cancel, |c| c.known_memory(at, len))?;
    Ok(found.bytes)
}

//! Memory of a process at an instant.

use super::MappedRange;
use super::threads::{Rest, Threads};
use crate::Result;
use hindsight_timeline::{Cancel, Cursor};

/// Bytes that are asked for at a time. An answer takes a hundred times as much memory.
const AT_A_TIME: u64 = 1 << 15;
/// A larger mapping without any right is not looked at: it is reserved address space.
const LARGEST_RESERVED: u64 = 1 << 26;
/// A larger mapping is not looked at.
const LARGEST: u64 = 4 << 30;

/// Memory that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The first address.
    pub address: u64,
    /// How many bytes.
    pub len: u64,
    /// Who could miss it.
    pub why: Why,
}

/// What memory is that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The program may read it.
    Needed,
    /// Nobody may access it (`PROT_NONE`).
    Reserved,
    /// No program can rely on it: it is below the end of a stack, or a thread that has ended has left it on its own.
    Left,
}

/// Hands all memory that is known of these mappings to `each`, in order of address: stretches of at most 256 KiB. Zeros are
/// left out where a whole stretch has them. Says what is not known: at most `most` stretches of each kind, of which the last one
/// stands for the rest, too. Looks no further once so many stretches that the process could read are not known. Besides these, one stands for all of each
/// mapped file that may be mapped again.
///
/// # Errors
/// - The recording does not answer.
/// - It was cancelled.
/// - `each` fails.
pub fn known(
    cursor: &mut Cursor,
    ranges: &[MappedRange],
    threads: &Threads,
    most: usize,
    cancel: &Cancel,
    each: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
) -> Result<Vec<Unknown>> {
    let mut unknown: Vec<Unknown> = Vec::new();
    // Files that may be there to be mapped again: each counts as one stretch, and does not end the search.
    let mut mapped: Vec<Unknown> = Vec::new();
    for r in ranges {
        if unknown.iter().filter(|u| u.why == Why::Needed).count() >= most {
            break;
        }
        let why = if r.prot == 0 {
            Why::Reserved
        } else {
            Why::Needed
        };
        let (mut at, mut end) = (r.start, r.end);
        let largest = match why {
            Why::Reserved => LARGEST_RESERVED,
            _ => LARGEST,
        };
        if end - at > largest && r.stat.is_some() {
            mapped.push(Unknown {
                address: at,
                len: end - at,
                why,
            });
            end = at;
        } else if end - at > largest {
            add(&mut unknown, most, (at, end - at, why));
            end = at;
        }
        while at < end {
            let len = AT_A_TIME.min(end - at);
            let found = cursor.cancellable(cancel, |c| c.known_memory(at, len as usize))?;
            let mut from = at;
            for part in found.bytes.chunk_by(|a, b| a.is_some() == b.is_some()) {
                match part[0] {
                    None if r.stat.is_some() => match mapped.last_mut() {
                        Some(last) if last.address >= r.start => last.len += part.len() as u64,
                        _ => mapped.push(Unknown {
                            address: from,
                            len: part.len() as u64,
                            why,
                        }),
                    },
                    None => {
                        let len = part.len() as u64;
                        let rest = match why {
                            Why::Needed => threads.rest(cursor, from, len)?,
                            _ => Rest::Needed,
                        };
                        match rest {
                            Rest::Needed => add(&mut unknown, most, (from, len, why)),
                            Rest::Left => add(&mut unknown, most, (from, len, Why::Left)),
                            Rest::Zero => {}
                            Rest::Holds(bytes) => each(from, &bytes)?,
                        }
                    }
                    Some(_) => {
                        let bytes: Vec<u8> = part.iter().flatten().map(|k| k.value).collect();
                        if bytes.iter().any(|b| *b != 0) {
                            each(from, &bytes)?;
                        }
                    }
                }
                from += part.len() as u64;
            }
            at += len;
        }
    }
    unknown.append(&mut mapped);
    Ok(unknown)
}

fn add(to: &mut Vec<Unknown>, most: usize, (address, len, why): (u64, u64, Why)) {
    let full = to.iter().filter(|u| u.why == why).count() >= most;
    match to.iter_mut().rfind(|u| u.why == why) {
        Some(last) if full || last.address + last.len == address => last.len += len,
        _ => to.push(Unknown { address, len, why }),
    }
}

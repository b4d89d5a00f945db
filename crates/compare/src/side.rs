//! What two recordings moved through descriptors.

use crate::{Both, Result};
use hindsight_timeline::Happening;

/// One of the recordings.
pub use hindsight_origin::Recorded as Side;

/// Bytes that are looked up at a time.
const AT_A_TIME: u64 = 1 << 16;
/// Bytes that are shown from the first one on that differs.
const SHOWN: usize = 16;

/// The first byte that differs in what two calls moved, as far as both are known; and that byte and some behind it, of each.
pub fn first_different(
    sides: &mut Both<Side>,
    calls: Both<&Happening>,
) -> Result<Option<(u64, Both<Vec<u8>>)>> {
    let mut at = 0;
    loop {
        let [a, b] = sides;
        let (x, y) = (
            a.bytes(calls[0], at, AT_A_TIME)?,
            b.bytes(calls[1], at, AT_A_TIME)?,
        );
        let differ = |(a, b): (&Option<u8>, &Option<u8>)| a.is_some() && b.is_some() && a != b;
        let common = x.len().min(y.len());
        let found = x.iter().zip(&y).position(differ);
        let found = found.or((x.len() != y.len()).then_some(common));
        if let Some(i) = found {
            let shown = |v: &[Option<u8>]| v.iter().skip(i).map_while(|b| *b).take(SHOWN).collect();
            return Ok(Some((at + i as u64, [shown(&x), shown(&y)])));
        }
        if (common as u64) < AT_A_TIME {
            return Ok(None);
        }
        at += AT_A_TIME;
    }
}

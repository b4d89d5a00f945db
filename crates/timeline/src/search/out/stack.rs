//! The words of a stack that may be return addresses.

use crate::model::memory::Detail;
use crate::model::stops::Watch;
use crate::play::Viewpoint;
use crate::value;
use crate::{Mapping, Result};
use std::sync::Arc;

const PAGE: u64 = 4096;
const WORD: u64 = 8;

/// The stack from an address on.
pub struct Words {
    /// Words that hold addresses of code: where they are and what they hold, ascending.
    pub addresses: Vec<(u64, u64)>,
    /// Stretches that are not known: address and length, ascending.
    unknown: Vec<(u64, u64)>,
    /// The words are the whole stack.
    pub all: bool,
}

/// One past the last address of the stack that contains an address. `None`: no mapping contains it. Pages of a stack
/// may have different protections. A page without any is a guard, and another stack may begin after it.
pub fn top(mapped: &[Mapping], address: u64) -> Option<u64> {
    let mut top = None;
    for m in mapped.iter().filter(|m| m.end > address) {
        match top {
            None if m.start <= address => {}
            Some(top) if top == m.start && m.prot != 0 => {}
            _ => break,
        }
        top = Some(m.end);
    }
    top
}

/// Looks at up to `frame` bytes from `floor` on, as far as the stack goes.
pub fn words(view: &mut Viewpoint, floor: u64, frame: u64) -> Result<Words> {
    // Mappings tell where the stack ends. Memory does not: in large frames, whole pages may never have been accessed.
    let mapped = view.engine().mappings(view.image(), view.position()?)?;
    let top = top(&mapped, floor);
    let end = floor.saturating_add(frame).min(top.unwrap_or(u64::MAX));
    let mut out = Words {
        addresses: Vec::new(),
        unknown: Vec::new(),
        all: Some(end) == top,
    };
    let mut at = floor;
    while at < end {
        let next = end.min((at | (PAGE - 1)).saturating_add(1));
        let memory = value::memory(view, at, (next - at) as usize, Detail::Known)?;
        let (words, _) = memory.bytes.as_chunks::<{ WORD as usize }>();
        for (slot, word) in (at..).step_by(WORD as usize).zip(words) {
            let mut bytes = [0; WORD as usize];
            let known = word.iter().zip(&mut bytes).all(|(known, b)| {
                *b = known.map_or(0, |k| k.value);
                known.is_some()
            });
            let to = u64::from_le_bytes(bytes);
            if !known {
                match out.unknown.last_mut() {
                    Some((from, len)) if *from + *len == slot => *len += WORD,
                    _ => out.unknown.push((slot, WORD)),
                }
            } else if is_code(view, to)? {
                out.addresses.push((slot, to));
            }
        }
        at = next;
    }
    Ok(out)
}

/// Whether a call may end at an address. Executed code is known. The code after a call need not have been executed, the
/// call itself was.
fn is_code(view: &mut Viewpoint, to: u64) -> Result<bool> {
    Ok(!view.code(to, 1)?.is_empty() || !view.code(to.wrapping_sub(1), 1)?.is_empty())
}

impl Words {
    /// The unknown words that a call or a return may have accessed among instructions `from..to`. `watch` says in which
    /// way.
    pub fn unknown(
        &self,
        view: &mut Viewpoint,
        (from, to): (u64, u64),
        watch: Watch,
    ) -> Result<Vec<u64>> {
        let (thread, engine) = (view.thread(), Arc::clone(view.engine()));
        let parts = match self.unknown.is_empty() {
            true => Vec::new(),
            false => engine.intervals(thread, (from, to), view.cancel())?,
        };
        let touched = |address, len, reads, writes| -> Result<bool> {
            for (part, within) in &parts {
                let set = part.touching(&engine, address, len, reads, writes)?;
                if within.clone().any(|i| set.has(i)) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let (reads, writes) = (watch == Watch::Read, watch == Watch::Write);
        let mut out = Vec::new();
        let mut left = self.unknown.clone();
        while let Some((slot, len)) = left.pop() {
            if !touched(slot, len, reads, writes)? {
                continue;
            }
            if len > WORD {
                let half = (len / 2).next_multiple_of(WORD);
                left.extend([(slot, half), (slot + half, len - half)]);
                continue;
            }
            // A smaller variable may leave bytes of the word that nothing accesses.
            let mut whole = true;
            for at in slot..slot + WORD {
                whole = whole && touched(at, 1, true, true)?;
            }
            if whole {
                out.push(slot);
            }
        }
        Ok(out)
    }
}

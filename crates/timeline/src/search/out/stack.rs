//! The words of a stack, and which of them may be return addresses.

use crate::model::memory::Detail;
use crate::model::stops::{Cancel, Watch};
use crate::play::Viewpoint;
use crate::value;
use crate::{Mapping, Result};
use std::sync::Arc;

const PAGE: u64 = 4096;
const WORD: u64 = 8;

/// The stack from an address on.
pub struct Words {
    /// The words that are addresses of code: where they are, and what they are, ascending.
    pub addresses: Vec<(u64, u64)>,
    /// Stretches of words that are not known, by address and length, ascending.
    unknown: Vec<(u64, u64)>,
    /// That is all of the stack.
    pub all: bool,
}

/// The first address behind the stack that an address is in; `None`: it is in none. Pages of a stack may have several
/// rights; behind one without any, which guards it, another stack may begin.
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

/// Looks at `frame` bytes from `floor` on, if the stack has so many.
pub fn words(view: &mut Viewpoint, floor: u64, frame: u64, cancel: &Cancel) -> Result<Words> {
    // Of large frames, whole pages may never have been accessed: where the stack ends is not to be seen from memory.
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
        let memory = value::memory(view, at, (next - at) as usize, Detail::Known, cancel)?;
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

/// Whether there may be a call before an address. What was executed is known; what comes behind a call need not have been.
fn is_code(view: &mut Viewpoint, to: u64) -> Result<bool> {
    Ok(!view.code(to, 1)?.is_empty() || !view.code(to.wrapping_sub(1), 1)?.is_empty())
}

impl Words {
    /// The words that are not known and that a call, or a return (`watch`: what it does), may have accessed among the
    /// thread's instructions `from..to`.
    pub fn unknown(
        &self,
        view: &mut Viewpoint,
        (from, to): (u64, u64),
        watch: Watch,
        cancel: &Cancel,
    ) -> Result<Vec<u64>> {
        let (thread, engine) = (view.thread(), Arc::clone(view.engine()));
        let mut parts = Vec::new();
        let mut at = from;
        while at < to
            && !self.unknown.is_empty()
            && let Some(part) = engine.part_at(thread, at, cancel)?
        {
            let within = part.interval(at)..=part.interval(to - 1);
            at = part.to.max(at + 1);
            parts.push((part, within));
        }
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
            // Of a smaller variable there may be bytes that nothing accesses.
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

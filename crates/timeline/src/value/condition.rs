//! Memory as a condition of a breakpoint sees it. Such questions are frequent, so answers are remembered.

use super::accessed::{one, settle, take};
use super::past;
use super::query::{Query, code, floor};
use super::restated;
use crate::Result;
use crate::model::memory::KnownByte;
use crate::model::stops::{Cancel, View};
use crate::play::Player;
use hindsight_isa::{CpuState, VecState};
use std::sync::Arc;

/// Names what a word held at some instant.
type Word = (u64, u64, u64);

/// The earlier values of this many words stay in memory.
const REMEMBERED: usize = 1 << 14;

/// Copies what this thread knows of memory. `false`: some of it is not known.
pub fn read(p: &mut Player, address: u64, buf: &mut [u8]) -> Result<bool> {
    let mut q = Query::new(address, buf.len(), &Cancel::new());
    let here = p.count();
    take(p, here, &mut q, 0..buf.len());
    if !q.unclear().is_empty() {
        settle(p, here, &mut q)?;
    }
    if !q.whole() {
        let (since, engine) = (p.since(), Arc::clone(p.engine()));
        let floor = floor(&engine, p.thread, &q.m, here)?;
        for (i, floor) in floor.into_iter().enumerate() {
            if q.open(i) && floor < since {
                let at = address.wrapping_add(i as u64);
                q.m.bytes[i] = earlier(p, at & !7)?[(at & 7) as usize];
            }
        }
    }
    code(p, &mut q.m);
    for (b, k) in buf.iter_mut().zip(&q.m.bytes) {
        match k {
            Some(k) => *b = k.value,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// What is known of a word at the instant where the player's marks begin. Answers are remembered for that instant, and
/// by the interval that touched the word last.
fn earlier(p: &mut Player, word: u64) -> Result<[Option<KnownByte>; 8]> {
    let since = p.since();
    let here = (word, since, u64::MAX);
    if let Some(known) = p.word_values.get(&here) {
        return Ok(*known);
    }
    let engine = Arc::clone(p.engine());
    let mut q = Query::new(word, 8, &p.cancel);
    let mut floor = floor(&engine, p.thread, &q.m, since)?;
    restated::raise(&engine, p.thread, &q.m, since, &mut floor)?;
    if p.is_ahead() {
        restated::fill(p, since, &floor, &mut q)?;
        if q.whole() {
            // Bytes that were accessed since are of no interest, so the answer is not remembered.
            return Ok(std::array::from_fn(|i| q.m.bytes[i]));
        }
        // The recording does not tell all of it.
        let mut q = Query::new(word, 8, &p.cancel);
        p.with_helper(|h| {
            h.seek_by_index(since)?;
            one(h, since, &mut q)
        })?;
        return Ok(remember(p, [here, here], &q));
    }
    let newest = floor.iter().max().copied().unwrap_or(0);
    let touch = match floor.iter().any(|n| *n < since) {
        true => past::last(&engine, p.thread, word, 8, since, &p.cancel)?,
        false => None,
    };
    // What changed it since then belongs to the key, too. Intervals of two levels may begin together.
    let key = match &touch {
        Some(t) => (word, newest.max(t.from), t.to),
        None => (word, newest, newest),
    };
    if let Some(known) = p.word_values.get(&key) {
        return Ok(*known);
    }
    past::before(&engine, p.thread, since, &floor, &mut q)?;
    restated::fill(p, since, &floor, &mut q)?;
    Ok(remember(p, [here, key], &q))
}

/// Remembers an answer under two names.
fn remember(p: &mut Player, names: [Word; 2], q: &Query) -> [Option<KnownByte>; 8] {
    let mut known = [None; 8];
    known.copy_from_slice(&q.m.bytes);
    if p.word_values.len() + names.len() > REMEMBERED {
        p.word_values.clear();
    }
    p.word_values.extend(names.map(|n| (n, known)));
    known
}

impl View for Player {
    fn registers(&self) -> CpuState {
        Player::registers(self)
    }
    fn vectors(&self) -> VecState {
        Player::vectors(self)
    }
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<bool> {
        read(self, address, buf)
    }
}

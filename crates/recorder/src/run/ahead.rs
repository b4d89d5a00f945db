//! Fills lines of the shadow memory before a thread comes to them (see [`crate::thread::ahead`]).

use crate::memory::commons::{self, BLOCK};
use crate::run::lines::{self, Changes};
use crate::run::shadow::Shadow;
use crate::sys::{self, PAGE};
use crate::thread::Thread;
use hindsight_events::event::LINE;
use hindsight_isa::Predictor;

/// A common block of which more lines differ from memory is given to nobody any more.
const MOST_DIFFER: u64 = BLOCK / LINE / 4;

/// Called when a read of `len` bytes at `addr` was mispredicted, and the cells agree with memory again.
pub fn after(t: &mut Thread, addr: u64, len: u64) {
    let first = addr & !(LINE - 1);
    let Some(last) = addr.checked_add(len.max(1) - 1) else {
        return;
    };
    let Some(end) = (last & !(LINE - 1)).checked_add(LINE) else {
        return;
    };
    // In fewer cells, what is filled would take the place of what is needed.
    if t.window.predictor() != Predictor::WINDOW {
        return;
    }
    let wanted = t.ahead.came(first, end);
    if wanted != 0 && !t.is_plain() && !t.is_unrecorded() {
        let room = Predictor::WINDOW.size() - Predictor::WINDOW.cell(end);
        // At most to the end of a block, so that the thread comes to the next one at its first line.
        let block = (end + 1).next_multiple_of(BLOCK) - end;
        let upto = end + commons::readable(end, wanted.min(room).min(block));
        let filled = fill(t, first, end, upto);
        t.ahead.filled(filled);
    }
}

/// Fills the lines `from..end`, all of one block. Those from `first` on were filled just now. Returns up to where.
fn fill(t: &mut Thread, first: u64, from: u64, end: u64) -> u64 {
    let block = end.saturating_sub(BLOCK);
    if end.is_multiple_of(BLOCK) && (first..=from).contains(&block) && take(t, block) {
        return end;
    }
    let mut at = from;
    while at < end {
        let page_end = end.min((at + 1).next_multiple_of(PAGE));
        if page_end - at == PAGE {
            // All of it is likely to be written, and not just read.
            sys::madvise_populate(t.cell(at) as u64, PAGE);
        }
        let mut changes = Changes::from(at);
        while at < page_end
            && let Ok(now) = lines::load(at)
        {
            let old = t.set_line(at, &now);
            changes.push(&old, &now);
            at += LINE;
        }
        if let Some(event) = changes.event() {
            t.event(&event);
        }
        if at < page_end {
            break;
        }
    }
    at
}

/// Fills the block at `addr` with what memory holds, and lets the cells be those that threads have in common. Returns whether it
/// did.
fn take(t: &mut Thread, addr: u64) -> bool {
    let Some(old) = commons::take(t, addr) else {
        return false;
    };
    let mut differ = 0;
    for page in (0..BLOCK).step_by(PAGE as usize) {
        let mut changes = Changes::from(addr + page);
        for offset in (page..page + PAGE).step_by(LINE as usize) {
            let before = old.line(offset);
            // What was unmapped since keeps what it held.
            let now = lines::load(addr + offset).unwrap_or(before);
            differ += (t.set_line(addr + offset, &now) != now) as u64;
            changes.push(&before, &now);
        }
        if let Some(event) = changes.event() {
            t.event(&event);
        }
    }
    if differ > MOST_DIFFER {
        commons::let_go(addr);
    }
    true
}

//! Fills lines of the shadow memory before a thread comes to them (see [`crate::thread::ahead`]).

use crate::memory::commons::{self, BLOCK, Old};
use crate::run::lines::{self, Changes, Page};
use crate::run::shadow::Shadow;
use crate::sys::{self, PAGE};
use crate::thread::Thread;
use hindsight_events::event::{LINE, LINES};
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
        let wanted = end + commons::readable(end, upto(end, wanted) - end).min(room);
        let filled = fill(t, first, end, wanted);
        t.ahead.filled(filled);
    }
}

/// Where to stop that is worth filling `wanted` bytes from `from` on. If that is behind the end of a block, it is the end of one,
/// so that the thread comes to the next one at its first line.
fn upto(from: u64, wanted: u64) -> u64 {
    let end = from.saturating_add(wanted);
    match end / BLOCK == from / BLOCK {
        true => end,
        false => end / BLOCK * BLOCK,
    }
}

/// Fills the lines `from..end`. Those from `first` on were filled just now. Returns up to where.
fn fill(t: &mut Thread, first: u64, from: u64, end: u64) -> u64 {
    let mut at = from;
    while at < end {
        let block = at / BLOCK * BLOCK;
        let part = end.min(block + BLOCK);
        let is_whole = first <= block && part == block + BLOCK;
        if !(is_whole && take(t, block)) {
            let filled = say(t, at, part, None).upto;
            if filled < part {
                return filled;
            }
        }
        at = part;
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
    for page in (addr..addr + BLOCK).step_by(PAGE as usize) {
        if !refer(t, page, &old) {
            differ += say(t, page, page + PAGE, Some(&old)).differ;
        }
    }
    if differ > MOST_DIFFER {
        commons::let_go(addr);
    }
    true
}

/// Records how the cells of a page have changed from `old` to those that threads have in common, by a reference to these. Returns
/// false, and does nothing, if memory does not hold the same.
fn refer(t: &mut Thread, page: u64, old: &Old) -> bool {
    let mut now = [[0; 8]; LINES];
    // SAFETY: the window is readable and aligned to pages, and only this thread writes to it.
    let cells = unsafe { &*t.cell(page).cast::<Page>() };
    if lines::load_page(page, &mut now).is_err() || now != *cells {
        return false;
    }
    let mut masks = [0; LINES];
    for (i, (mask, now)) in masks.iter_mut().zip(&now).enumerate() {
        *mask = lines::difference(&old.line(page % BLOCK + i as u64 * LINE), now);
    }
    if masks != [0; LINES] {
        t.emit.refer(t.pos, page, &masks);
    }
    true
}

/// What [`say`] did.
struct Said {
    /// Where it stopped.
    upto: u64,
    /// How many lines of cells differed from memory.
    differ: u64,
}

/// Fills the lines `from..end` with what memory holds, and records how they change. With `old`, all of them are of one block, whose
/// cells have been replaced since they held that. Otherwise it stops where memory cannot be read.
fn say(t: &mut Thread, from: u64, end: u64, old: Option<&Old>) -> Said {
    let (mut at, mut differ) = (from, 0);
    while at < end {
        let page_end = end.min((at + 1).next_multiple_of(PAGE));
        if old.is_none() && page_end - at == PAGE {
            // All of it is likely to be written, and not just read.
            sys::madvise_populate(t.cell(at) as u64, PAGE);
        }
        let mut changes = Changes::from(at);
        while at < page_end {
            let before = old.map(|o| o.line(at % BLOCK));
            // What was unmapped since keeps what it held.
            let Some(now) = lines::load(at).ok().or(before) else {
                break;
            };
            let cells = t.set_line(at, &now);
            differ += (cells != now) as u64;
            changes.push(&before.unwrap_or(cells), &now);
            at += LINE;
        }
        if let Some(event) = changes.event() {
            t.event(&event);
        }
        if at < page_end {
            break;
        }
    }
    Said { upto: at, differ }
}

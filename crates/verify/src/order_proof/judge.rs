//! Compares atomic operations on the same bytes with each other, and with other writes to these bytes.

use super::OrderReport;
use super::play::{Op, Store, Unknown};
use hindsight_events::ring::stripe_of;
use hindsight_trace::Taken;
use std::collections::HashMap;

/// The known bytes of a word, and for each byte the index of the operation that left it.
#[derive(Default)]
struct Cell {
    mask: u8,
    value: u64,
    last: [usize; 8],
}

/// An operation that read something other than the operations before it left.
pub struct Mismatch {
    pub op: Op,
    pub expected: u64,
    /// The bytes that differ, grouped by the last operation on them. Two variables may share a word.
    pub parts: Vec<OpBytes>,
}

/// Bytes that one operation left and another one found changed.
#[derive(Clone, Copy)]
pub struct OpBytes {
    pub before: Op,
    pub mask: u8,
}

/// The bits of the bytes that `mask` selects.
pub fn bits(mask: u8) -> u64 {
    (0..8)
        .filter(|i| mask >> i & 1 != 0)
        .fold(0, |m, i| m | 0xff << (8 * i))
}

/// Compares each operation with the one before it. Returns the operations that do not fit.
pub fn judge(mut ops: Vec<Op>, report: &mut OrderReport) -> Vec<Mismatch> {
    // An operation without an order number of its own has the number of its segment.
    ops.sort_by_key(|o| (o.number, o.stream, o.pos));
    let mut cells: HashMap<u64, Cell> = HashMap::new();
    let mut out = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        report.operations += 1;
        let cell = cells.entry(op.word).or_default();
        let wrong = (0..8)
            .filter(|i| cell.mask & op.mask & 1 << i != 0)
            .filter(|i| (cell.value ^ op.before) >> (8 * i) & 0xff != 0)
            .fold(0u8, |m, i| m | 1 << i);
        match wrong {
            0 if cell.mask & op.mask == 0 => report.first += 1,
            0 => report.proven += 1,
            _ => out.push(Mismatch {
                op: *op,
                expected: cell.value,
                parts: parts(wrong, &cell.last, &ops),
            }),
        }
        cell.value = cell.value & !bits(op.mask) | op.after;
        cell.mask |= op.mask;
        for (_, last) in bytes(op.mask, &mut cell.last) {
            *last = at;
        }
    }
    out
}

/// The entries of `all`, which has one for each byte of a word, that `mask` selects.
fn bytes<T>(mask: u8, all: &mut [T; 8]) -> impl Iterator<Item = (usize, &mut T)> {
    let named = move |(i, _): &(usize, &mut T)| mask >> i & 1 != 0;
    all.iter_mut().enumerate().filter(named)
}

/// The bytes that `mask` selects, grouped by the operation that left them.
fn parts(mask: u8, last: &[usize; 8], ops: &[Op]) -> Vec<OpBytes> {
    let mut out: Vec<(usize, u8)> = Vec::new();
    for i in (0..8).filter(|i| mask >> i & 1 != 0) {
        match out.iter_mut().find(|p| p.0 == last[i]) {
            Some(p) => p.1 |= 1 << i,
            None => out.push((last[i], 1 << i)),
        }
    }
    let part = |(at, mask): (usize, u8)| OpBytes {
        before: ops[at],
        mask,
    };
    out.into_iter().map(part).collect()
}

/// Finds operations whose place is not exact because their lock was taken from its thread.
pub struct Displaced {
    /// For each lock that was taken: the order number at which it was taken, and the number of the last
    /// operation before that. This last operation may be the one that was stopped.
    locks: HashMap<usize, (u64, u64)>,
}

impl Displaced {
    pub fn new(taken: &[Taken]) -> Displaced {
        let mut locks = HashMap::new();
        for t in taken {
            let first = locks.entry(t.lock as usize).or_insert((u64::MAX, u64::MAX));
            let number = first.0.min(t.number);
            *first = (number, number);
        }
        Displaced { locks }
    }

    /// Notes an operation. All operations must be noted before [`Displaced::has`] is called.
    pub fn see(&mut self, op: &Op) {
        if let Some((taken, last)) = self.locks.get_mut(&stripe_of(op.word))
            && op.number < *taken
            && (*last == *taken || op.number > *last)
        {
            *last = op.number;
        }
    }

    /// Whether the operation's place may not be exact. Only the offset of its address in the page matters.
    pub fn has(&self, op: &Op) -> bool {
        let lock = self.locks.get(&stripe_of(op.word));
        lock.is_some_and(|(_, last)| op.number >= *last)
    }
}

/// Whether an operation may have read what the kernel leaves in a robust lock after its owner died.
pub fn released(op: &Op, part: &OpBytes) -> bool {
    const OWNER_DIED: u64 = 0x4000_0000;
    [0, 32].into_iter().any(|half| {
        let differs = part.mask >> (half / 8) & 0xf != 0;
        differs && op.before >> half & OWNER_DIED != 0
    })
}

/// Whether plain stores explain all bytes of a part.
pub fn stored(b: &Op, part: &OpBytes, stores: &[Store]) -> bool {
    let a = &part.before;
    let possible = |s: &&Store| {
        let before_b = if s.stream == b.stream {
            s.pos < b.pos
        } else {
            s.open < b.next
        };
        let after_a = if s.stream == a.stream {
            s.pos > a.pos
        } else {
            s.close > a.number
        };
        before_b && after_a
    };
    let same = |s: &Store, i: u32| {
        s.mask >> i & 1 != 0
            && s.value
                .is_none_or(|v| (v ^ b.before) >> (8 * i) & 0xff == 0)
    };
    // The stores are sorted by `open`. A store that began after the operation cannot have come before it.
    let end = stores.partition_point(|s| s.open < b.next);
    let mut left = part.mask;
    for s in stores[..end].iter().rev().filter(possible) {
        for i in 0..8 {
            if left >> i & 1 != 0 && same(s, i) {
                left &= !(1 << i);
            }
        }
        if left == 0 {
            return true;
        }
    }
    false
}

/// Stretches of the order, sorted by their start. Each has the greatest end of all up to it.
pub struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    pub fn new(list: &mut [Unknown]) -> Intervals {
        list.sort_by_key(|u| u.open);
        let mut most = 0;
        let with = |u: &Unknown| {
            most = most.max(u.close);
            (u.open, most)
        };
        Intervals(list.iter().map(with).collect())
    }

    /// Whether one of the stretches may overlap the stretch between two order numbers.
    pub fn any(&self, from: u64, to: u64) -> bool {
        let n = self.0.partition_point(|(open, _)| *open < to);
        n.checked_sub(1).is_some_and(|i| self.0[i].1 > from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u64, word: u64) -> Op {
        Op {
            number,
            next: number + 1,
            stream: 2,
            pos: number,
            pc: 0,
            word,
            mask: 0xff,
            before: 0,
            after: 0,
        }
    }

    /// An operation on some bytes of a word.
    fn on(number: u64, mask: u8, before: u64, after: u64) -> Op {
        Op {
            mask,
            before,
            after,
            ..op(number, 0x1000)
        }
    }

    #[test]
    fn variables_that_share_a_word_are_told_apart() {
        const HIGH: u64 = 1 << 32;
        // A plain store to the upper variable, an operation on the lower one, and an operation on the upper
        // one.
        let ops = vec![
            on(10, 0xf0, 0, HIGH),
            on(20, 0x0f, 0, 5),
            on(30, 0xf0, 0, HIGH),
        ];
        let mut report = OrderReport::default();
        let found = judge(ops, &mut report);
        assert_eq!((report.first, report.proven, found.len()), (2, 0, 1));
        let part = found[0].parts[0];
        assert_eq!((part.before.number, part.mask), (10, 0x10));
        let store = |pos, value| Store {
            stream: 2,
            pos,
            open: pos,
            close: pos + 1,
            word: 0x1000,
            mask: 0xf0,
            value: Some(value),
        };
        assert!(stored(&found[0].op, &part, &[store(15, 0)]));
        assert!(!stored(&found[0].op, &part, &[store(15, HIGH)]));
        assert!(!stored(&found[0].op, &part, &[store(5, 0)]));
        assert!(!stored(&found[0].op, &part, &[store(35, 0)]));
        // For an operation that finds both changed, each byte names who left it.
        let ops = vec![
            on(10, 0xf0, 0, HIGH),
            on(20, 0x0f, 0, 5),
            on(30, 0xff, 7, 7),
        ];
        let found = judge(ops, &mut report);
        let who = |p: &OpBytes| (p.before.number, p.mask);
        let who: Vec<_> = found[0].parts.iter().map(who).collect();
        assert_eq!(who, [(20, 1), (10, 0x10)]);
    }

    #[test]
    fn what_is_displaced_begins_with_the_operation_that_was_stopped() {
        let taken = Taken {
            lock: stripe_of(0x7000_1230) as u32,
            number: 50,
        };
        // If the lock was taken again later, the first time counts.
        let again = |number| Taken { number, ..taken };
        let mut displaced = Displaced::new(&[again(70), taken, again(55)]);
        // The order does not matter. The words are two at different addresses with the same lock, and one
        // with another lock.
        for (number, word) in [
            (60, 0x7000_1230),
            (30, 0x7000_1238),
            (40, 0x5230),
            (10, 0x5230),
            (49, 0x1240),
        ] {
            displaced.see(&op(number, word));
        }
        for (number, word, is) in [
            (30, 0x7000_1230, false),
            (40, 0x7000_1230, true),
            (60, 0x9238, true),
            (60, 0x9240, false),
        ] {
            assert_eq!(displaced.has(&op(number, word)), is, "{number}");
        }
        // No operation came before, so no earlier one is displaced.
        let displaced = Displaced::new(&[taken]);
        assert!(!displaced.has(&op(49, 0x1230)) && displaced.has(&op(50, 0x1230)));
    }
}

//! System calls and signals of two threads, and which of one is which of the other.

use crate::{Both, Result};
use hindsight_syscalls::{Arg, Signature, signature};
use hindsight_timeline::{Filter, Happening, Kind, KindOf, ThreadId, Timeline, syscall_name};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// So many events of each side are aligned at a time. The effort grows with the square of it.
const WINDOW: usize = 1024;
/// Where events of a window have nothing in common, so many are looked through for as many equal ones in a row.
const AHEAD: usize = 1 << 16;
const ROW: usize = 4;
/// Values from here on are taken to be addresses: files and blocks of memory are smaller.
const ADDRESSES: u64 = 1 << 44;
/// Numbers from here on are errors, or small negative numbers.
const NEGATIVE: u64 = -(1i64 << 31) as u64;

/// The number of the call that ends a signal's handler.
pub const RT_SIGRETURN: u64 = 15;
/// Calls whose number and order depend on how threads were scheduled.
const SCHEDULE: [&str; 4] = ["futex", "sched_yield", "restart_syscall", "membarrier"];
/// Calls whose arguments have process ids in them.
const ABOUT_OTHERS: [&str; 17] = [
    "kill",
    "tkill",
    "tgkill",
    "wait4",
    "waitid",
    "setpgid",
    "getpgid",
    "getsid",
    "prlimit64",
    "sched_setaffinity",
    "sched_getaffinity",
    "sched_setscheduler",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "process_vm_readv",
    "process_vm_writev",
    "get_robust_list",
];

/// The events of two threads. What handlers of signals do that no instruction raised is not among them: the signals come
/// whenever they come.
pub struct Events {
    /// In their order.
    pub each: Both<Vec<Happening>>,
    /// Which event of the first thread is which of the second.
    pub pairs: Vec<Both<usize>>,
    /// The pair that an event belongs to.
    pub pair_of: Both<Vec<Option<u32>>>,
    /// Where handlers of such signals run: the counts before their first instruction and behind their last one.
    pub handlers: Both<Vec<Range<u64>>>,
}

/// Reads and aligns the events of two threads.
pub fn events(sides: [&Timeline; 2], threads: Both<ThreadId>) -> Result<Events> {
    let read = |side: usize| {
        let mut list = sides[side].events(&Filter {
            thread: Some(threads[side]),
            kinds: vec![KindOf::Syscall, KindOf::Signal],
            ..Filter::default()
        })?;
        let handlers = handlers(&list);
        list.retain(|h| !is_schedule(h) && !is_within(&handlers, h));
        Ok::<_, hindsight_timeline::Error>((list, handlers))
    };
    let [(first, in_first), (second, in_second)] = [read(0)?, read(1)?];
    let each = [first, second];
    let mut names = Names::default();
    let keys = [0, 1].map(|i| {
        let of = each[i].iter().map(|h| names.keys(h));
        of.collect::<Vec<[u64; 2]>>()
    });
    let pairs = align(&keys);
    let mut pair_of = [0, 1].map(|i| vec![None; each[i].len()]);
    for (n, pair) in (0..).zip(&pairs) {
        for side in 0..2 {
            pair_of[side][pair[side]] = Some(n);
        }
    }
    Ok(Events {
        each,
        pairs,
        pair_of,
        handlers: [in_first, in_second],
    })
}

/// Where handlers of signals run that no instruction raised.
fn handlers(list: &[Happening]) -> Vec<Range<u64>> {
    let (mut out, mut open) = (Vec::new(), Vec::new());
    for h in list {
        match h.kind {
            Kind::Signal { .. } => open.push((h.count, !h.kind.is_exception())),
            Kind::Syscall { number, .. } if number == RT_SIGRETURN => {
                let Some((from, asynchronous)) = open.pop() else {
                    continue;
                };
                // One in another one belongs to that.
                if asynchronous && !open.iter().any(|o| o.1) {
                    out.push(from..h.count.saturating_add(1));
                }
            }
            _ => {}
        }
    }
    out
}

/// Whether an event is in one of these ranges, the signals that begin them included.
fn is_within(handlers: &[Range<u64>], h: &Happening) -> bool {
    let n = handlers.partition_point(|r| r.end <= h.count);
    let Some(r) = handlers.get(n) else {
        return false;
    };
    // A call right before a signal has the count before it.
    r.contains(&h.count)
}

/// Whether the scheduler decides that there is such an event.
fn is_schedule(h: &Happening) -> bool {
    match &h.kind {
        Kind::Syscall { number, .. } => SCHEDULE.contains(&syscall_name(*number).as_str()),
        _ => false,
    }
}

/// Names and signatures of calls by their numbers.
#[derive(Default)]
struct Names(HashMap<u64, (String, Option<Signature>)>);

impl Names {
    /// Two keys of an event: one that says much, and one that says which call it is.
    fn keys(&mut self, h: &Happening) -> [u64; 2] {
        match &h.kind {
            Kind::Syscall { number, args, .. } => {
                let (name, signature) = self.0.entry(*number).or_insert_with(|| {
                    let name = syscall_name(*number);
                    let signature = signature(&name);
                    (name, signature)
                });
                let coarse = hash(&(0u8, number));
                [hash(&(coarse, numbers(name, *signature, args))), coarse]
            }
            Kind::Signal { number, .. } => [hash(&(1u8, number)); 2],
            _ => [0; 2],
        }
    }
}

fn hash(what: &impl Hash) -> u64 {
    let mut h = DefaultHasher::new();
    what.hash(&mut h);
    h.finish()
}

/// The arguments of a call that are numbers and the same in any run of a program.
pub fn numbers(name: &str, signature: Option<Signature>, args: &[u64; 6]) -> Vec<Option<u64>> {
    let Some(signature) = signature else {
        return Vec::new();
    };
    let about = ABOUT_OTHERS.contains(&name);
    let number = |(a, v): (&Arg, &u64)| match a {
        Arg::Int | Arg::Fd | Arg::Dir if about => None,
        Arg::Int | Arg::Uint | Arg::Fd | Arg::Dir | Arg::Mode | Arg::Signal | Arg::Device => {
            Some(*v & 0xffff_ffff)
        }
        Arg::Flags(_) | Arg::One(_) => Some(*v & 0xffff_ffff),
        Arg::Long | Arg::Size => (*v < ADDRESSES || *v >= NEGATIVE).then_some(*v),
        _ => None,
    };
    signature.args.iter().zip(args).map(number).collect()
}

/// Pairs events by their keys.
fn align(keys: &Both<Vec<[u64; 2]>>) -> Vec<Both<usize>> {
    let mut out = Vec::new();
    let [mut i, mut j] = [0, 0];
    let [a, b] = keys;
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            out.push([i, j]);
            (i, j) = (i + 1, j + 1);
            continue;
        }
        let (n, m) = ((a.len() - i).min(WINDOW), (b.len() - j).min(WINDOW));
        let fine = |list: &[[u64; 2]]| list.iter().map(|k| k[0]).collect::<Vec<_>>();
        let ops = capture_diff_slices(Algorithm::Myers, &fine(&a[i..i + n]), &fine(&b[j..j + m]));
        let is_end = i + n == a.len() && j + m == b.len();
        // What is at the end of a window may have its like behind it.
        let equal = |op: &&DiffOp| matches!(op, DiffOp::Equal { .. });
        let last = ops.iter().rfind(equal).copied();
        for op in &ops {
            match *op {
                DiffOp::Equal {
                    old_index,
                    new_index,
                    len,
                } => out.extend((0..len).map(|k| [i + old_index + k, j + new_index + k])),
                DiffOp::Replace {
                    old_index,
                    old_len,
                    new_index,
                    new_len,
                } if is_end || last.is_some_and(|l| old_index < l.old_range().start) => {
                    let at = [i + old_index, j + new_index];
                    out.extend(coarse(keys, at, [old_len, new_len]));
                }
                _ => {}
            }
        }
        (i, j) = match last {
            Some(l) if !is_end => (i + l.old_range().end, j + l.new_range().end),
            None if !is_end => match meeting(&a[i..], &b[j..]) {
                Some([x, y]) => (i + x, j + y),
                None => (i + n, j + m),
            },
            _ => (i + n, j + m),
        };
    }
    out
}

/// Where two lists that begin with nothing in common come together: the nearest places with some equal keys in a row.
fn meeting(a: &[[u64; 2]], b: &[[u64; 2]]) -> Option<Both<usize>> {
    let rows = |list: &'_ [[u64; 2]]| {
        let list = list[..list.len().min(AHEAD)].windows(ROW);
        list.map(|row| hash(&[row[0][0], row[1][0], row[2][0], row[3][0]]))
            .collect::<Vec<_>>()
    };
    let mut first: HashMap<u64, usize> = HashMap::new();
    for (y, row) in rows(b).into_iter().enumerate() {
        first.entry(row).or_insert(y);
    }
    let mut best: Option<Both<usize>> = None;
    for (x, row) in rows(a).into_iter().enumerate() {
        let sum = best.map_or(usize::MAX, |[x, y]| x + y);
        if x >= sum {
            break;
        }
        if let Some(y) = first.get(&row).filter(|y| x + **y < sum) {
            best = Some([x, *y]);
        }
    }
    best
}

/// Pairs events of two stretches that have nothing in common but which calls they are.
fn coarse(keys: &Both<Vec<[u64; 2]>>, at: Both<usize>, len: Both<usize>) -> Vec<Both<usize>> {
    let of = |side: usize| {
        let keys: &[[u64; 2]] = &keys[side][at[side]..at[side] + len[side]];
        keys.iter().map(|k| k[1]).collect::<Vec<_>>()
    };
    let ops = capture_diff_slices(Algorithm::Myers, &of(0), &of(1));
    let equal = ops.iter().filter_map(|op| match *op {
        DiffOp::Equal {
            old_index,
            new_index,
            len,
        } => Some((0..len).map(move |k| [at[0] + old_index + k, at[1] + new_index + k])),
        _ => None,
    });
    equal.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<[u64; 2]> {
        // Letters differ from capitals in the first key only.
        let both = |c: char| [c as u64, c.to_ascii_lowercase() as u64];
        text.chars().map(both).collect()
    }

    fn aligned(a: &str, b: &str) -> String {
        let pairs = align(&[keys(a), keys(b)]);
        assert!(pairs.is_sorted_by(|x, y| x[0] < y[0] && x[1] < y[1]));
        let [a, b]: [Vec<char>; 2] = [a, b].map(|t| t.chars().collect());
        let show = |p: &[usize; 2]| [a[p[0]], b[p[1]]];
        pairs.iter().flat_map(show).collect()
    }

    #[test]
    fn events_are_paired_in_their_order() {
        assert_eq!(aligned("abc", "abc"), "aabbcc");
        assert_eq!(aligned("abc", "ac"), "aacc");
        assert_eq!(aligned("abc", "axbc"), "aabbcc");
        assert_eq!(aligned("abc", "aBc"), "aabBcc");
        assert_eq!(aligned("", "abc"), "");
        assert_eq!(aligned("abc", "xyz"), "");
        let long = "ab".repeat(3 * WINDOW);
        assert_eq!(
            align(&[keys(&long), keys(&format!("x{long}"))]).len(),
            6 * WINDOW
        );
        let other = "x".repeat(3 * WINDOW);
        assert_eq!(align(&[keys(&long), keys(&other)]).len(), 0);
        // What only one side has may be longer than a window.
        let words: String = (0..3 * WINDOW as u32)
            .map(|n| char::from_u32(0x4e00 + n * 7 % 20000).unwrap())
            .collect();
        let more = format!("{other}{words}");
        assert_eq!(align(&[keys(&words), keys(&more)]).len(), 3 * WINDOW);
        assert_eq!(align(&[keys(&more), keys(&words)]).len(), 3 * WINDOW);
    }
}

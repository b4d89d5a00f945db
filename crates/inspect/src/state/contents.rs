//! What is known of a file's content at an instant: the bytes that the program wrote to it or read from it.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// The content of a file, as far as it is known.
#[derive(Clone, Default, Debug)]
pub struct Known {
    /// Its length in bytes, if that is known.
    pub size: Option<u64>,
    pages: BTreeMap<u64, Page>,
}

#[derive(Clone, Debug)]
struct Page {
    bytes: Box<[u8; PAGE as usize]>,
    state: Box<[State; PAGE as usize]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// What stands there is not known.
    Unseen,
    Known,
}

impl Known {
    /// How much memory it takes, roughly.
    pub fn cost(&self) -> u64 {
        self.pages.len() as u64 * 2 * PAGE
    }

    /// Nothing is known any more but the length.
    pub fn cut(&mut self, len: u64) {
        self.size = Some(len);
        self.pages.retain(|n, _| n * PAGE < len);
        if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
            last.state[(len % PAGE) as usize..].fill(State::Unseen);
        }
    }

    /// Notes bytes at an offset. `None` stands for one that is not known.
    pub fn put(&mut self, offset: u64, bytes: &[Option<u8>]) {
        self.each(offset, bytes.len() as u64, |i, byte, state| {
            match bytes[i] {
                Some(b) => (*byte, *state) = (b, State::Known),
                None => *state = State::Unseen,
            }
        });
    }

    fn each(&mut self, offset: u64, len: u64, mut f: impl FnMut(usize, &mut u8, &mut State)) {
        for i in 0..len {
            let Some(at) = offset.checked_add(i) else {
                break;
            };
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Page {
                bytes: Box::new([0; PAGE as usize]),
                state: Box::new([State::Unseen; PAGE as usize]),
            });
            let k = (at % PAGE) as usize;
            f(i as usize, &mut page.bytes[k], &mut page.state[k]);
        }
    }

    /// How many bytes below the length are not known to be what they were.
    pub fn unseen(&self) -> Option<u64> {
        let size = self.size?;
        let known = |(n, p): (&u64, &Page)| {
            let end = size.saturating_sub(n * PAGE).min(PAGE) as usize;
            p.state[..end]
                .iter()
                .filter(|s| **s == State::Known)
                .count() as u64
        };
        Some(size - self.pages.iter().map(known).sum::<u64>().min(size))
    }

    /// What is known: offsets and bytes, in order.
    pub fn stretches(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().flat_map(|(n, p)| {
            let mut at = 0;
            p.state.chunk_by(|a, b| a == b).filter_map(move |run| {
                let from = at;
                at += run.len();
                let known = run[0] == State::Known;
                known.then(|| (n * PAGE + from as u64, &p.bytes[from..at]))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> Vec<Option<u8>> {
        text.bytes().map(Some).collect()
    }

    #[test]
    fn what_is_written_unseen_is_not_known() {
        let mut k = Known::default();
        k.put(4094, &known("abcd"));
        k.put(4096, &[None]);
        let all: Vec<_> = k.stretches().collect();
        assert_eq!(all, [(4094, &b"ab"[..]), (4097, b"d")]);
    }

    #[test]
    fn what_is_cut_is_not_known() {
        let mut k = Known::default();
        k.put(0, &known("abcdef"));
        k.cut(3);
        assert_eq!((k.size, k.unseen()), (Some(3), Some(0)));
        k.cut(5);
        assert_eq!(k.unseen(), Some(2));
        assert_eq!(k.stretches().collect::<Vec<_>>(), [(0, &b"abc"[..])]);
    }
}

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
    /// Nobody has seen it. If others do not change the file, it is what it is later.
    Unseen,
    Known,
    /// It was changed, and what it was is not known.
    Lost,
}

/// A stretch of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch<'a> {
    /// From this offset on it has these bytes.
    Known(u64, &'a [u8]),
    /// From this offset on so many bytes are not known, and have become others since.
    Lost(u64, u64),
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
                None => *state = State::Lost,
            }
        });
    }

    /// Notes bytes that were read later, where nothing has changed the file since.
    pub fn expose(&mut self, offset: u64, bytes: &[Option<u8>]) {
        self.each(offset, bytes.len() as u64, |i, byte, state| {
            if let (State::Unseen, Some(b)) = (*state, bytes[i]) {
                (*byte, *state) = (b, State::Known);
            }
        });
    }

    /// Notes that bytes become others.
    pub fn lose(&mut self, offset: u64, len: u64) {
        self.each(offset, len, |_, _, state| {
            if *state == State::Unseen {
                *state = State::Lost;
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

    /// What is known and what is lost, in order.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        self.pages.iter().flat_map(|(n, p)| {
            let mut at = 0;
            p.state.chunk_by(|a, b| a == b).filter_map(move |run| {
                let from = at;
                at += run.len();
                let offset = n * PAGE + from as u64;
                match run[0] {
                    State::Unseen => None,
                    State::Known => Some(Stretch::Known(offset, &p.bytes[from..at])),
                    State::Lost => Some(Stretch::Lost(offset, run.len() as u64)),
                }
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
    fn later_reads_tell_what_nothing_has_changed() {
        let mut k = Known::default();
        k.put(4094, &known("abcd"));
        k.lose(4096, 4);
        // "cd" were known already; the two behind them became others.
        k.expose(4090, &known("0123xxxxxx45"));
        let all: Vec<_> = k.stretches().collect();
        assert_eq!(
            all,
            [
                Stretch::Known(4090, b"0123ab"),
                Stretch::Known(4096, b"cd"),
                Stretch::Lost(4098, 2),
                Stretch::Known(4100, b"45"),
            ]
        );
    }

    #[test]
    fn what_is_cut_is_not_known() {
        let mut k = Known::default();
        k.put(0, &known("abcdef"));
        k.cut(3);
        assert_eq!((k.size, k.unseen()), (Some(3), Some(0)));
        k.cut(5);
        assert_eq!(k.unseen(), Some(2));
        assert_eq!(
            k.stretches().collect::<Vec<_>>(),
            [Stretch::Known(0, b"abc")]
        );
    }
}

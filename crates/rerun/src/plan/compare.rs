//! Compares what programs write, byte by byte, whatever the sizes of the calls.

mod places;

pub use places::Move;

use super::table::FileId;
use places::Places;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a line before a difference that are shown.
const BEFORE: usize = 120;
/// Bytes behind it.
const BEHIND: usize = 120;
/// Bytes at the end of a stream that are kept.
const TAIL: usize = 4096;

/// What the two programs wrote, by open file.
#[derive(Debug, Default)]
pub struct Compare {
    streams: BTreeMap<FileId, Stream>,
    /// The recorded program wrote nothing more.
    all_recorded: bool,
    /// Nothing more is written now.
    all_now: bool,
}

/// What the two programs wrote to an open file.
#[derive(Debug, Default)]
pub struct Stream {
    recorded: VecDeque<u8>,
    /// Where recorded bytes are not known, and how many, counted from the first of all; and whether they are believed to be known.
    unknown: VecDeque<(u64, u64, bool)>,
    now: VecDeque<u8>,
    /// Bytes that are the same, from the first on.
    pub same: u64,
    /// Bytes that the recorded program wrote.
    pub recorded_len: u64,
    /// Bytes that the program wrote now.
    pub now_len: u64,
    /// The last bytes.
    recorded_tail: VecDeque<u8>,
    now_tail: VecDeque<u8>,
    line: Vec<u8>,
    /// A byte differs.
    differs: bool,
    /// Where in the file the bytes went.
    places: Places,
    /// Bytes that were not compared, since the recorded ones are not known.
    pub uncompared: u64,
    /// Bytes of which it is only believed what the recorded ones are.
    pub believed: u64,
}

/// Where two streams differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// How many bytes are the same before.
    pub at: u64,
    /// What the recorded program wrote: the line, as far as it is kept. Empty if it wrote nothing more.
    pub recorded: Vec<u8>,
    /// What the program wrote now.
    pub now: Vec<u8>,
}

impl Compare {
    /// Adds what the recorded program wrote. Of some bytes it is not known what they are: from where on, and how many. Others are
    /// only `believed`: where they differ, nobody knows.
    pub fn recorded(
        &mut self,
        file: FileId,
        bytes: &[u8],
        unknown: &[(u64, u64)],
        believed: &[(u64, u64)],
    ) {
        let s = self.streams.entry(file).or_default();
        s.places.recorded(s.recorded_len, bytes.len() as u64);
        let begin = s.recorded_len;
        let at = |list: &[(u64, u64)], believed| {
            let at = move |(from, len): &(u64, u64)| (begin.saturating_add(*from), *len, believed);
            list.iter().map(at).collect::<Vec<_>>()
        };
        let lens = believed.iter().map(|b| b.1);
        s.believed = lens.fold(s.believed, u64::saturating_add);
        let mut all = [at(unknown, false), at(believed, true)].concat();
        all.sort_unstable();
        s.unknown.extend(all);
        let holes = unknown.iter().map(|u| u.1);
        s.uncompared = holes.fold(s.uncompared, u64::saturating_add);
        s.recorded_len = s.recorded_len.saturating_add(bytes.len() as u64);
        keep(&mut s.recorded_tail, bytes);
        s.recorded.extend(bytes);
        s.step();
        if self.all_now {
            s.recorded_is_enough();
        }
    }

    /// Adds what the program writes now.
    pub fn now(&mut self, file: FileId, bytes: &[u8]) {
        let s = self.streams.entry(file).or_default();
        s.places.now(s.now_len, bytes.len() as u64);
        s.now_len = s.now_len.saturating_add(bytes.len() as u64);
        keep(&mut s.now_tail, bytes);
        s.now.extend(bytes);
        s.step();
        if self.all_recorded {
            s.now_is_enough();
        }
    }

    /// The recorded program says where in the file its next bytes go.
    pub fn recorded_goes(&mut self, file: FileId, to: Move) {
        let s = self.streams.entry(file).or_default();
        s.places.recorded_goes(to);
    }

    /// The program says now where in the file its next bytes go.
    pub fn now_goes(&mut self, file: FileId, to: Move) {
        let s = self.streams.entry(file).or_default();
        s.places.now_goes(to);
    }

    /// Where in the file the program's next bytes go, if it has written some.
    pub fn place(&self, file: FileId) -> Option<u64> {
        let s = self.streams.get(&file).filter(|s| s.now_len > 0)?;
        Some(s.places.next())
    }

    /// The recorded program wrote nothing more. Of what is written now and goes on behind that, no more is kept than is shown.
    pub fn recorded_is_over(&mut self) {
        self.all_recorded = true;
        self.streams.values_mut().for_each(Stream::now_is_enough);
    }

    /// Nothing more is written now. Of what was recorded and goes on behind that, no more is kept than is shown. What is still
    /// to be compared stays: more of the recorded output may come.
    pub fn now_is_over(&mut self) {
        self.all_now = true;
        let all = self.streams.values_mut();
        all.for_each(Stream::recorded_is_enough);
    }

    /// How many bytes of the recorded program wait for those that are written now, or the other way round.
    pub fn waiting(&self) -> usize {
        let both = |s: &Stream| s.recorded.len() + s.now.len() + s.places.size();
        self.streams.values().map(both).sum()
    }

    /// The open files to which something was written, with what that was.
    pub fn streams(&self) -> impl Iterator<Item = (FileId, &Stream)> {
        let written = |s: &Stream| s.recorded_len > 0 || s.now_len > 0;
        let all = self.streams.iter().filter(move |(_, s)| written(s));
        all.map(|(f, s)| (*f, s))
    }

    /// What was written to an open file.
    #[cfg(test)]
    pub fn stream(&self, file: FileId) -> Option<&Stream> {
        self.streams.get(&file)
    }
}

fn keep(tail: &mut VecDeque<u8>, bytes: &[u8]) {
    let from = bytes.len().saturating_sub(TAIL);
    tail.extend(&bytes[from..]);
    let more = tail.len().saturating_sub(TAIL);
    tail.drain(..more);
}

impl Stream {
    fn step(&mut self) {
        while !self.differs && !self.recorded.is_empty() && !self.now.is_empty() {
            let (a, b) = (self.recorded.as_slices().0, self.now.as_slices().0);
            let len = a.len().min(b.len());
            let (a, b) = (&a[..len], &b[..len]);
            let mut same = match a == b {
                true => len,
                false => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
            };
            if same == 0 {
                match self.unknown_at(self.same) {
                    None => {
                        self.differs = true;
                        break;
                    }
                    Some(believed) => self.uncompared += u64::from(believed),
                }
                same = 1;
            }
            let end = self.now.iter().take(same).rposition(|b| *b == b'\n');
            if end.is_some() {
                self.line.clear();
            }
            let begin = end.map_or(0, |n| n + 1);
            self.line.extend(self.now.iter().take(same).skip(begin));
            let more = self.line.len().saturating_sub(BEFORE);
            self.line.drain(..more);
            self.recorded.drain(..same);
            self.now.drain(..same);
            self.same += same as u64;
        }
        if self.differs {
            self.shorten();
        }
    }

    /// Nothing more comes now that could be compared with what was recorded.
    fn recorded_is_enough(&mut self) {
        if self.now.is_empty() {
            self.recorded.truncate(BEHIND);
            self.places.recorded_is_enough();
        }
    }

    /// Nothing more was recorded that could be compared with what comes now.
    fn now_is_enough(&mut self) {
        if self.recorded.is_empty() {
            self.now.truncate(BEHIND);
            self.places.now_is_enough();
        }
    }

    /// Keeps no more than is shown.
    fn shorten(&mut self) {
        self.recorded.truncate(BEHIND);
        self.now.truncate(BEHIND);
        self.places.close();
    }

    /// Whether a recorded byte is believed to be known. `None`: it is known. Bytes before are not asked for any more.
    fn unknown_at(&mut self, at: u64) -> Option<bool> {
        while let Some((from, len, believed)) = self.unknown.front() {
            if at < from.saturating_add(*len) {
                return Some(*believed).filter(|_| at >= *from);
            }
            self.unknown.pop_front();
        }
        None
    }

    /// Whether a byte differs, or went elsewhere in the file. What one side has more is no difference.
    pub fn differs(&self) -> bool {
        self.differs || self.places.apart().is_some()
    }

    /// Whether the program wrote now all that the recorded one did.
    pub fn is_complete(&self) -> bool {
        self.same == self.recorded_len && self.places.apart().is_none()
    }

    /// Whether both wrote the same.
    pub fn is_same(&self) -> bool {
        self.is_complete() && self.same == self.now_len
    }

    /// The first difference. What one side has more counts.
    pub fn difference(&self) -> Option<Difference> {
        if self.is_same() {
            return None;
        }
        if let Some(apart) = self.places.apart().filter(|a| a.at <= self.same) {
            let (recorded, now) = apart.words();
            let at = apart.at;
            return Some(Difference { at, recorded, now });
        }
        let line = |rest: Vec<u8>| match rest.is_empty() {
            true => Vec::new(),
            false => {
                let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                [&self.line, &rest[..end.min(BEHIND)]].concat()
            }
        };
        Some(Difference {
            at: self.same,
            recorded: line(self.recorded.iter().copied().collect()),
            now: line(self.now.iter().copied().collect()),
        })
    }

    /// The last line that is not empty, of the recorded program and of this one.
    pub fn last_lines(&self) -> (Vec<u8>, Vec<u8>) {
        let recorded: Vec<u8> = self.recorded_tail.iter().copied().collect();
        let now: Vec<u8> = self.now_tail.iter().copied().collect();
        (last_line(&recorded), last_line(&now))
    }
}

fn last_line(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split(|b| *b == b'\n');
    lines
        .rev()
        .find(|l| !l.is_empty())
        .unwrap_or_default()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_difference_is_found_where_it_is() {
        let mut c = Compare::default();
        c.recorded(1, b"one\ntwo 2\nthree", &[], &[]);
        c.now(1, b"one\ntwo");
        assert!(!c.stream(1).unwrap().differs());
        assert!(!c.stream(1).unwrap().is_complete());
        c.now(1, b" 3\nfour\n");
        let d = c.stream(1).unwrap().difference().unwrap();
        assert_eq!(d.at, 8);
        assert_eq!((d.recorded, d.now), (b"two 2".to_vec(), b"two 3".to_vec()));
        let lines = c.stream(1).unwrap().last_lines();
        assert_eq!(lines, (b"three".to_vec(), b"four".to_vec()));
    }

    #[test]
    fn unknown_bytes_equal_any() {
        let mut c = Compare::default();
        c.recorded(2, b"x", &[], &[]);
        c.recorded(2, b"a\0c", &[(1, 1)], &[]);
        c.now(2, b"xabc");
        assert!(c.stream(2).unwrap().is_same());
        assert_eq!(c.stream(2).unwrap().uncompared, 1);
        // What is believed counts as not known where it is not so.
        c.recorded(2, b"dZf", &[], &[(0, 2)]);
        c.now(2, b"def");
        assert!(c.stream(2).unwrap().is_same());
        assert_eq!(c.stream(2).unwrap().uncompared, 2);
        c.recorded(2, b"\0", &[], &[]);
        c.now(2, b"d");
        assert!(c.stream(2).unwrap().differs());
    }

    /// Bytes may go to other places of the file in any number of calls.
    #[test]
    fn where_bytes_go_counts() {
        let written = |c: &mut Compare, list: &[(Option<Move>, &[u8])]| {
            for (to, bytes) in list {
                to.iter().for_each(|to| c.now_goes(3, *to));
                c.now(3, bytes);
            }
        };
        use Move::{Once, To};
        type List<'a> = &'a [(Option<Move>, &'a [u8])];
        let recorded = || {
            let mut c = Compare::default();
            for (to, bytes) in [(Once(0), b"ab"), (Once(2), b"cd"), (Once(9), b"ef")] {
                c.recorded_goes(3, to);
                c.recorded(3, bytes, &[], &[]);
            }
            c.recorded(3, b"gh", &[], &[]);
            c
        };
        let same: [List; 2] = [
            &[
                (None, b"abcd"),
                (Some(Once(9)), b"ef"),
                (Some(To(0)), b"gh"),
            ],
            &[
                (Some(Once(0)), b"abcd"),
                (Some(Once(9)), b"e"),
                (Some(Once(10)), b"f"),
                (None, b"gh"),
            ],
        ];
        for list in same {
            let mut c = recorded();
            written(&mut c, list);
            assert!(c.stream(3).unwrap().is_same(), "{list:?}");
        }
        let others: [(u64, List); 5] = [
            (
                0,
                &[
                    (Some(Once(1)), b"abcd"),
                    (Some(Once(9)), b"ef"),
                    (None, b"gh"),
                ],
            ),
            (4, &[(None, b"abcdefgh")]),
            (4, &[(None, b"abcd"), (Some(Once(8)), b"ef"), (None, b"gh")]),
            (6, &[(None, b"abcd"), (Some(To(9)), b"efgh")]),
            (
                2,
                &[
                    (None, b"ab"),
                    (Some(Once(3)), b"cd"),
                    (Some(Once(9)), b"ef"),
                    (None, b"gh"),
                ],
            ),
        ];
        for (at, list) in others {
            let mut c = recorded();
            written(&mut c, list);
            let s = c.stream(3).unwrap();
            assert!(s.differs() && !s.is_same() && !s.is_complete(), "{list:?}");
            assert_eq!(s.difference().unwrap().at, at, "{list:?}");
        }
        // Less, or more, is what it is.
        let mut c = recorded();
        written(&mut c, &[(None, b"abcd")]);
        assert!(!c.stream(3).unwrap().differs() && !c.stream(3).unwrap().is_complete());
        let mut c = recorded();
        written(&mut c, same[0]);
        written(&mut c, &[(Some(Once(99)), b"more")]);
        assert!(c.stream(3).unwrap().is_complete() && !c.stream(3).unwrap().is_same());
    }

    #[test]
    fn no_more_is_kept_than_is_shown() {
        let mut c = Compare::default();
        c.now(1, b"a");
        c.now_is_over();
        (0..1000).for_each(|_| c.recorded(1, &[b'a'; 1000], &[], &[]));
        assert!(c.waiting() <= 2 * BEHIND);
        let s = c.stream(1).unwrap();
        assert!(!s.is_complete() && !s.is_same() && !s.differs());
        let mut c = Compare::default();
        c.recorded(1, b"a", &[], &[]);
        c.recorded_is_over();
        (0..1000).for_each(|_| c.now(1, &[b'a'; 1000]));
        assert!(c.waiting() <= 2 * BEHIND);
        let s = c.stream(1).unwrap();
        assert!(s.is_complete() && !s.is_same());
        assert_eq!(s.now_len, 1_000_000);
    }

    /// The program has ended before all of the recording is loaded.
    #[test]
    fn what_is_loaded_later_is_compared() {
        for at in [0, 119, 120, 40_000, 49_999] {
            let mut now = vec![b'a'; 50_000];
            now[at] = b'b';
            let mut c = Compare::default();
            c.recorded(1, &[b'a'; 500], &[], &[]);
            c.now(1, &now);
            c.now_is_over();
            (1..100).for_each(|_| c.recorded(1, &[b'a'; 500], &[], &[]));
            let s = c.stream(1).unwrap();
            assert!(s.differs() && !s.is_same() && !s.is_complete(), "{at}");
            assert_eq!(s.difference().unwrap().at, at as u64);
            assert!(c.waiting() <= 2 * BEHIND);
        }
    }

    proptest! {
        #[test]
        fn sizes_of_calls_do_not_matter(bytes: Vec<u8>, cuts: Vec<u8>, more: Vec<u8>) {
            let mut c = Compare::default();
            c.recorded(1, &bytes, &[], &[]);
            let mut rest = bytes.as_slice();
            for n in cuts {
                let (a, b) = rest.split_at((n as usize).min(rest.len()));
                c.now(1, a);
                rest = b;
            }
            c.now(1, rest);
            prop_assert!(c.stream(1).unwrap().is_same());
            c.now(1, &more);
            let s = c.stream(1).unwrap();
            prop_assert_eq!(s.is_same(), more.is_empty());
            prop_assert!(s.is_complete());
            prop_assert_eq!(s.same, bytes.len() as u64);
        }
    }
}

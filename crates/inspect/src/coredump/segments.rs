//! The memory of a core dump: stretches of known bytes, each a segment of the file.

use hindsight_timeline::KnownByte;
use std::io::{Result, Seek, SeekFrom, Write};

pub const PAGE: u64 = 4096;

/// The most segments. With more, the shortest are left out. Debuggers look through them one by one.
const MOST: usize = 1 << 18;

/// Neighbouring bytes that are all known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    pub address: u64,
    pub len: u64,
    /// Where its bytes are in the file.
    pub offset: u64,
    /// Protection, as `mmap` takes it.
    pub prot: u32,
}

/// Writes known bytes into a file and remembers where they are.
pub struct Segments<W> {
    out: W,
    /// The end of what has a place in the file.
    end: u64,
    pub list: Vec<Segment>,
    most: usize,
    /// Known bytes that are left out.
    pub left_out: u64,
}

impl<W: Write + Seek> Segments<W> {
    /// The first bytes come behind `end`.
    pub fn new(out: W, end: u64) -> Segments<W> {
        Segments {
            out,
            end,
            list: Vec::new(),
            most: MOST,
            left_out: 0,
        }
    }

    /// Adds what is known of a stretch of a mapping. Stretches come in order of address.
    pub fn add(&mut self, address: u64, bytes: &[Option<KnownByte>], prot: u32) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at].is_none() {
                at += 1;
                continue;
            }
            let run = bytes[at..].iter().map_while(|b| b.map(|k| k.value));
            let run: Vec<u8> = run.collect();
            self.stretch(address + at as u64, &run, prot)?;
            at += run.len();
        }
        Ok(())
    }

    fn stretch(&mut self, address: u64, bytes: &[u8], prot: u32) -> Result<()> {
        let len = bytes.len() as u64;
        let joins = |s: &&mut Segment| s.address + s.len == address && s.prot == prot;
        let offset = match self.list.last_mut().filter(joins) {
            Some(last) => {
                last.len += len;
                last.offset + (last.len - len)
            }
            None => {
                // A page of memory is a page of the file. So neighbours lie in one page, and a page of zeros is a hole.
                let offset = self.end + (address.wrapping_sub(self.end) & (PAGE - 1));
                self.make_room();
                self.list.push(Segment {
                    address,
                    len,
                    offset,
                    prot,
                });
                offset
            }
        };
        self.end = offset + len;
        self.write(offset, bytes)
    }

    /// Writes bytes, but no whole pages of zeros: they become holes.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let first = (offset.next_multiple_of(PAGE) - offset) as usize;
        let (head, rest) = bytes.split_at(first.min(bytes.len()));
        let mut begin = offset;
        let mut pending = head.len();
        let mut done = head.len();
        for page in rest.chunks(PAGE as usize) {
            let hole = page.len() == PAGE as usize && page.iter().all(|b| *b == 0);
            if !hole {
                pending += page.len();
            }
            done += page.len();
            if hole {
                let until = done - page.len();
                self.put(begin, &bytes[until - pending..until])?;
                begin = offset + done as u64;
                pending = 0;
            }
        }
        self.put(begin, &bytes[done - pending..done])
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.out.seek(SeekFrom::Start(offset))?;
        self.out.write_all(bytes)
    }

    /// Leaves out the shorter half of the segments if there are too many.
    fn make_room(&mut self) {
        if self.list.len() < self.most {
            return;
        }
        let stay = self.most / 2;
        let mut lens: Vec<u64> = self.list.iter().map(|s| s.len).collect();
        lens.sort_unstable_by(|a, b| b.cmp(a));
        let least = lens[stay.saturating_sub(1)];
        // Of those that are just long enough, not all may stay.
        let mut room = stay - lens.partition_point(|len| *len > least);
        let left_out = &mut self.left_out;
        self.list.retain(|s| {
            let stays = match s.len == least && room > 0 {
                true => {
                    room -= 1;
                    true
                }
                false => s.len > least,
            };
            *left_out += if stays { 0 } else { s.len };
            stays
        });
    }

    /// The file, the end of what it holds, and where.
    pub fn finish(self) -> (W, u64, Vec<Segment>) {
        (self.out, self.end, self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_timeline::Ground;
    use std::io::Cursor;

    fn known(bytes: &[u8]) -> Vec<Option<KnownByte>> {
        let ground = Ground::Read;
        let one = |value: &u8| {
            (*value != b'?').then_some(KnownByte {
                value: *value,
                ground,
            })
        };
        bytes.iter().map(one).collect()
    }

    #[test]
    fn only_known_bytes_are_in_segments() {
        let mut s = Segments::new(Cursor::new(Vec::new()), 100);
        s.add(0x1ffd, &known(b"a?cd??"), 3).unwrap();
        // It continues the segment before it.
        s.add(0x2003, &known(b"?xy"), 3).unwrap();
        s.add(0x2006, &known(b"z"), 3).unwrap();
        // Other protection.
        s.add(0x2007, &known(b"w"), 1).unwrap();
        let (out, _, list) = s.finish();
        let bytes = out.into_inner();
        let what = |s: &Segment| {
            assert_eq!(s.offset % PAGE, s.address % PAGE);
            let text = &bytes[s.offset as usize..][..s.len as usize];
            (s.address, String::from_utf8_lossy(text).into_owned())
        };
        let want = [
            (0x1ffd, "a"),
            (0x1fff, "cd"),
            (0x2004, "xyz"),
            (0x2007, "w"),
        ];
        let all: Vec<_> = list.iter().map(what).collect();
        assert_eq!(all, want.map(|(a, t)| (a, t.to_string())));
    }

    #[test]
    fn zeros_are_not_written() {
        struct Count(Cursor<Vec<u8>>, usize);
        impl Write for Count {
            fn write(&mut self, b: &[u8]) -> Result<usize> {
                self.1 += b.len();
                self.0.write(b)
            }
            fn flush(&mut self) -> Result<()> {
                Ok(())
            }
        }
        impl Seek for Count {
            fn seek(&mut self, to: SeekFrom) -> Result<u64> {
                self.0.seek(to)
            }
        }
        let mut bytes = vec![0; 5 * 4096 + 10];
        let ones = [4090, 3 * 4096, 5 * 4096 + 9];
        ones.iter().for_each(|i| bytes[*i] = 1);
        let mut s = Segments::new(Count(Cursor::new(Vec::new()), 0), 0);
        s.add(0x1008, &known(&bytes), 3).unwrap();
        let (out, end, list) = s.finish();
        assert_eq!(list.len(), 1);
        let mut made = out.0.into_inner();
        made.resize(end as usize, 0);
        assert_eq!(made[list[0].offset as usize..], bytes);
        assert!(out.1 <= 4 * 4096, "{}", out.1);
    }

    #[test]
    fn of_too_many_the_shortest_are_left_out() {
        let mut s = Segments::new(Cursor::new(Vec::new()), 0);
        s.most = 8;
        for i in 0..100u64 {
            let len = if i % 25 == 0 { 9 } else { 1 + i as usize % 3 };
            s.add(i * 64, &known(&vec![7; len]), 3).unwrap();
        }
        let long = s.list.iter().filter(|s| s.len == 9).count();
        assert!(s.list.len() <= 8 && long == 4, "{:?}", s.list);
        let all: u64 = (0..100)
            .map(|i| if i % 25 == 0 { 9 } else { 1 + i % 3 })
            .sum();
        assert_eq!(s.list.iter().map(|s| s.len).sum::<u64>() + s.left_out, all);
    }
}

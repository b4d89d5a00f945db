//! Where in a file bytes are written. Sizes of calls do not matter: a place is noted where bytes do not go behind those before.

use std::collections::VecDeque;

/// What a program says of where its next bytes go, in bytes from the beginning of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The next bytes only.
    Once(u64),
    /// All from here on.
    To(u64),
}

/// Where bytes go that do not follow those before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    /// So many bytes were written before.
    at: u64,
    /// The place in the file.
    place: u64,
}

/// Bytes that went to different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apart {
    /// So many bytes were written before.
    pub at: u64,
    /// Where they went. `None`: behind those before.
    recorded: Option<u64>,
    now: Option<u64>,
}

impl Apart {
    /// Both places in words.
    pub fn words(&self) -> (Vec<u8>, Vec<u8>) {
        let word = |place: Option<u64>| match place {
            Some(n) => format!("(to byte {n} of the file)").into_bytes(),
            None => b"(behind the bytes before)".to_vec(),
        };
        (word(self.recorded), word(self.now))
    }
}

/// Where one program writes.
#[derive(Debug, Default)]
struct Side {
    /// Where bytes go of which nothing is said.
    next: u64,
    /// Behind the last bytes.
    end: u64,
    once: Option<u64>,
    /// Places that the other program has not come to.
    marks: VecDeque<Mark>,
    /// How many bytes it wrote.
    len: u64,
}

impl Side {
    fn goes(&mut self, to: Move) {
        match to {
            Move::Once(at) => self.once = Some(at),
            Move::To(at) => self.next = at,
        }
    }

    fn writes(&mut self, before: u64, len: u64) {
        let once = self.once.take();
        if len == 0 {
            return;
        }
        let place = once.unwrap_or(self.next);
        let end = place.saturating_add(len);
        if once.is_none() {
            self.next = end;
        }
        if place != self.end {
            self.marks.push_back(Mark { at: before, place });
        }
        (self.end, self.len) = (end, before.saturating_add(len));
    }
}

/// Where the two programs write.
#[derive(Debug, Default)]
pub struct Places {
    recorded: Side,
    now: Side,
    apart: Option<Apart>,
    /// Nothing is compared any more.
    is_closed: bool,
}

impl Places {
    /// The recorded program writes so many bytes behind so many others.
    pub fn recorded(&mut self, before: u64, len: u64) {
        self.recorded.writes(before, len);
        self.step();
    }

    /// The program writes so many bytes now.
    pub fn now(&mut self, before: u64, len: u64) {
        self.now.writes(before, len);
        self.step();
    }

    /// The recorded program says where it writes next.
    pub fn recorded_goes(&mut self, to: Move) {
        self.recorded.goes(to);
    }

    /// The program says so now.
    pub fn now_goes(&mut self, to: Move) {
        self.now.goes(to);
    }

    /// Where the program writes next.
    pub fn next(&self) -> u64 {
        self.now.next
    }

    /// The first bytes that went to different places.
    pub fn apart(&self) -> Option<Apart> {
        self.apart
    }

    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        (self.recorded.marks.len() + self.now.marks.len()) * size_of::<Mark>()
    }

    /// Nothing is compared any more.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.recorded.marks = VecDeque::new();
        self.now.marks = VecDeque::new();
    }

    /// Nothing more comes now.
    pub fn recorded_is_enough(&mut self) {
        self.recorded.marks.truncate(1);
    }

    /// Nothing more was recorded.
    pub fn now_is_enough(&mut self) {
        self.now.marks.truncate(1);
    }

    fn step(&mut self) {
        if self.is_closed {
            return self.close();
        }
        loop {
            let (a, b) = (self.recorded.marks.front(), self.now.marks.front());
            let reached = self.recorded.len.min(self.now.len);
            // Where one program has no mark, its bytes follow those before.
            let first = match (a, b) {
                (Some(a), Some(b)) => a.at.min(b.at),
                (Some(m), None) | (None, Some(m)) => m.at,
                (None, None) => return,
            };
            if first >= reached {
                return;
            }
            let place = |m: Option<&Mark>| m.filter(|m| m.at == first).map(|m| m.place);
            let (recorded, now) = (place(a), place(b));
            if recorded != now {
                self.apart = Some(Apart {
                    at: first,
                    recorded,
                    now,
                });
                return self.close();
            }
            self.recorded.marks.pop_front();
            self.now.marks.pop_front();
        }
    }
}

//! Intervals are shorter where they touch much memory: there going to a place in one takes longest, both since what it
//! touches has to be laid out, and since each instruction is slower.

use std::sync::mpsc::{Receiver, Sender, channel};

/// Shorter intervals are so many of the others.
const PARTS: u64 = 2;
/// An interval touches much from so many pages on, and a shorter one still does.
const MANY: usize = 1024;
const STILL: usize = 512;
/// Intervals that are played before it is asked whether there was room behind one: by then that one is packed, however
/// long it took, so that the same recording has the same intervals each time.
const BEHIND: usize = 6;

/// Whoever packs tells whether there is room.
pub struct Room(Sender<bool>);

/// How long the next interval is.
pub struct Density {
    room: Receiver<bool>,
    played: usize,
    /// The last one was a shorter one.
    short: bool,
}

/// Both sides.
pub fn density() -> (Room, Density) {
    let (send, receive) = channel();
    let density = Density {
        room: receive,
        played: 0,
        short: false,
    };
    (Room(send), density)
}

impl Room {
    /// Told behind each interval: what is foreseen, 0 as long as nothing is, and what there may be; also what was foreseen
    /// for this interval alone, as part of the whole.
    pub fn tell(&self, foreseen: f64, last: f64, most: u64) {
        // Some more are made before it is noticed.
        let room = foreseen > 0.0 && foreseen + BEHIND as f64 * last <= most as f64;
        // Nobody wants to know it any more.
        let _ = self.0.send(room);
    }
}

impl Density {
    /// Behind an interval that touched so many pages and was sent to be packed: how many of the next make one of the usual
    /// length.
    pub fn next(&mut self, pages: usize) -> u64 {
        self.played += 1;
        let room = self.played >= BEHIND && self.room.recv().unwrap_or(false);
        let much = pages >= if self.short { STILL } else { MANY };
        self.short = room && much;
        if self.short { PARTS } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_shorter_while_they_touch_much_and_there_is_room() {
        let (room, mut density) = density();
        // What is told behind an interval is heard of some intervals later, also if it is told at once.
        let mut next = |foreseen: f64, pages: usize| {
            room.tell(foreseen, 10.0, 100);
            density.next(pages)
        };
        let first: Vec<u64> = (0..BEHIND).map(|_| next(40.0, MANY)).collect();
        assert_eq!(first[..BEHIND - 1], [1; BEHIND - 1]);
        assert_eq!(first[BEHIND - 1], PARTS);
        let pages = [STILL, MANY - 1, STILL - 1, MANY - 1, MANY, MANY];
        assert_eq!(
            pages.map(|p| next(40.0, p)),
            [PARTS, PARTS, 1, 1, PARTS, PARTS]
        );
        // Nothing is foreseen yet, or too much with those to come.
        for foreseen in [0.0, 100.0 - 10.0 * BEHIND as f64 + 1.0] {
            let all: Vec<u64> = (0..2 * BEHIND).map(|_| next(foreseen, MANY)).collect();
            assert_eq!(all[BEHIND - 1..], [1; BEHIND + 1]);
            (0..2 * BEHIND).for_each(|_| assert!(next(1.0, MANY) > 0));
        }
        drop(room);
        while density.next(MANY) > 1 {}
    }
}

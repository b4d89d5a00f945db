//! Which memory a thread goes through line by line, as its mispredictions show.
//!
//! A thread that reads what another one has made mispredicts each line once. If it goes on from line to line, the lines that
//! follow are filled before it comes to them: twice as many each time, as a kernel does that reads files. Where that was in
//! vain, since somebody changes the lines before the thread reads them, it takes longer until it is tried again.

/// How many such ways are known at a time. A thread that compares or copies goes along two.
const WAYS: usize = 4;
/// Lines one after the other that show a way.
const SHOWN: u32 = 4;
/// As [`SHOWN`], at most, for a way on which filling ahead was in vain.
const SHOWN_MOST: u32 = 256;
/// Bytes filled ahead the first time.
const LEAST: u64 = 256;
/// Bytes filled ahead at most.
pub const MOST: u64 = 256 << 10;

#[derive(Clone, Copy, Debug)]
struct Way {
    /// The line that comes next.
    next: u64,
    /// The lines from here to `next` were filled ahead.
    from: u64,
    /// Bytes that were filled ahead the last time. 0: none.
    size: u64,
    /// Lines that came one after the other.
    came: u32,
    /// How many of them show that the thread goes on.
    shown: u32,
}

/// The ways that a thread's mispredictions show.
#[derive(Debug)]
pub struct Ahead {
    ways: [Way; WAYS],
    /// The way that is given up next.
    oldest: usize,
    /// The way that was found last.
    last: usize,
}

impl Ahead {
    /// Nothing is known.
    pub const fn new() -> Ahead {
        const NONE: Way = Way {
            // No line begins here.
            next: 1,
            from: 1,
            size: 0,
            came: 0,
            shown: SHOWN,
        };
        Ahead {
            ways: [NONE; WAYS],
            oldest: 0,
            last: 0,
        }
    }

    /// Notes that the lines `first..end` were mispredicted. Returns how many bytes from `end` on are
    /// worth filling now: 0, or up to [`MOST`].
    pub fn came(&mut self, first: u64, end: u64) -> u64 {
        let goes_on = self.ways.iter().position(|w| w.next == first);
        if let Some(i) = goes_on {
            self.last = i;
            let w = &mut self.ways[i];
            (w.from, w.next) = (end, end);
            w.came = w.came.saturating_add(1);
            if w.came < w.shown {
                return 0;
            }
            w.size = (2 * w.size).clamp(LEAST, MOST);
            return w.size;
        }
        if let Some(w) = self
            .ways
            .iter_mut()
            .find(|w| (w.from..w.next).contains(&first))
        {
            // The line was filled, and has changed since.
            w.shown = (2 * w.shown).min(SHOWN_MOST);
            (w.from, w.next, w.size, w.came) = (end, end, 0, 0);
            return 0;
        }
        self.ways[self.oldest] = Way {
            next: end,
            from: end,
            size: 0,
            came: 0,
            shown: SHOWN,
        };
        self.oldest = (self.oldest + 1) % WAYS;
        0
    }

    /// Notes that the way that [`Ahead::came`] found was filled up to `end`.
    pub fn filled(&mut self, end: u64) {
        self.ways[self.last].next = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 64;

    /// Goes from line to line and fills as asked. Returns how many lines were mispredicted.
    fn walk(a: &mut Ahead, from: u64, to: u64) -> u32 {
        let (mut at, mut n) = (from, 0);
        while at < to {
            let size = a.came(at, at + LINE);
            n += 1;
            at += LINE;
            if size != 0 {
                at += size;
                a.filled(at);
            }
        }
        n
    }

    #[test]
    fn a_long_way_has_few_mispredictions() {
        let mut a = Ahead::new();
        let mebibyte = walk(&mut a, 0x10000, 0x110000);
        assert!(mebibyte < 40, "{mebibyte}");
    }

    #[test]
    fn lines_apart_are_not_filled() {
        let mut a = Ahead::new();
        for i in 0..1000 {
            assert_eq!(a.came(i * 4096, i * 4096 + LINE), 0);
        }
    }

    #[test]
    fn two_ways_at_once() {
        let mut a = Ahead::new();
        let mut sizes = [0; 2];
        for i in 0..SHOWN as u64 + 1 {
            for (size, base) in sizes.iter_mut().zip([0x10000, 0x90000]) {
                *size = a.came(base + i * LINE, base + (i + 1) * LINE);
            }
        }
        assert_eq!(sizes, [LEAST; 2]);
    }

    #[test]
    fn what_changes_meanwhile_is_filled_ahead_rarely() {
        let mut a = Ahead::new();
        let mut filled = 0;
        // Each line changes just before the thread reads it.
        for i in 0..10_000 {
            let at = i * LINE;
            let size = a.came(at, at + LINE);
            if size != 0 {
                filled += size / LINE;
                a.filled(at + LINE + size);
            }
        }
        assert!(filled < 400, "{filled}");
    }
}

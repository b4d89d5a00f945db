//! Finds the position that a [`Place`] names.

use crate::{
    Ending, Error, Filter, Happening, Kind, KindOf, Place, Position, Result, Thread, Timeline,
};

impl Timeline {
    /// The position of a place, in one program image or in the whole recording.
    ///
    /// # Errors
    /// [`Error::NoPlace`] where the recording has no such place.
    pub fn find(&self, place: Place, image: Option<u32>) -> Result<Position> {
        let none = |place: &Place, n: usize| Error::NoPlace(format!("{place}: there are {n}"));
        let nth = |n: u64, kinds: Vec<KindOf>, syscalls: Vec<u64>| {
            let all = self.events(&Filter {
                image,
                kinds,
                syscalls,
                ..Filter::default()
            })?;
            let found = all.get(usize::try_from(n - 1).unwrap_or(usize::MAX));
            found
                .map(|h| h.position)
                .ok_or_else(|| none(&place, all.len()))
        };
        match place {
            Place::Position(p) => Ok(p),
            Place::Begin => Ok(self.ends_of(image)?.0),
            Place::End => Ok(self.ends_of(image)?.1),
            Place::Crash => self.crash(image),
            Place::Percent(p) => self.percent(p, image),
            Place::Event(n) => nth(n, Vec::new(), Vec::new()),
            Place::Mark(ref which) => {
                let marks = Filter {
                    image,
                    kinds: vec![KindOf::Mark],
                    ..Filter::default()
                };
                let all = self.events(&marks)?;
                let named = all.iter().map(|h| match &h.kind {
                    Kind::Mark { name, .. } => (Some(name.as_str()), h.position),
                    _ => (None, h.position),
                });
                which.of(named).map_err(|n| none(&place, n))
            }
            Place::State(ref which) => {
                let all = self.state_points(image)?;
                let named = all.iter().map(|s| (s.name.as_deref(), s.position));
                which.of(named).map_err(|n| none(&place, n))
            }
            Place::Time(d) => self.at_time(d, image),
            Place::Clock(d) => self.at_clock(d, image),
            Place::Syscall(n) => nth(n, vec![KindOf::Syscall], Vec::new()),
            Place::SyscallOf(number, n) => nth(n, vec![KindOf::Syscall], vec![number]),
        }
    }

    /// The position of the signal that killed a program. It need not be the last one: other threads end after it.
    fn crash(&self, image: Option<u32>) -> Result<Position> {
        let signals = self.events(&Filter {
            image,
            kinds: vec![KindOf::Signal, KindOf::Exception],
            ..Filter::default()
        })?;
        let threads = self.threads()?;
        let killed = |h: &&Happening| {
            let its = threads.iter().find(|t| t.id == h.thread);
            its.is_some_and(|t| match (&h.kind, &t.ending) {
                (Kind::Signal { number, .. }, Ending::Signal(n)) => {
                    (t.to, *n) == (h.count, u32::from(*number))
                }
                _ => false,
            })
        };
        // No thread gets SIGKILL, so no event tells of it.
        let of = |t: &&Thread| image.is_none_or(|i| i == t.image);
        let signal = threads.iter().filter(of).find_map(|t| match t.ending {
            Ending::Signal(n) => Some(n),
            _ => None,
        });
        let why = || match signal {
            Some(n) => format!("crash: signal {n} killed a program, and it is not recorded where"),
            None => "crash: no signal killed a program".into(),
        };
        let none = || Error::NoPlace(why());
        let last = signals.iter().rev().find(killed).ok_or_else(none)?;
        Ok(last.position)
    }

    /// The first and the last position of a program image, or of the recording.
    pub(crate) fn ends_of(&self, image: Option<u32>) -> Result<(Position, Position)> {
        let Some(image) = image else {
            return self.range();
        };
        let all = self.processes()?;
        let p = all.iter().find(|p| p.image == image);
        let p = p.ok_or_else(|| Error::NoPlace(format!("program image {image}")))?;
        Ok((p.begin, p.end))
    }

    /// The position at which `percent` (0 to 100) of all instructions are completed in the total order. The
    /// instructions are those of a program image, or of the whole recording.
    pub fn percent(&self, percent: f64, image: Option<u32>) -> Result<Position> {
        let scans: Vec<_> = (self.0.scans()?.iter())
            .filter(|(t, _)| image.is_none_or(|i| self.0.image(**t) == i))
            .collect();
        let lengths = scans.iter().map(|(_, s)| s.to - s.from);
        let total = lengths.fold(0, u64::saturating_add);
        let wanted = (total as f64 * percent.clamp(0.0, 100.0) / 100.0) as u64;
        if wanted >= total {
            return Ok(self.ends_of(image)?.1);
        }
        // The number of instructions in segments that were opened before `number`.
        let before = |number: u64| -> u64 {
            let one = |(t, s): &(&crate::ThreadId, &crate::scan::Scan)| match s.nth(**t, 0).opens
                < number
            {
                false => 0,
                true => {
                    let closed = s.numbers.partition_point(|x| x.0 < number);
                    s.numbers.get(closed).map_or(s.to, |x| x.1) - s.from
                }
            };
            scans.iter().map(one).fold(0, u64::saturating_add)
        };
        let last = (scans.iter()).map(|(t, s)| s.nth(**t, s.numbers.len()).opens);
        let (mut lo, mut hi) = (0, last.max().unwrap_or(0));
        // The greatest number before which no more than `wanted` instructions are done.
        while lo < hi {
            let middle = hi - (hi - lo) / 2;
            match before(middle) <= wanted {
                true => lo = middle,
                false => hi = middle - 1,
            }
        }
        let mut left = wanted - before(lo);
        for (t, s) in scans {
            let Some(segment) = s.opened_by(*t, lo) else {
                continue;
            };
            let n = segment.to - segment.from;
            if left < n {
                return self.position(*t, segment.from + left);
            }
            left -= n;
        }
        Ok(self.ends_of(image)?.1)
    }
}

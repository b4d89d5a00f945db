//! Lists all writes to some bytes, the last one first. The writes of one piece of a thread are found together, on one
//! way forward.

use super::cold::{self, Cold};
use super::effects::Wants;
use super::hit::SearchRange;
use crate::access::Done;
use crate::access::last::{Piece, Target, cut};
use crate::index::IndexPart;
use crate::model::memory::{Detail, Found, Written};
use crate::model::stops::{Cancel, Direction, Scope, Stops, Watch, Watchpoint};
use crate::play::Player;
use crate::play::Viewpoint;
use crate::value;
use crate::{Position, Result, ThreadId};
use hindsight_replay::access::Access;
use std::sync::Arc;

/// This many instructions of a thread are searched for writes together.
const TOGETHER: u64 = 4096;

/// The writes to some bytes before an instant, the last one first. See [`crate::Cursor::writes`].
///
/// The list has virtual processors of its own. So cursors may move meanwhile.
pub struct Writes {
    view: Viewpoint,
    /// Finds what memory holds after a write that does not itself tell.
    other: Option<Viewpoint>,
    address: u64,
    len: u64,
    /// For this many bytes the list says what they hold after each write.
    shown: usize,
    threads: Vec<Thread>,
    /// A search ended early. What it had not yet reached is not known.
    failed: bool,
}

/// A thread, and how far it was searched.
struct Thread {
    id: ThreadId,
    from: u64,
    /// All writes from here on are known.
    hi: u64,
    /// Those that were not yet returned, ascending.
    found: Vec<Hit>,
    /// Pieces of the stretch below `hi` that accessed the bytes, ascending. Down to `least`, nothing else accessed
    /// them.
    pieces: Vec<Piece>,
    least: u64,
}

/// A write that was found.
struct Hit {
    count: u64,
    address: u64,
    len: u64,
    read: bool,
    kernel: bool,
    /// The address of the instruction, if it was looked at.
    pc: Option<u64>,
    /// For each shown byte its value, if this write wrote it.
    bytes: Vec<Option<u8>>,
    /// What all shown bytes hold after it, once that was found out.
    value: Option<Vec<Option<u8>>>,
}

impl Writes {
    /// The writes to `len` bytes before the instant of a viewpoint.
    pub(crate) fn new(view: &Viewpoint, address: u64, len: u64, shown: usize) -> Result<Writes> {
        let engine = Arc::clone(view.engine());
        let here = view.position()?;
        let mut threads = Vec::new();
        for id in engine.scans()?.keys().copied() {
            if !view.within(Scope::Process, id) {
                continue;
            }
            let count = match id == view.thread() {
                true => Some(view.count()),
                false => engine.count_at(id, here)?,
            };
            let from = engine.scan(id)?.from;
            threads.extend(count.filter(|n| *n > from).map(|hi| Thread {
                id,
                from,
                hi,
                found: Vec::new(),
                pieces: Vec::new(),
                least: hi,
            }));
        }
        Ok(Writes {
            view: Viewpoint::new(engine)?,
            other: None,
            address,
            len,
            shown: shown.min(len.min(1 << 16) as usize),
            threads,
            failed: false,
        })
    }

    /// The next write of the list. `None`: nothing that is recorded wrote there before.
    ///
    /// After an error the list goes on only if that call had not yet searched. Otherwise further calls fail with
    /// [`crate::Error::Cancelled`]. Cancelling is such an error, too.
    pub fn next(&mut self, cancel: &Cancel) -> Result<Option<Written>> {
        self.view.set_cancel(cancel.clone());
        let engine = Arc::clone(self.view.engine());
        loop {
            self.view.cancel().check()?;
            let mut best: Option<(Position, usize)> = None;
            // The thread that may have the last write in what was not yet searched.
            let mut open: Option<(Position, usize)> = None;
            for (i, t) in self.threads.iter().enumerate() {
                if let Some(h) = t.found.last() {
                    best = best.max(Some((engine.position(t.id, h.count)?, i)));
                } else if t.hi > t.from {
                    open = open.max(Some((engine.position(t.id, t.hi - 1)?, i)));
                }
            }
            match (best, open) {
                (None, None) => return Ok(None),
                (Some((position, i)), None) => return self.tell(i, position).map(Some),
                (Some((position, i)), Some((other, _))) if other < position => {
                    return self.tell(i, position).map(Some);
                }
                (_, Some((_, i))) => {
                    if self.failed {
                        return Err(crate::Error::Cancelled);
                    }
                    self.failed = true;
                    self.look(i)?;
                    self.failed = false;
                }
            }
        }
    }

    /// Searches the next piece of a thread.
    fn look(&mut self, i: usize) -> Result<()> {
        let (address, len, shown) = (self.address, self.len, self.shown);
        let wants = Wants::of(&self.view, self.threads[i].id, &watched(address, len));
        let t = &mut self.threads[i];
        let (engine, hi) = (Arc::clone(self.view.engine()), t.hi);
        let mut hits = Vec::new();
        let mut low = t.least;
        let player = self.view.player(t.id)?;
        let target = |lo, hi| {
            [Target {
                address,
                len,
                lo,
                hi,
            }]
        };
        match t.pieces.pop() {
            Some(p) if p.hi - p.lo <= TOGETHER => {
                low = p.lo;
                hits = all_in(player, &target(p.lo, p.hi.min(hi)), shown, p)?;
            }
            Some(p) => {
                low = p.hi.min(hi);
                let targets = target(p.lo, low);
                cut(player, &targets, Watch::Write, &p, &mut t.pieces, true)?;
            }
            None if t.least < hi => {}
            None => {
                let engine = Arc::clone(player.engine());
                let touched = &mut |part: &IndexPart, n| {
                    let set = part.touching(&engine, address, len, false, true)?;
                    Ok(set.has(n))
                };
                let (mut looked, mut cold) = cold::look(&wants, player, hi - 1, touched)?;
                if cold {
                    let rest = SearchRange {
                        thread: t.id,
                        lo: t.from,
                        hi,
                        first: t.from,
                    };
                    match cold::nearest(&wants, player, rest, Direction::Backward)? {
                        Cold::Touched(lo, to) => {
                            t.pieces.push(Piece {
                                lo,
                                hi: to,
                                which: vec![(0, false)],
                            });
                            (t.least, low) = (lo, to);
                        }
                        Cold::Nothing(from) => low = from,
                        Cold::Unclear => {
                            looked = player.look(hi - 1, touched)?;
                            cold = false;
                        }
                    }
                }
                let (part, n) = (&looked.part, looked.interval);
                if !cold {
                    low = looked.bounds().0.max(t.from).min(hi - 1);
                }
                if looked.touched && !cold {
                    let summary = part.summary(&engine, n)?;
                    let step = summary.step(hi - 1);
                    low = summary.steps[step].from.max(low).min(hi - 1);
                    let may = summary.touches(step, address, len, false);
                    if may.ok_or_else(|| engine.bad_frame())? {
                        t.pieces.push(Piece {
                            lo: low,
                            hi,
                            which: vec![(0, false)],
                        });
                        (t.least, low) = (low, hi);
                    }
                }
            }
        }
        // Below the last of the pieces nothing wrote.
        match t.pieces.last() {
            Some(p) => low = low.min(hi).max(p.hi.min(hi)),
            None => low = low.min(t.least),
        }
        kernels(
            &engine.scan(t.id)?.written,
            (low, hi),
            (address, len),
            shown,
            &mut hits,
        );
        (t.hi, t.found) = (low, hits);
        t.least = t.least.min(low);
        Ok(())
    }

    /// Returns the last write of a thread.
    fn tell(&mut self, i: usize, position: Position) -> Result<Written> {
        self.value(i)?;
        let t = &mut self.threads[i];
        let Some(h) = t.found.pop() else {
            return Err(crate::Error::Empty);
        };
        let thread = t.id;
        let pc = match h.pc {
            Some(pc) => pc,
            None => {
                let p = self.view.player(thread)?;
                p.go(h.count)?;
                p.registers().rip
            }
        };
        let access = Found {
            thread,
            position,
            count: h.count,
            pc,
            address: h.address,
            len: h.len,
            read: h.read,
            write: true,
            kernel: h.kernel,
        };
        let bytes = h.value.unwrap_or_default();
        Ok(Written { access, bytes })
    }

    /// Finds out what memory holds after the last write of a thread. There are two cheap cases:
    ///
    /// - The write wrote all shown bytes.
    /// - It wrote some. The others are as an earlier write left them, because nothing can have changed them since. For
    ///   that the thread must be alone with the memory.
    ///
    /// In all other cases memory is searched.
    fn value(&mut self, i: usize) -> Result<()> {
        let engine = Arc::clone(self.view.engine());
        let (id, image) = (self.threads[i].id, self.cursor_image(i));
        let (address, shown) = (self.address, self.shown);
        let list = &self.threads[i].found;
        let scan = engine.scan(id)?;
        // The first write from which the values after the later ones follow.
        let mut first = list.len() - 1;
        let place = engine.position(id, list[first].count)?;
        let alone = list[first].bytes.iter().any(Option::is_none)
            && value::stays(&engine, image, place, address, shown)?;
        while alone
            && first > 0
            && list[first].value.is_none()
            && list[first].bytes.iter().any(Option::is_none)
            && value::nothing_between(scan, id, list[first - 1].count, list[first].count)
        {
            first -= 1;
        }
        let mut before: Option<Vec<Option<u8>>> = None;
        for k in first..list.len() {
            let h = &self.threads[i].found[k];
            let mut known = h.value.clone();
            if known.is_none() && !h.kernel {
                let old = |n: usize| before.as_ref().and_then(|v| v[n]);
                let all = h.bytes.iter().enumerate().map(|(n, b)| b.or(old(n)));
                if let Some(all) = all.collect::<Option<Vec<u8>>>() {
                    known = value::behind(&engine, image, (id, h.count), address, &all)?;
                }
            }
            let known = match known {
                Some(v) => v,
                None => {
                    let count = h.count;
                    let other = match &mut self.other {
                        Some(o) => o,
                        None => self.other.insert(Viewpoint::new(engine.clone())?),
                    };
                    other.set_cancel(self.view.cancel().clone());
                    other.seek_count(id, count + 1)?;
                    let m = value::memory(other, address, shown, Detail::Known)?;
                    m.bytes.iter().map(|b| b.map(|k| k.value)).collect()
                }
            };
            before = Some(known.clone());
            self.threads[i].found[k].value = Some(known);
        }
        Ok(())
    }

    fn cursor_image(&self, i: usize) -> u32 {
        self.view.engine().image(self.threads[i].id)
    }
}

/// What a search for writes watches.
fn watched(address: u64, len: u64) -> Stops<'static> {
    Stops {
        watchpoints: vec![Watchpoint {
            id: 0,
            address,
            len,
            watch: Watch::Write,
            image: None,
        }],
        ..Stops::default()
    }
}

/// All writes by instructions of a piece, ascending.
fn all_in(
    player: &mut Player,
    targets: &[Target; 1],
    shown: usize,
    piece: Piece,
) -> Result<Vec<Hit>> {
    let mut out = Vec::new();
    let mut short = Vec::new();
    match piece.is_short() {
        true => short.push(piece),
        false => cut(player, targets, Watch::Write, &piece, &mut short, true)?,
    }
    let [target] = targets;
    let mut done = Done::new(player);
    for p in short {
        player.reach(p.lo)?;
        player.set_breaks(Vec::new());
        player.prepared(|player| {
            let hi = p.hi.min(target.hi);
            while player.count() < hi {
                player.cancel.check()?;
                let count = player.count();
                match done.step(player, hi)? {
                    Some(true) => {}
                    Some(false) => continue,
                    None => break,
                }
                let fits =
                    |(_, a): &(usize, &Access)| a.write && a.touches(target.address, target.len);
                if let Some((i, a)) = done.list.iter().enumerate().find(fits) {
                    let mut cells = vec![0; shown];
                    player.cells(target.address, &mut cells);
                    player.sound()?;
                    out.push(Hit {
                        count,
                        address: a.address,
                        len: a.len,
                        read: a.read,
                        kernel: false,
                        pc: Some(done.pc(i)),
                        bytes: left(&cells, &done.list, target.address),
                        value: None,
                    });
                }
            }
            Ok(())
        })?;
    }
    Ok(out)
}

/// The bytes of a range that an instruction wrote, with their values. `cells` is the content of the range.
fn left(cells: &[u8], list: &[Access], address: u64) -> Vec<Option<u8>> {
    let known = |i: u64| {
        let mut all = list
            .iter()
            .filter(|a| a.write && a.touches(address.wrapping_add(i), 1));
        all.clone().next().is_some() && all.all(|a| !a.unknown)
    };
    let bytes = cells.iter().enumerate();
    bytes.map(|(i, b)| known(i as u64).then_some(*b)).collect()
}

/// Adds the kernel's writes between two counts, except where an instruction at the same count wrote. Of several at one
/// count, the last one counts.
fn kernels(
    written: &[(u64, u64, u64)],
    (lo, hi): (u64, u64),
    (address, len): (u64, u64),
    shown: usize,
    hits: &mut Vec<Hit>,
) {
    let a = written.partition_point(|w| w.0 < lo);
    let b = written.partition_point(|w| w.0 < hi);
    let fits = |w: &&(u64, u64, u64)| {
        w.1 < address.saturating_add(len) && address < w.1.saturating_add(w.2)
    };
    let mut last = None;
    let own = hits.len();
    for w in written[a..b.max(a)].iter().rev().filter(fits) {
        let known = hits[..own].binary_search_by_key(&w.0, |h| h.count);
        if last == Some(w.0) || known.is_ok() {
            continue;
        }
        last = Some(w.0);
        hits.push(Hit {
            count: w.0,
            address: w.1,
            len: w.2,
            read: false,
            kernel: true,
            pc: None,
            bytes: vec![None; shown],
            value: None,
        });
    }
    hits.sort_by_key(|h| h.count);
}

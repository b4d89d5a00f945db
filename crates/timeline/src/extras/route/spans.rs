//! The files in which a debugger can set something, and from which step on.

use crate::recording::maps::{Change, What};
use crate::{Cancel, Error, Filter, Kind, KindOf, Module, Position, Result, Timeline};
use std::ops::Range;
use std::sync::Arc;

/// `mmap` maps the parts of a module.
const MMAP: u64 = 9;
const PROT_EXEC: u32 = 4;

/// Looks at changes of mappings, one for each module, above which it is refused. This takes seconds.
const MOST_LOOKS: usize = 1 << 30;

/// A module, and the steps in which it can be used.
pub struct Span {
    /// The module's path.
    pub path: Arc<str>,
    /// Its addresses, as of the position that is looked for. Offsets count from the lowest one.
    pub range: Range<u64>,
    /// The first step at which all of it is mapped.
    pub usable: u64,
    /// The first step at which it no longer is.
    pub gone: u64,
    /// A part of it is executable. Not all of these are in `code`.
    pub has_code: bool,
    pub code: Vec<Range<u64>>,
}

/// All of them, by address.
pub struct Spans {
    all: Vec<Span>,
    /// The one that was asked for last.
    last: usize,
}

impl Spans {
    /// Those of a program image up to a position. Left out are files whose lowest address changes while they are mapped, files
    /// that are mapped in two places at once, and files whose addresses other files had before or have later, unless only one
    /// of these has code: that one stays.
    pub fn new(timeline: &Timeline, image: u32, to: Position, cancel: &Cancel) -> Result<Spans> {
        let maps = timeline.events(&Filter {
            image: Some(image),
            until: Some(to),
            kinds: vec![KindOf::Syscall],
            syscalls: vec![MMAP],
            ..Filter::default()
        })?;
        let changes = timeline.0.changes(image)?;
        let modules = timeline.modules(image)?;
        if modules.len().saturating_mul(changes.len().max(maps.len())) > MOST_LOOKS {
            return Err(Error::Unsupported(format!(
                "the program has {} files mapped in {} changes; that is too much",
                modules.len(),
                changes.len()
            )));
        }
        let step = |p: Position| timeline.locate(p).map(|i| i.count);
        let (mut all, mut lives): (Vec<Span>, Vec<Life>) = Default::default();
        for module in modules {
            cancel.check()?;
            let unload = module.unload.filter(|u| *u < to);
            if !module.path.starts_with('/') || module.load.is_some_and(|p| p >= to) {
                continue;
            }
            let range = range(&module, &changes, to);
            let mut usable = 0;
            if let Some(load) = module.load {
                usable = step(load)?.saturating_add(1);
                for m in &maps {
                    let Kind::Syscall {
                        result: Some(at), ..
                    } = m.kind
                    else {
                        continue;
                    };
                    let within = (module.start..module.end).contains(&at);
                    let there = m.position >= load && unload.is_none_or(|u| m.position < u);
                    if within && there {
                        usable = usable.max(m.count.saturating_add(1));
                    }
                }
            }
            lives.push(Life {
                path: module.path.as_str().into(),
                since: module.load,
                until: unload,
                steady: range.is_some(),
            });
            let gone = unload.map_or(Ok(u64::MAX), step)?;
            // Where a file was unloaded, other code may be executed later.
            let parts = (module.parts.iter()).filter(|p| p.prot & PROT_EXEC != 0);
            let parts: Vec<Range<u64>> = parts.map(|p| p.start..p.end).collect();
            all.push(Span {
                path: module.path.as_str().into(),
                // One that is not steady keeps others away, too.
                range: range.unwrap_or(module.start..module.end),
                usable,
                gone,
                has_code: !parts.is_empty(),
                code: if unload.is_none() { parts } else { Vec::new() },
            });
        }
        Ok(Spans {
            all: keep(all, &lives),
            last: 0,
        })
    }

    /// These, by address.
    #[cfg(test)]
    pub fn of(all: Vec<Span>) -> Spans {
        Spans { all, last: 0 }
    }

    pub fn all(&self) -> &[Span] {
        &self.all
    }

    /// The number of the file that has this address.
    pub fn at(&mut self, address: u64) -> Option<usize> {
        let has = |s: &Span| s.range.contains(&address);
        if !self.all.get(self.last).is_some_and(has) {
            let behind = self.all.partition_point(|s| s.range.start <= address);
            let found = behind.checked_sub(1)?;
            self.last = Some(found).filter(|i| has(&self.all[*i]))?;
        }
        Some(self.last)
    }

    /// The same for an instruction.
    pub fn code_at(&mut self, address: u64) -> Option<usize> {
        let found = self.at(address)?;
        let code = &self.all[found].code;
        code.iter().any(|r| r.contains(&address)).then_some(found)
    }

    /// Where the next file begins behind an address.
    pub fn next(&self, address: u64) -> Option<u64> {
        let i = self.all.partition_point(|s| s.range.start <= address);
        self.all.get(i).map(|s| s.range.start)
    }
}

/// When a file is mapped.
struct Life {
    path: Arc<str>,
    since: Option<Position>,
    /// `None`: it stays.
    until: Option<Position>,
    /// Its lowest address stays the same.
    steady: bool,
}

/// The addresses that a module has from its first mapping up to a position. `None`: the lowest one changes.
fn range(module: &Module, changes: &[Change], to: Position) -> Option<Range<u64>> {
    let until = module.unload.map_or(to, |u| u.min(to));
    let of = |c: &Change| match &c.what {
        What::Map(m) if m.path == module.path => {
            let whose = module.start <= m.start && m.end <= module.end;
            whose.then_some(m.start..m.end)
        }
        _ => None,
    };
    // A change of what is mapped at an instant is behind it.
    let during = |c: &&Change| c.when >= module.load && c.when.is_none_or(|w| w < until);
    let during = || changes.iter().filter(during);
    let first = during().filter(|c| c.when == module.load).filter_map(of);
    let start = first.map(|r| r.start).min()?;
    let end = during().filter_map(of).map(|r| r.end).max()?;
    let moves = |c: &Change| match of(c) {
        Some(r) => r.start < start,
        // What was mapped there before the file does not count.
        None => {
            let (from, to) = c.what.range();
            c.when > module.load && (from..to).contains(&start)
        }
    };
    (!during().any(moves)).then_some(start..end)
}

/// Of these, the ones that can be named by their path, and whose addresses are theirs alone. By address.
fn keep(all: Vec<Span>, lives: &[Life]) -> Vec<Span> {
    let mut kept: Vec<bool> = lives.iter().map(|l| l.steady).collect();
    let mut by_path: Vec<usize> = (0..lives.len()).collect();
    by_path.sort_by_key(|i| (&lives[*i].path, lives[*i].since));
    let over = |l: &Life, at: Option<Position>| l.until.is_some_and(|u| Some(u) <= at);
    let mut whose = 0;
    for (n, i) in by_path.iter().enumerate() {
        let (before, l) = (by_path[whose], &lives[*i]);
        if n == 0 || lives[before].path != l.path {
            whose = n;
            continue;
        }
        if !over(&lives[before], l.since) {
            (kept[before], kept[*i]) = (false, false);
        }
        if lives[before]
            .until
            .is_some_and(|u| l.until.is_none_or(|v| v > u))
        {
            whose = n;
        }
    }
    let mut by_address: Vec<usize> = (0..all.len()).collect();
    by_address.sort_by_key(|i| all[*i].range.start);
    for only_code in [true, false] {
        let (mut end, mut whose) = (0, None);
        for i in by_address.iter().copied() {
            let r = &all[i].range;
            if only_code && !all[i].has_code {
                continue;
            }
            if let Some(before) = whose.filter(|_| r.start < end) {
                for one in [i, before] {
                    kept[one] &= !only_code && all[one].has_code;
                }
            }
            if r.end > end {
                (end, whose) = (r.end, Some(i));
            }
        }
    }
    let mut all: Vec<Option<Span>> = all.into_iter().map(Some).collect();
    let kept = by_address.into_iter().filter(|i| kept[*i]);
    kept.filter_map(|i| all[i].take()).collect()
}

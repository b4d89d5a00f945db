//! The files in which a debugger can set something, and from which step on.

use crate::{Filter, Kind, KindOf, Module, Position, Result, Timeline};
use std::ops::Range;
use std::sync::Arc;

/// `mmap` maps the parts of a module.
const MMAP: u64 = 9;
const PROT_EXEC: u32 = 4;

/// A module, and the steps in which it can be used.
pub struct Span {
    pub module: Module,
    /// The module's path.
    pub path: Arc<str>,
    /// The first step at which all of it is mapped.
    pub usable: u64,
    /// The first step at which it no longer is.
    pub gone: u64,
    pub code: Vec<Range<u64>>,
}

impl Span {
    fn range(&self) -> Range<u64> {
        self.module.start..self.module.end
    }
}

/// All of them, by address.
pub struct Spans {
    all: Vec<Span>,
    /// The one that was asked for last.
    last: usize,
}

impl Spans {
    /// Those of a program image up to a position. Files whose addresses other files had before or have later are left out.
    pub fn new(timeline: &Timeline, image: u32, to: Position) -> Result<Spans> {
        let maps = timeline.events(&Filter {
            image: Some(image),
            until: Some(to),
            kinds: vec![KindOf::Syscall],
            syscalls: vec![MMAP],
            ..Filter::default()
        })?;
        let step = |p: Position| timeline.locate(p).map(|i| i.count);
        let mut all: Vec<Span> = Vec::new();
        for module in timeline.modules(image)? {
            if !module.path.starts_with('/') || module.load.is_some_and(|p| p >= to) {
                continue;
            }
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
                    let there = m.position >= load && module.unload.is_none_or(|u| m.position < u);
                    if within && there {
                        usable = usable.max(m.count.saturating_add(1));
                    }
                }
            }
            let gone = module.unload.map_or(Ok(u64::MAX), step)?;
            // Where a file was unloaded, other code may be executed later.
            let stays = module.unload.is_none_or(|u| u >= to);
            let code = (module.parts.iter()).filter(|p| stays && p.prot & PROT_EXEC != 0);
            let code = code.map(|p| p.start..p.end).collect();
            all.push(Span {
                path: module.path.as_str().into(),
                module,
                usable,
                gone,
                code,
            });
        }
        all.sort_by_key(|s| s.module.start);
        let mut alone = vec![true; all.len()];
        let (mut end, mut whose) = (0, 0);
        for (i, s) in all.iter().enumerate() {
            if s.module.start < end {
                (alone[i], alone[whose]) = (false, false);
            }
            if s.module.end > end {
                (end, whose) = (s.module.end, i);
            }
        }
        let mut keep = alone.into_iter();
        all.retain(|_| keep.next() == Some(true));
        Ok(Spans { all, last: 0 })
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
        let has = |s: &Span| s.range().contains(&address);
        if !self.all.get(self.last).is_some_and(has) {
            let behind = self.all.partition_point(|s| s.module.start <= address);
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
        let i = self.all.partition_point(|s| s.module.start <= address);
        self.all.get(i).map(|s| s.module.start)
    }
}

//! Lists the events of a recording.

use super::Recording;
use crate::model::contents::*;
use crate::scan::Raw;
use crate::{Error, Position, Result};

impl Recording {
    /// Fails if the recording lacks the thread or the program image that a filter names.
    pub fn has(&self, filter: &Filter) -> Result<()> {
        if let Some(t) = filter.thread {
            self.thread(t)?;
        }
        let unknown = |i: &u32| self.trace.images().iter().all(|known| known.number != *i);
        match filter.image.filter(unknown) {
            Some(i) => Err(Error::NoImage(i)),
            None => Ok(()),
        }
    }

    /// The events that `filter` lets through, in the total order.
    pub fn events(&self, filter: &Filter) -> Result<Vec<Happening>> {
        self.has(filter)?;
        let mut out = Vec::new();
        self.add_thread_events(filter, &mut out)?;
        if wants(filter, KindOf::Process) && filter.thread.is_none() {
            self.add_process_events(filter, &mut out)?;
        }
        if wants(filter, KindOf::Module) {
            self.add_module_events(filter, &mut out)?;
        }
        out.retain(|h| within(filter, h.position));
        out.sort_by_key(|h| {
            (
                h.position,
                matches!(h.kind, Kind::ThreadEnd(_) | Kind::ProcessEnd { .. }),
            )
        });
        Ok(out)
    }

    /// Adds what happened in threads, and their beginnings and ends.
    fn add_thread_events(&self, filter: &Filter, out: &mut Vec<Happening>) -> Result<()> {
        let wants = |k| wants(filter, k);
        for (t, scan) in self.scans()? {
            let image = self.image(*t);
            if filter.thread.is_some_and(|f| f != *t) || filter.image.is_some_and(|f| f != image) {
                continue;
            }
            let mut push = |count: u64, kind: Kind| {
                let position = self.position_in(*t, scan, count);
                // There may be millions of others.
                if within(filter, position) {
                    out.push(Happening {
                        position,
                        thread: *t,
                        count,
                        kind,
                    })
                }
            };
            if wants(KindOf::Thread) {
                push(scan.from, Kind::ThreadBegin);
                if !self.is_open(*t, scan) {
                    push(scan.to, Kind::ThreadEnd(self.ending(*t, scan)));
                }
            }
            for (count, raw) in &scan.events {
                match *raw {
                    Raw::Syscall {
                        number,
                        args,
                        result,
                    } => {
                        let chosen =
                            filter.syscalls.is_empty() || filter.syscalls.contains(&number);
                        if wants(KindOf::Syscall) && chosen {
                            push(
                                *count,
                                Kind::Syscall {
                                    number,
                                    args,
                                    result,
                                },
                            )
                        }
                    }
                    Raw::Signal {
                        number,
                        code,
                        address,
                    } => {
                        let kind = Kind::Signal {
                            number,
                            code,
                            address,
                        };
                        if wants(KindOf::Signal) || wants(KindOf::Exception) && kind.is_exception()
                        {
                            push(*count, kind)
                        }
                    }
                }
            }
            for (count, kind) in scan.notes.iter().filter(|n| wants(n.1.of())) {
                push(*count, kind.clone());
            }
        }
        Ok(())
    }

    /// Adds beginnings and ends of program images.
    fn add_process_events(&self, filter: &Filter, out: &mut Vec<Happening>) -> Result<()> {
        let scans = self.scans()?;
        for p in self.processes()? {
            let (Some(first), Some(last)) = (
                p.threads.first(),
                p.threads
                    .iter()
                    .max_by_key(|t| self.bounds(**t, &scans[*t]).1),
            ) else {
                continue;
            };
            if filter.image.is_some_and(|f| f != p.image) {
                continue;
            }
            let image = p.image;
            out.push(Happening {
                position: p.begin,
                thread: *first,
                count: scans[first].from,
                kind: Kind::ProcessBegin { image },
            });
            if p.threads.iter().any(|t| self.is_open(*t, &scans[t])) {
                continue;
            }
            out.push(Happening {
                position: p.end,
                thread: *last,
                count: scans[last].to,
                kind: Kind::ProcessEnd { image },
            });
        }
        Ok(())
    }

    /// Adds files that were mapped and unmapped.
    fn add_module_events(&self, filter: &Filter, out: &mut Vec<Happening>) -> Result<()> {
        let images = self.trace.images().iter().map(|i| i.number);
        for image in images.filter(|i| filter.image.is_none_or(|f| f == *i)) {
            for m in self.modules(image)? {
                let (path, start, end) = (m.path, m.start, m.end);
                let load = m.load.map(|p| {
                    let path = path.clone();
                    (p, Kind::ModuleLoad { path, start, end })
                });
                let unload = m
                    .unload
                    .map(|p| (p, Kind::ModuleUnload { path, start, end }));
                for (position, kind) in load.into_iter().chain(unload) {
                    let ThreadInstant { thread, count } = self.locate(position)?;
                    if filter.thread.is_none_or(|f| f == thread) {
                        out.push(Happening {
                            position,
                            thread,
                            count,
                            kind,
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a filter lets events of a kind through.
fn wants(filter: &Filter, kind: KindOf) -> bool {
    filter.kinds.is_empty() || filter.kinds.contains(&kind)
}

/// Whether a filter lets instants at this position through.
fn within(filter: &Filter, position: Position) -> bool {
    filter.from.is_none_or(|p| p <= position) && filter.until.is_none_or(|p| position < p)
}

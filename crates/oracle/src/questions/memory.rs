//! Questions about memory.

use super::ask::Asker;
use super::log::Said;
use hindsight_timeline::{Ground, Memory, Result};
use std::time::Instant;

impl Asker<'_> {
    /// Memory before an instruction has, or may have, what the instruction is about to read.
    pub(super) fn truth(&mut self, k: usize) -> Result<()> {
        let world = self.world;
        let log = &world.logs[self.below(world.logs.len() as u64) as usize];
        if log.accesses.is_empty() {
            return Ok(());
        }
        let from = self.below(log.accesses.len() as u64) as usize;
        let Some(a) = log.accesses[from..].iter().find(|a| a.read && a.len > 0) else {
            return Ok(());
        };
        let count = log.from + a.at as u64;
        if log.signals.iter().any(|s| s.0 == count) {
            return Ok(());
        }
        let len = a.len.min(200);
        let lead = self.below(8);
        self.go(k, (log.thread, count))?;
        let c = &mut self.kinds[k].2;
        let glance = (count + a.address) & 1 == 0;
        let started = Instant::now();
        let m = match glance {
            true => c.known_memory(a.address - lead, (len + lead) as usize)?,
            false => c.memory(a.address - lead, (len + lead) as usize)?,
        };
        let ms = started.elapsed().as_secs_f64() * 1e3;
        if ms > self.tally.slowest.0 {
            self.tally.slowest = (
                ms,
                format!("memory {:#x}+{len} at {count} of {}", a.address, log.thread),
            );
        }
        for n in 0..len {
            let at = a.address + n;
            let Some(value) = log.value(a, at) else {
                continue;
            };
            let known = m.bytes[(n + lead) as usize];
            let may = may_be(&m, at, value);
            let right = match known {
                Some(b) if b.value == value => {
                    self.tally.bytes[0] += 1;
                    true
                }
                _ if may => {
                    self.tally.bytes[1] += 1;
                    true
                }
                Some(_) => false,
                None => {
                    self.tally.bytes[2] += 1;
                    true
                }
            };
            let name = self.kinds[k].0;
            self.check("what is read", right, || {
                format!("{name}: thread {} (image {}) at {count} ({}) reads {value:#x} at {at:#x}, peek {glance}: {known:x?}\n{m}", log.thread, log.image, log.position(count))
            });
        }
        Ok(())
    }

    /// An accessed value stays until something accesses it again or the recording has an event about it.
    pub(super) fn lasting(&mut self, k: usize) -> Result<()> {
        let world = self.world;
        let log = &world.logs[self.below(world.logs.len() as u64) as usize];
        if log.accesses.is_empty() {
            return Ok(());
        }
        let a = &log.accesses[self.below(log.accesses.len() as u64) as usize];
        let alone = world.logs.iter().filter(|l| l.image == log.image).count() == 1;
        if a.len == 0 {
            return Ok(());
        }
        let at = a.address + self.below(a.len);
        let count = log.from + a.at as u64;
        // Until then nothing happens to it.
        let touching = log.touching(at, 1);
        let next = touching
            .iter()
            .map(|t| log.from + t.at as u64)
            .find(|n| *n > count);
        let of_it = |s: &&Said| s.address <= at && at - s.address < s.len && s.at > count;
        let said = log.said.iter().find(of_it).map(|s| s.at);
        let until = [next, said.map(|s| s.saturating_sub(1))]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(log.to());
        if until <= count {
            return Ok(());
        }
        let last = touching.iter().rfind(|t| log.from + t.at as u64 == count);
        let (Some(last), Some(value)) = (last, last.and_then(|l| log.value(l, at))) else {
            return Ok(());
        };
        let m = count + 1 + self.below(until - count);
        self.go(k, (log.thread, m))?;
        let memory = self.kinds[k].2.memory(at, 1)?;
        let known = memory.bytes[0];
        let name = self.kinds[k].0;
        let (now, then) = (log.position(m), log.position(count));
        if alone {
            let wrote = touching
                .iter()
                .any(|t| t.write && log.from + (t.at as u64) < m);
            let ground = match known.map(|b| b.ground) {
                Some(Ground::Written) => wrote,
                Some(Ground::Read) => true,
                // A value that may have been changed or forgotten may be known in another way.
                _ => true,
            };
            let right = known.is_none_or(|b| b.value == value) && ground;
            self.tally.bytes[if known.is_some() { 0 } else { 2 }] += 1;
            self.check("what lasts", right, || {
                format!(
                    "{name}: {at:#x} at {m} of {} is {value:#x} since {count} ({}): {memory}",
                    log.thread, last.write
                )
            });
            if known.is_none() {
                let calls = log
                    .calls
                    .iter()
                    .filter(|c| count < c.0 + 1 && c.0 < m)
                    .count();
                self.check(
                    "is known",
                    calls > 0 || memory.candidates.len() + memory.unnamed.len() > 0,
                    || {
                        format!(
                            "{name}: {at:#x} at {m} of {} is not known, {value:#x} since {count}",
                            log.thread
                        )
                    },
                );
            }
            return Ok(());
        }
        let others = world
            .logs
            .iter()
            .filter(|l| l.image == log.image && l.thread != log.thread);
        let touched = others.flat_map(|l| {
            l.touching(at, 1)
                .into_iter()
                .map(move |t| l.position(l.from + t.at as u64))
        });
        let disturbed = touched.into_iter().any(|p| then < p && p < now);
        if !disturbed {
            let right = known.is_none_or(|b| b.value == value) || may_be(&memory, at, value);
            self.check("what lasts among threads", right, || {
                format!(
                    "{name}: {at:#x} at {m} of {} is {value:#x} since {count}: {memory}",
                    log.thread
                )
            });
        }
        Ok(())
    }

    /// All timelines give the same memory.
    pub(super) fn same(&mut self) -> Result<()> {
        let place = self.instant();
        // The frame of a signal may or may not be there already.
        if self
            .world
            .of(place.0)
            .signals
            .iter()
            .any(|s| s.0 == place.1)
        {
            return Ok(());
        }
        let (address, len) = self.somewhere();
        let len = len.min(300) as usize;
        let mut answers = Vec::new();
        for k in 0..self.kinds.len() {
            self.go(k, place)?;
            let c = &mut self.kinds[k].2;
            let m = c.memory(address, len)?;
            let quick = c.known_memory(address, len)?;
            let values = |m: &Memory| -> Vec<Option<u8>> {
                m.bytes.iter().map(|b| b.map(|b| b.value)).collect()
            };
            let (a, b) = (values(&m), values(&quick));
            let name = self.kinds[k].0;
            self.check("peek", a == b, || {
                format!("{name}: {address:#x}+{len} at {place:?}: {m}{quick}")
            });
            let mut candidates: Vec<_> = m
                .candidates
                .iter()
                .flat_map(|c| {
                    c.bytes
                        .iter()
                        .enumerate()
                        .map(move |(i, b)| (c.address + i as u64, *b))
                })
                .collect();
            candidates.sort_unstable();
            candidates.dedup();
            answers.push((a, candidates, m));
        }
        for k in 1..answers.len() {
            let right = answers[k].0 == answers[0].0 && answers[k].1 == answers[0].1;
            let name = self.kinds[k].0;
            self.check("the same", right, || {
                format!(
                    "{name}: {address:#x}+{len} at {place:?}: {}\nbut: {}",
                    answers[k].2, answers[0].2
                )
            });
        }
        Ok(())
    }
}

/// Whether a byte may have this value.
fn may_be(m: &Memory, at: u64, value: u8) -> bool {
    let covers = |a: u64, len: u64| a <= at && at - a < len;
    m.candidates.iter().any(|c| {
        covers(c.address, c.bytes.len() as u64) && c.bytes[(at - c.address) as usize] == value
    }) || m.unnamed.iter().any(|u| covers(u.address, u.len))
}

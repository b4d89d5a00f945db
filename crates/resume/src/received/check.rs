//! Whether a process may be as it is told.

use super::PAGE;
use crate::make::KERNELS;
use crate::{Error, Result};
use hindsight_inspect::ProcessState;
use hindsight_inspect::state::OpenKind;

/// The kernel lets no process have more mappings by default.
const MOST_MAPPINGS: usize = 65_530;
/// More threads are not told: each takes about 10 KiB of the description.
const MOST_THREADS: usize = 1024;
/// Descriptors of higher numbers are not made.
const MOST_DESCRIPTORS: usize = 1 << 20;
/// The longest path, name or sentence.
const LONGEST: usize = 4096;
/// The longest command line.
const LONGEST_COMMAND: usize = 1 << 20;
/// The most bytes of names that were changed.
const MOST_NAMES: usize = 1 << 20;
/// The most sentences of a kind.
const MOST_SENTENCES: usize = 4096;
/// The first address above the memory of programs, and the lowest address that they get.
pub const TOP: u64 = 0x7fff_ffff_f000;
const BOTTOM: u64 = 0x1_0000;

/// Fails unless a process may be so.
pub fn state(s: &ProcessState) -> Result<()> {
    threads(s)?;
    mappings(s)?;
    descriptors(s)?;
    let fail = |what| Err(Error::Nonsense(what));
    if s.actions.iter().any(|a| !(1..=64).contains(&a.signal)) {
        return fail("has signals that do not exist");
    }
    let texts = [&s.position, &s.kernel, &s.processor];
    let said = [&s.refused, &s.lost, &s.notes];
    let wordy = texts.iter().any(|t| t.len() > LONGEST)
        || s.command.len() > LONGEST_COMMAND
        || said
            .iter()
            .any(|l| l.len() > MOST_SENTENCES || l.iter().any(|t| t.len() > LONGEST));
    let paths = s.folder.as_deref().is_some_and(is_long) || is_long(&s.program.0);
    let names = s.renamed.as_deref().unwrap_or_default();
    let len = names
        .iter()
        .fold(0usize, |n, name| n.saturating_add(name.len() + 1));
    let renamed = len > MOST_NAMES || names.windows(2).any(|w| w[0] >= w[1]);
    let heap = s.heap.is_some_and(|(a, b)| a > b || b > TOP);
    let mask = s.umask.is_some_and(|m| m > 0o777);
    if wordy || renamed || paths || heap || mask || s.auxiliary.len() > 4096 {
        return fail("does not fit together");
    }
    Ok(())
}

/// Fails unless all files are told to which descriptors lead.
pub fn files(s: &ProcessState, count: usize) -> Result<()> {
    let all = s.open.iter().all(|o| match &o.kind {
        OpenKind::File { stored, .. } | OpenKind::Unnamed { stored, .. } => {
            (*stored as usize) < count
        }
        _ => true,
    });
    match all {
        true => Ok(()),
        false => Err(Error::Nonsense("has files that are not told")),
    }
}

fn threads(s: &ProcessState) -> Result<()> {
    if s.threads.is_empty() || s.threads.len() > MOST_THREADS {
        return Err(Error::Nonsense("has no threads, or too many"));
    }
    let whole = s.threads.iter().all(|t| {
        t.registers.len() == 20
            && t.zmm.len() == 2048
            && t.masks.len() == 8
            && t.x87.len() == 128
            && t.name.len() <= LONGEST
            && t.call.as_ref().is_none_or(|c| c.len() <= LONGEST_COMMAND)
    });
    match whole {
        true => Ok(()),
        false => Err(Error::Nonsense("has threads that cannot be")),
    }
}

fn mappings(s: &ProcessState) -> Result<()> {
    if s.mappings.is_empty() || s.mappings.len() > MOST_MAPPINGS {
        return Err(Error::Nonsense("has no mappings, or too many"));
    }
    let mut end = BOTTOM;
    for m in &s.mappings {
        let placed = m.start >= end && m.start < m.end && m.end <= TOP;
        let whole = m.start.is_multiple_of(PAGE) && m.end.is_multiple_of(PAGE) && m.prot <= 7;
        if !placed || !whole || m.name.len() > LONGEST {
            return Err(Error::Nonsense("has mappings that cannot be"));
        }
        end = m.end;
    }
    for name in KERNELS {
        if s.mappings.iter().filter(|m| m.name == name).count() > 1 {
            return Err(Error::Nonsense("has the kernel's mappings twice"));
        }
    }
    Ok(())
}

fn descriptors(s: &ProcessState) -> Result<()> {
    if s.open.len() > MOST_DESCRIPTORS || s.descriptors.len() > MOST_DESCRIPTORS {
        return Err(Error::Nonsense("has too many descriptors"));
    }
    let wrong = Err(Error::Nonsense("has descriptors that cannot be"));
    let mut last = -1;
    for (fd, open, _) in &s.descriptors {
        if *fd <= last || *fd as usize >= MOST_DESCRIPTORS || *open as usize >= s.open.len() {
            return wrong;
        }
        last = *fd;
    }
    let impossible = s.open.iter().any(|o| match &o.kind {
        OpenKind::File { path, .. } | OpenKind::Folder { path, .. } => is_long(path),
        OpenKind::Unnamed { what, .. } | OpenKind::Lost(what) => what.len() > 2 * LONGEST,
        OpenKind::Standard(n) => !(0..3).contains(n),
        OpenKind::Pipe { waiting, .. } => waiting.as_ref().is_some_and(|w| w.len() > 1 << 20),
        _ => false,
    });
    if impossible { wrong } else { Ok(()) }
}

fn is_long(path: &[u8]) -> bool {
    path.len() > LONGEST || path.contains(&0)
}

//! Answers two questions about memory without looking at what was executed:
//!
//! - what was never mapped, so nothing was ever there;
//! - what a file says of memory that nobody could write.
//!
//! A search for the last access to such bytes would have to go back to the beginning.

use super::query::Query;
use crate::engine::Engine;
use crate::model::memory::{Ground, KnownByte};
use crate::play::Viewpoint;
use crate::recording::maps::{Change, What};
use crate::scan::{Raw, Scan};
use crate::{Mapping, Position, Result};
use hindsight_trace::Completeness;
use std::ops::Range;
use std::sync::Arc;

const WRITE: u32 = 2;
const PRIVATE: u32 = 2;
const GROWS_DOWN: u32 = 0x100;
const PAGE: u64 = 4096;
/// A page of the kernel. Mappings need not mention it.
const VSYSCALL: Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
/// `ptrace` and `process_vm_writev`.
const MEDDLING: [u64; 2] = [101, 311];

/// A change of the mappings, and the range of bytes that it may concern.
type Near<'a> = (&'a Change, (u64, u64));

/// Fills in what is evident.
pub fn find(view: &Viewpoint, q: &mut Query) -> Result<()> {
    let engine = Arc::clone(view.engine());
    // A recording that was cut may lack mappings.
    if engine.trace.completeness() != Completeness::Complete {
        return Ok(());
    }
    let (image, here) = (view.image(), view.position()?);
    let changes = engine.changes(image)?;
    let (address, len) = (q.m.address, q.len());
    let end = address.saturating_add(len);
    let near: Vec<Near> = (changes.iter())
        .filter_map(|c| Some((c, reach(c, &changes)?)))
        .filter(|(_, (from, to))| *from < end && address < *to)
        .collect();
    absent(&near, here, q);
    if near.iter().any(|n| is_of_file(n.0)) {
        files(&engine, image, here, &near, q)?;
    }
    Ok(())
}

/// The bytes that a change may have given a program. A stack grows downwards without notice, as far as to the next
/// mapping below.
fn reach(c: &Change, all: &[Change]) -> Option<(u64, u64)> {
    let What::Map(m) = &c.what else { return None };
    if m.path != "[stack]" && m.flags & GROWS_DOWN == 0 {
        return Some((m.start, m.end));
    }
    let below = |o: &Change| match &o.what {
        What::Map(o) if o.end <= m.start => Some(o.end),
        _ => None,
    };
    let before = all.iter().filter(|o| o.when.is_none());
    Some((before.filter_map(below).max().unwrap_or(0), m.end))
}

fn is_of_file(c: &Change) -> bool {
    matches!(&c.what, What::Map(m) if m.path.starts_with('/'))
}

/// Memory that was never accessible has no value, and never had one.
fn absent(near: &[Near], here: Position, q: &mut Query) {
    let accessible = |n: &&Near| {
        let before = n.0.when.is_none_or(|w| w <= here);
        before && matches!(&n.0.what, What::Map(m) if m.prot != 0)
    };
    let there: Vec<(u64, u64)> = near.iter().filter(accessible).map(|n| n.1).collect();
    for i in 0..q.m.bytes.len() {
        let at = q.m.address.wrapping_add(i as u64);
        let inside = |r: &(u64, u64)| r.0 <= at && at < r.1;
        q.lost[i] |= !there.iter().any(inside) && !VSYSCALL.contains(&at);
    }
}

/// Fills in code and constants from files, where memory was never writable.
fn files(
    engine: &Arc<Engine>,
    image: u32,
    here: Position,
    near: &[Near],
    q: &mut Query,
) -> Result<()> {
    if meddled(engine)? {
        return Ok(());
    }
    let fixed = |n: &Near| match &n.0.what {
        What::Map(m) => m.prot & WRITE == 0 && m.flags & PRIVATE != 0,
        What::Unmap(..) => true,
    };
    let end = q.m.address.saturating_add(q.len());
    let list = engine.mappings(image, here)?;
    let inside = |r: &&Mapping| r.start < end && q.m.address < r.end && r.path.starts_with('/');
    for r in list.iter().filter(inside).cloned() {
        let first = |o: &&Mapping| o.path == r.path && o.offset == 0 && o.start <= r.start;
        let Some(base) = list.iter().filter(first).map(|o| o.start).max() else {
            continue;
        };
        let Some((file, constant)) = constants(engine, &r, base)? else {
            continue;
        };
        for i in 0..q.m.bytes.len() {
            let at = q.m.address.wrapping_add(i as u64);
            let around = |n: &&Near| n.1.0 <= at && at < n.1.1;
            let offset = at.wrapping_sub(r.start).wrapping_add(r.offset);
            if r.start <= at
                && at < r.end
                && q.open(i)
                && (constant.iter())
                    .any(|(c, from)| c.contains(&at) && at - c.start + from == offset)
                && near.iter().filter(around).all(fixed)
            {
                let byte = usize::try_from(offset).ok().and_then(|o| file.get(o));
                q.m.bytes[i] = byte.map(|value| KnownByte {
                    value: *value,
                    ground: Ground::Module,
                });
            }
        }
    }
    Ok(())
}

/// Whether a recorded process may have written into the memory of others, as a debugger does.
pub fn meddled(engine: &Arc<Engine>) -> Result<bool> {
    let engine = &engine;
    if let Some(m) = engine.meddled.get() {
        return Ok(*m);
    }
    let calls = |s: &Scan| {
        let call = |e: &(u64, Raw)| matches!(e.1, Raw::Syscall { number, .. } if MEDDLING.contains(&number));
        s.events.iter().any(call)
    };
    let found = engine.scans()?.values().any(calls);
    Ok(*engine.meddled.get_or_init(|| found))
}

/// Ranges of addresses, each with the offset of its first byte in the file.
type Parts = Vec<(Range<u64>, u64)>;

/// A mapped executable file that is loaded at `base`, and its parts that are not writable. Other parts may have been
/// written before they became read-only. Not all of that is recorded.
fn constants(
    engine: &Arc<Engine>,
    r: &Mapping,
    base: u64,
) -> Result<Option<(Arc<Vec<u8>>, Parts)>> {
    let path = r.path.as_bytes();
    let mut named = (engine.trace.modules().iter()).filter(|m| m.path.as_bytes() == path);
    // A path may have named one file after another.
    let (Some(info), None) = (named.next(), named.next()) else {
        return Ok(None);
    };
    let file = engine.file(info.hash)?;
    let parts = constant_parts(&file, base).unwrap_or_default();
    Ok((!parts.is_empty()).then_some((file, parts)))
}

/// The segments of an ELF file that cannot be written, if nothing is relocated there.
fn constant_parts(file: &[u8], base: u64) -> Option<Parts> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const HEADER: usize = 56;
    let word = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?));
    // Only 64-bit, little-endian files.
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, count) = (usize::try_from(word(32)?).ok()?, word(56)? as u16 as usize);
    let (mut parts, mut written, mut bias) = (Vec::new(), Vec::new(), None);
    for i in 0..count {
        let at = table
            .checked_add(i * HEADER)
            .filter(|at| *at < file.len())?;
        let head = word(at)?;
        let [offset, address, size, held] =
            [8, 16, 32, 40].map(|n| word(at + n).unwrap_or_default());
        let (kind, flags) = (head as u32, (head >> 32) as u32);
        if kind == DYNAMIC && has_text_relocations(file, offset, size) {
            return None;
        }
        if kind != LOAD {
            continue;
        }
        let bias = *bias.get_or_insert(base.wrapping_sub(address & !(PAGE - 1)));
        let start = address.wrapping_add(bias);
        // Mappings consist of whole pages.
        let stop = start.checked_add(held)?.checked_next_multiple_of(PAGE)?;
        match flags & WRITE {
            0 => parts.push((start..start.checked_add(size)?, offset)),
            _ => written.push(start & !(PAGE - 1)..stop),
        }
    }
    parts.retain(|(p, _)| !written.iter().any(|w| w.start < p.end && p.start < w.end));
    Some(parts)
}

/// Whether a dynamic section says that the loader writes into segments that are not writable (`DT_TEXTREL`).
fn has_text_relocations(file: &[u8], from: u64, size: u64) -> bool {
    const TEXTREL: u64 = 22;
    const FLAGS: u64 = 30;
    const FLAG: u64 = 4;
    let [from, size] = [from, size].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let end = from.saturating_add(size).min(file.len());
    let entries = file.get(from..end).unwrap_or_default().as_chunks::<16>().0;
    entries.iter().any(|e| {
        let [tag, value] = [0, 8].map(|n| u64::from_le_bytes(std::array::from_fn(|i| e[n + i])));
        tag == TEXTREL || tag == FLAGS && value & FLAG != 0
    })
}

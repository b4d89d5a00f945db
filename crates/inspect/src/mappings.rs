//! What a process has mapped, as `/proc/PID/maps` shows it.

use crate::Result;
use crate::coredump::{notes, threads};
use hindsight_timeline::regs::RSP;
use hindsight_timeline::{Cancel, Cursor, Mapping};

const PAGE: u64 = 4096;
const PROT_WRITE: u32 = 2;
/// What a function may use below the stack pointer.
const RED_ZONE: u64 = 128;

/// What the process in which the cursor stands has mapped there, in order of address. Neighbours that the kernel shows as
/// one are one. The stack reaches down as far as its threads use it there. It may reach further: it does not shrink.
///
/// # Errors
/// The recording does not answer.
pub fn mappings(cursor: &mut Cursor) -> Result<Vec<Mapping>> {
    let threads = threads(cursor, &Cancel::new())?;
    let here = cursor.position()?;
    let mut all = joined(cursor.timeline().mappings(cursor.image(), here)?);
    grow_stacks(&mut all, &threads);
    for m in &mut all {
        if m.is_shared() && m.path.is_empty() {
            // Shared memory without a file is one of the kernel's, and this is its name.
            m.path = "/dev/zero (deleted)".into();
        }
    }
    Ok(all)
}

/// A stack grows without notice, as far as its thread needs.
pub(crate) fn grow_stacks(mappings: &mut [Mapping], threads: &[notes::Thread]) {
    for t in threads {
        let used = t.cpu.gpr[RSP].saturating_sub(RED_ZONE) & !(PAGE - 1);
        let above = mappings.partition_point(|m| m.start <= used);
        let below = above.checked_sub(1).map_or(0, |i| mappings[i].end);
        if let Some(m) = mappings.get_mut(above)
            && m.path == "[stack]"
            && below <= used
        {
            m.start = used;
        }
    }
}

/// Each call that maps memory is recorded by itself, such as each step by which the heap grew.
fn joined(parts: Vec<Mapping>) -> Vec<Mapping> {
    let mut out: Vec<Mapping> = Vec::new();
    for m in parts {
        match out.last_mut().filter(|before| follows(&m, before)) {
            Some(before) => before.end = m.end,
            None => out.push(m),
        }
    }
    out
}

fn follows(m: &Mapping, before: &Mapping) -> bool {
    let len = before.end - before.start;
    // The kernel keeps private memory that once could be written apart from memory that never could, as `.data.rel.ro`
    // from constants. So it is only sure of memory that can be written now.
    let alike = m.is_shared() || m.prot & PROT_WRITE != 0;
    alike
        && before.end == m.start
        && (before.prot, before.flags, &before.path) == (m.prot, m.flags, &m.path)
        // Each shared memory begins at offset 0, so two of them do not follow each other.
        && (m.is_private_anonymous() || before.offset.wrapping_add(len) == m.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 2;
    const ANONYMOUS: u32 = 0x22;
    const SHARED: u32 = 0x21;

    fn joins(parts: &[(u64, u64, u32, u32, u64, &str)]) -> Vec<(u64, u64)> {
        let parts = parts
            .iter()
            .map(|(start, end, prot, flags, offset, path)| Mapping {
                start: *start,
                end: *end,
                prot: *prot,
                flags: *flags,
                offset: *offset,
                path: path.to_string(),
            });
        let all = joined(parts.collect());
        all.iter().map(|m| (m.start, m.end)).collect()
    }

    #[test]
    fn neighbours_are_one_if_the_kernel_shows_one() {
        // The heap, grown twice.
        let heap = |start, end| (start, end, 3, ANONYMOUS, 0, "[heap]");
        assert_eq!(
            joins(&[
                heap(0x1000, 0x3000),
                heap(0x3000, 0x4000),
                heap(0x5000, 0x6000)
            ]),
            [(0x1000, 0x4000), (0x5000, 0x6000)]
        );
        // A file: what follows in it, and what does not.
        let file = |start, end, prot, offset| (start, end, prot, FILE, offset, "/a");
        assert_eq!(
            joins(&[
                file(0x1000, 0x2000, 3, 0x4000),
                file(0x2000, 0x3000, 3, 0x5000),
                file(0x3000, 0x4000, 7, 0x6000),
                file(0x4000, 0x5000, 7, 0x6000),
                (0x5000, 0x6000, 7, FILE, 0x7000, "/b"),
            ]),
            [
                (0x1000, 0x3000),
                (0x3000, 0x4000),
                (0x4000, 0x5000),
                (0x5000, 0x6000)
            ]
        );
        // What can only be read may have been writable.
        assert_eq!(
            joins(&[
                file(0x1000, 0x2000, 1, 0x4000),
                file(0x2000, 0x3000, 1, 0x5000)
            ]),
            [(0x1000, 0x2000), (0x2000, 0x3000)]
        );
        // Two parts of shared memory, and other shared memory behind them.
        let shared = |start, end, offset| (start, end, 3, SHARED, offset, "");
        assert_eq!(
            joins(&[
                shared(0x1000, 0x2000, 0),
                shared(0x2000, 0x3000, 0x1000),
                shared(0x3000, 0x4000, 0)
            ]),
            [(0x1000, 0x3000), (0x3000, 0x4000)]
        );
    }
}

//! What made memory what it is, as the recording tells it.

use super::{Origin, Raw, Scan, Source};

impl Scan {
    /// Notes memory that is given. The present system call wrote it, or the one that has just ended. If there is none,
    /// the memory had that content before.
    pub(super) fn write(&mut self, pos: u64, addr: u64, len: u64) {
        self.given.push((pos, addr, len));
        if let Some((p, Raw::Syscall { .. })) = self.events.last()
            && (*p == pos || p + 1 == pos)
        {
            self.written.push((*p, addr, len));
            self.sources.told(pos, addr, len);
        }
    }

    /// What a checked thread's system call wrote that has returned at `count`: addresses and lengths. Nothing if memory became
    /// something else there, too.
    pub fn just_told(&self, count: u64) -> Vec<(u64, u64)> {
        if count == 0 || self.quiet_until >= count {
            return Vec::new();
        }
        let at = |list: &'_ [(u64, u64, u64)], at: u64| {
            let from = list.partition_point(|e| e.0 < at);
            let same = list[from..].iter().take_while(|e| e.0 == at);
            same.map(|e| (e.1, e.2)).collect::<Vec<_>>()
        };
        match at(&self.zeros, count).is_empty() {
            true => at(&self.written, count - 1),
            false => Vec::new(),
        }
    }

    /// Whether the recording gives some of these bytes when the thread executes the instruction at `count`: before it, or by a
    /// system call.
    pub fn gives(&self, count: u64, address: u64, len: u64) -> bool {
        let end = address.saturating_add(len);
        let at = |list: &[(u64, u64, u64)]| {
            let from = list.partition_point(|e| e.0 < count);
            let mut same = list[from..].iter().take_while(|e| e.0 == count);
            same.any(|e| e.1 < end && address < e.1.saturating_add(e.2))
        };
        at(&self.given) || at(&self.written)
    }

    /// Notes what made some memory what it is.
    pub(super) fn source(&mut self, at: u64, address: u64, len: u64, origin: Origin) {
        if len == 0 {
            return;
        }
        self.sources.push(Source {
            at,
            address,
            len,
            origin,
        });
        if self.quiet_until != u64::MAX {
            self.clobber(at, false, address, len);
        }
    }

    /// The quiet regime ends. If it ends because a file was mapped, the content of that file may not be recorded. Then
    /// the memory does not hold the zeros with which the mapping began for the virtual processor.
    pub(super) fn untold(&mut self, pos: u64) {
        let origin = self.fresh(pos);
        if let Some((_, Raw::Syscall { args, result, .. })) = self.events.last()
            && let (Origin::Mapped, Some(at)) = (origin, *result)
            && at < -4096i64 as u64
        {
            let len = args[1].saturating_add(4095) & !4095;
            self.source(pos, at, len, origin);
            self.clobber(pos, false, at, len);
        }
    }

    /// What made the memory that the present system call, or the one that has just ended, has made anew.
    pub(super) fn fresh(&self, pos: u64) -> Origin {
        const ANONYMOUS: u64 = 0x20;
        const MMAP: u64 = 9;
        const MUNMAP: u64 = 11;
        const BRK: u64 = 12;
        match self.events.last() {
            Some((p, Raw::Syscall { number, args, .. })) if *p == pos || p + 1 == pos => {
                match *number {
                    MMAP if args[3] & ANONYMOUS != 0 => Origin::Zero,
                    MMAP => Origin::Mapped,
                    MUNMAP | BRK => Origin::Zero,
                    _ => Origin::Unknown,
                }
            }
            _ => Origin::Unknown,
        }
    }

    /// What made the memory that the present system call, or the one that has just ended, has changed.
    pub(super) fn changed_by(&self, pos: u64, address: u64, len: u64) -> Origin {
        const MADVISE: u64 = 28;
        const DONTNEED: u32 = 4;
        const DONTNEED_LOCKED: u32 = 24;
        // A part of the range is not mapped: it has discarded the others.
        const NOT_ALL: u64 = -12i64 as u64;
        let Some((
            p,
            Raw::Syscall {
                number,
                args,
                result,
            },
        )) = self.events.last()
        else {
            return Origin::Unknown;
        };
        // A signal that arrives there changes memory, too.
        let its = (args[0], args[1].saturating_add(4095) & !4095) == (address, len);
        let here = its && (*p == pos || p + 1 == pos);
        let discards = [DONTNEED, DONTNEED_LOCKED].contains(&(args[2] as u32));
        let done = matches!(*result, Some(0 | NOT_ALL));
        match here && *number == MADVISE && discards && done {
            true => Origin::Discarded,
            false => Origin::Unknown,
        }
    }
}

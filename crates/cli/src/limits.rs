//! What a command that reads a recording may take of memory.
//!
//! A recording of two kilobytes can ask for any amount: its program may touch all memory there is. A thread looks a hundred
//! times a second at what the process has. So it does not matter who took it: replay, the index, symbols or lists of
//! events. Above the limit the process ends with an error. Otherwise the kernel would end it without one, and perhaps
//! others with it. That thread also takes signals such as Ctrl-C. The threads that execute translated code have blocked
//! them.

use crate::numbers::size;
use crate::say;
use hindsight_trace::Trace;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What any recording may take, whatever is in it.
const BASE: u64 = 1 << 30;

/// And for each of its bytes: events and programs are compressed, and what is found out about them takes more memory
/// than they do.
const PER_BYTE: u64 = 8;

/// Copies of the program's memory that each processor that replays may have: the memory itself, the marks of reads and of
/// writes, and what the index says of it.
const COPIES: u64 = 5;

/// How often it is looked, and after how many looks at what was swapped out, which takes longer.
const LOOK: Duration = Duration::from_millis(10);
const SWAP: u32 = 10;

/// The limit, unless it is what the user said.
static LIMIT: AtomicU64 = AtomicU64::new(BASE);
/// What the user said; 0: nothing.
static SAID: AtomicU64 = AtomicU64::new(0);

/// What this machine has for this process, if that is known.
static MOST: AtomicU64 = AtomicU64::new(u64::MAX);

/// A command may take `said` or, if nothing is said, what a recording of which nothing is known may take. See [`watch`].
pub fn begin(said: Option<u64>) {
    SAID.store(said.unwrap_or(0), Relaxed);
    LIMIT.store(said.unwrap_or(BASE), Relaxed);
}

/// What the kernel says of this process: `statm` and `status`.
static TABLES: OnceLock<Option<[File; 2]>> = OnceLock::new();

/// Opens what [`watch`] needs, in the process that calls that.
pub fn prepare() {
    TABLES.get_or_init(|| {
        MOST.store(most(), Relaxed);
        let open = |name| File::open(format!("/proc/self/{name}")).ok();
        Some([open("statm")?, open("status")?])
    });
}

/// From now on this process ends when it has more memory. A process that is forked off has no such thread.
pub fn watch() {
    prepare();
    let Some(Some([statm, status])) = TABLES.get() else {
        return;
    };
    let watch = move || {
        let mut swapped = 0;
        for n in 0u32.. {
            if n % SWAP == 0 {
                swapped = field(status, "VmSwap:").unwrap_or(0) << 10;
            }
            let limit = LIMIT.load(Relaxed);
            if resident(statm).unwrap_or(0) + swapped > limit {
                end(limit);
            }
            std::thread::sleep(LOOK);
        }
    };
    // Without a name, which takes a system call. Where no thread can be made there is no memory for much else.
    let _ = std::thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(watch);
}

/// Runs a command that reads recordings but plays none.
pub fn within(command: impl FnOnce() -> anyhow::Result<i32>) -> anyhow::Result<i32> {
    watch();
    command()
}

/// The limit that the user has set.
pub fn said() -> Option<u64> {
    Some(SAID.load(Relaxed)).filter(|n| *n > 0)
}

/// Raises the limit to what a recording may need, by what it says of itself. `jobs` processors replay it at the same time.
/// The limit is never more than this machine has. It stays as it is if the user has set it.
pub fn allow(trace: &Trace, jobs: usize) {
    set(BASE.saturating_add(needs(trace, jobs)));
}

/// Raises it by what another recording may need that is read at the same time.
pub fn allow_more(trace: &Trace, jobs: usize) {
    raise(needs(trace, jobs));
}

/// What a recording may need besides what any may take.
fn needs(trace: &Trace, jobs: usize) -> u64 {
    let summary = trace.summary();
    let had = summary.map_or(0, |s| s.peak_memory_kib.saturating_mul(1024));
    let beside = summary.map_or(0, |s| s.shared_bytes);
    let content = trace.len().saturating_add(beside).saturating_mul(PER_BYTE);
    let copies = had.saturating_mul(COPIES).saturating_mul(jobs as u64);
    content.saturating_add(copies)
}

/// Raises the limit by what the user has asked for in another way.
pub fn raise(by: u64) {
    set(LIMIT.load(Relaxed).saturating_add(by));
}

fn set(limit: u64) {
    if said().is_none() {
        LIMIT.store(limit.min(MOST.load(Relaxed)).max(BASE), Relaxed);
    }
}

/// Processors that replay where the user has not said how many.
pub fn processors() -> usize {
    hindsight_guard::processors()
}

/// Three quarters of the memory of this machine, or of what this process and its kin may have of it.
fn most() -> u64 {
    let total = File::open("/proc/meminfo").ok();
    let total = total
        .and_then(|f| field(&f, "MemTotal:"))
        .map(|kib| kib << 10);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|t| t.trim().parse().ok());
    let least = [total, group].into_iter().flatten().min();
    least.map_or(u64::MAX, |n| n / 4 * 3)
}

/// Bytes in memory.
fn resident(statm: &File) -> Option<u64> {
    let mut b = [0; 128];
    let n = statm.read_at(&mut b, 0).ok()?;
    let pages: u64 = std::str::from_utf8(&b[..n])
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(pages * 4096)
}

/// The number behind a name in one of the kernel's tables.
fn field(table: &File, name: &str) -> Option<u64> {
    let mut b = [0; 4096];
    let n = table.read_at(&mut b, 0).ok()?;
    let text = String::from_utf8_lossy(&b[..n]);
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn end(limit: u64) -> ! {
    say(&format!(
        "this takes more than {} of memory, which is the limit for this recording: it may have been made to take up \
         all there is. If you trust it, allow more by --max-memory SIZE",
        size(limit)
    ));
    // SAFETY: ends the process at once. Destructors and the like are of no use to what is given up amid its work.
    unsafe { libc::_exit(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted() {
        let statm = File::open("/proc/self/statm").unwrap();
        let before = resident(&statm).unwrap();
        let much = vec![1u8; 64 << 20];
        let after = resident(&statm).unwrap();
        assert!(after - before >= 60 << 20, "{before} {after}");
        drop(much);
        let status = File::open("/proc/self/status").unwrap();
        assert!(field(&status, "VmRSS:").unwrap() > 1000);
        assert_eq!(field(&status, "Nothing:"), None);
        assert!(most() > 64 << 20);
    }
}

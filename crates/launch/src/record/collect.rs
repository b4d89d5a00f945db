//! Draining the rings, and the end of that.

use crate::destination::{Contents, Out};
use crate::front::foreground::BEAT;
use crate::notice::{Notice, Tell};
use crate::sys::process;
use hindsight_collector::{Collected, Collector, Control, discard};
use hindsight_trace::Summary;
use hindsight_trace::meta::Ending;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest time in which the recording is to be complete when somebody wants its end.
const LAST: Duration = Duration::from_secs(20);

/// The same if nothing is done for it: whoever is to read the recording does not.
const STANDS: Duration = Duration::from_millis(500);

/// Processor time that is more than looking whether something is done.
const WORK: Duration = Duration::from_millis(3);

/// Time after which a word is said about what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lets a recording share the content of files, or copy it, if its place has that.
pub fn share<'c>(collector: Collector<'c, Out>, files: Option<Contents>) -> Collector<'c, Out> {
    match files {
        Some(Contents::Shared(f)) => collector.share(f),
        Some(Contents::Packed(f)) => collector.copy_from(f),
        None => collector,
    }
}

/// Collects. If that fails by an error of its own, the program goes on unrecorded.
pub fn collect(
    collector: Collector<Out>,
    control: &Control,
    over: &AtomicBool,
    stop: &AtomicBool,
    tell: &Tell,
) -> Option<Collected<Out>> {
    // Nothing of it is used when it has panicked.
    let run = AssertUnwindSafe(|| collector.run(over, stop));
    match catch_unwind(run) {
        Ok(collected) => Some(collected),
        Err(_) => {
            tell(&Notice::CollectorFailed);
            discard(control, over, stop);
            None
        }
    }
}

/// Whether this process does anything.
struct Idle {
    cpu: Duration,
    since: Instant,
}

impl Idle {
    fn new() -> Idle {
        Idle {
            cpu: process::own_cpu(),
            since: Instant::now(),
        }
    }

    /// Whether a thread besides this one wants a processor, or waits for a disk.
    fn is_about_to(&self) -> bool {
        let threads = |letter| process::threads_in(process::own_id(), letter);
        threads(b'R') > 1 || threads(b'D') > 0
    }

    /// Whether it has done nothing for a while, and waits for no disk: who reads what it writes does not.
    fn look(&mut self) -> bool {
        let cpu = process::own_cpu();
        if cpu > self.cpu + WORK || self.is_about_to() {
            (self.cpu, self.since) = (cpu, Instant::now());
        }
        self.since.elapsed() > STANDS
    }
}

/// What is done while others than the program are still recorded.
pub struct Meanwhile<'m> {
    /// Whether the recording is to end although they go on.
    pub told_to_end: &'m dyn Fn() -> bool,
    /// A few times a second.
    pub beat: &'m dyn Fn(),
    /// Nobody takes what is written.
    pub give_up: &'m dyn Fn(),
    /// Told what is waited for.
    pub tell: &'m Tell,
}

/// Sees to the other recorded processes when the program itself has ended, until the collector says through `finished`
/// that all have. `stop` has the collector end before that.
pub fn await_others(
    control: &Control,
    finished: &mpsc::Receiver<()>,
    stop: &AtomicBool,
    meanwhile: &Meanwhile,
) {
    let (mut told, mut given_up) = (false, false);
    let since = Instant::now();
    let mut stopped = None;
    let mut idle = Idle::new();
    while finished.recv_timeout(BEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
        (meanwhile.beat)();
        let stands = idle.look();
        if (meanwhile.told_to_end)() {
            stop.store(true, Release);
            control.wake();
            if stopped.is_none() {
                // How long it stood before says nothing.
                idle = Idle::new();
            }
            stopped = stopped.or(Some(Instant::now()));
        }
        let overdue = |s: Instant| stands && s.elapsed() > STANDS || s.elapsed() > LAST;
        if !given_up && stopped.is_some_and(overdue) {
            given_up = true;
            (meanwhile.tell)(&Notice::NobodyReads);
            (meanwhile.give_up)();
        }
        if !told && since.elapsed() > PATIENCE {
            told = true;
            (meanwhile.tell)(&Notice::OthersGoOn);
        }
    }
}

/// Writes the end of the trace.
pub fn finish(collected: &mut Collected<Out>, summary: Summary, tell: &Tell) -> Summary {
    let told = collected.error.is_some();
    let (_, summary) = collected.finish(summary);
    if let (false, Some(e)) = (told, &collected.error) {
        tell(&Notice::EndNotWritten(e));
    }
    summary
}

/// How the recorded process ended, as far as its threads have said.
pub fn ending_of<W: Write>(collected: &Collected<W>) -> Option<Ending> {
    if collected.is_detached() {
        return Some(Ending::Detached);
    }
    let end = collected.end()?;
    match end.kind.as_str() {
        "exit" => Some(Ending::Exit(end.code as i32)),
        "signal" => Some(Ending::Signal(end.code as i32)),
        _ => None,
    }
}

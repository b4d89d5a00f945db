//! One recorded run of a program, from the side that collects.

use super::collect::{Meanwhile, await_others, collect, ending_of, finish, share};
use super::config::program_header;
use super::deadline::Deadline;
use super::{Builder, tell_end};
use crate::destination::{Contents, Out, Sink, Written};
use crate::dump::{self, Listener};
use crate::error::{During, Error, Result};
use crate::explain::explain;
use crate::front::parent::Parent;
use crate::notice::{Notice, Tell};
use crate::outcome::Outcome;
use crate::program::Program;
use crate::retention::KeepOn;
use crate::sys::process::{self, Ended};
use crate::translations::Translations;
use hindsight_collector::{Collected, Collector, Control};
use hindsight_events::config::Config;
use hindsight_events::ring;
use hindsight_events::shared_cache::Count;
use hindsight_store as store;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Header, Ring, RingSnapshot, Summary};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

/// Prepares for the program, has it started, records it to its end and sees to the recording.
pub fn work(
    b: &Builder,
    program: &Program,
    control: &Control,
    config: &Config,
    parent: &dyn Parent,
) -> Result<Outcome> {
    control.adopt();
    let tell = &*b.common.tell;
    let cpu = process::own_cpu();
    let cache = b.cache.then_some(());
    let cache = cache.and_then(|()| Translations::restore(&program.exe, config, control, tell));
    let mut output = Output::new(b, program);
    let (collector, listener) = output.begin(control, parent)?;
    let clock = Instant::now();
    let pid = match parent.start() {
        Ok(pid) => pid,
        Err(e) => {
            if let Some(written) = &output.written {
                written.discard();
            }
            return Err(e);
        }
    };
    let run = Run {
        control,
        parent,
        tell,
        deadline: Deadline::new(b.timeout, parent.id()),
        listener,
        pid,
        clock,
    };
    let (ended, collected) = run.record(collector);
    let hung = run.deadline.is_over();
    drop(run.listener);
    let mut collected = collected.ok_or(Error::CollectorFailed)?;

    let refusal = refusal(&collected, pid, tell);
    let blocks = control
        .shared_cache()
        .map_or(Count::default(), |s| s.count());
    let ending = match (refusal, &ended) {
        (Some(message), _) => Some(Ending::Unsupported(message)),
        (None, _) if collected.is_detached() => Some(Ending::Detached),
        (None, Some(ended)) => Some(match ended.status {
            Ok(status) => Ending::Exit(status),
            Err(signal) => Ending::Signal(signal),
        }),
        (None, None) => ending_of(&collected),
    };
    let summary = Summary {
        ending: ending.clone(),
        wall_ms: clock.elapsed().as_millis() as u64,
        program_cpu_us: ended.map_or(0, |e| e.cpu.as_micros() as u64),
        collector_cpu_us: (process::own_cpu() - cpu).as_micros() as u64,
        peak_memory_kib: ended.map_or(0, |e| e.peak_kib),
        blocks_found: blocks.served as u64,
        blocks_made: blocks.made as u64,
        ..Summary::default()
    };
    let kept = ending.as_ref().is_none_or(|e| b.kept_on().keeps(e, hung));
    let (summary, begun) = output.end(&mut collected, summary, kept)?;
    if let Some(t) = cache.filter(|_| !collected.unprivileged) {
        t.save(control);
    }
    let outcome = Outcome {
        ending,
        status: ended.map(|e| e.status()),
        hung,
        kept,
        begun,
        name: None,
        file: None,
        summary,
        unmatched: b.selection.unmatched(control.header()),
        unfilled: unfilled(control.header()),
    };
    Ok(output.conclude(outcome))
}

/// Programs in which no function was found by which they get memory.
fn unfilled(header: &ring::Header) -> u32 {
    let found = header.allocating.load(Relaxed);
    header.filled.load(Relaxed).saturating_sub(found)
}

/// Where the recording goes.
struct Output<'b> {
    b: &'b Builder,
    header: Header,
    /// When the recording was started, in seconds after the beginning of 1970.
    seconds: i64,
    /// What was opened. A ring is written in the end.
    written: Option<Written>,
}

impl<'b> Output<'b> {
    fn new(b: &'b Builder, program: &Program) -> Output<'b> {
        let started = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let name = program.execfn.file_name().unwrap_or_default();
        Output {
            b,
            header: Header {
                name: name.to_string_lossy().into_owned(),
                started_ms: started.as_millis() as u64,
                ..program_header(b, program)
            },
            seconds: started.as_secs() as i64,
            written: None,
        }
    }

    fn open(&self) -> Result<Sink> {
        let to = &self.b.common.destination;
        to.open(&self.header.name, self.seconds)
    }

    /// What collects into it, and where a ring can be asked for.
    fn begin<'c>(
        &mut self,
        control: &'c Control,
        parent: &dyn Parent,
    ) -> Result<(Collector<'c, Out>, Option<Listener>)> {
        let tell = self.b.common.tell.clone();
        let tell = move |text: &str| tell(&Notice::Collector(text));
        if let Some(limit) = self.b.ring {
            let scratch = || self.b.common.destination.scratch();
            let file = self.b.ring_on_disk.then(scratch).transpose()?;
            let listener = Listener::new(parent.id())?;
            let mut ring = Ring::new(&self.header, limit, file)?;
            if let Some(n) = self.b.kept_states {
                ring = ring.keep_states(n);
            }
            let collector = Collector::circular(control, ring, tell);
            return Ok((collector.state_points(self.b.state_points), Some(listener)));
        }
        let sink = self.open()?;
        let name = self.written.insert(sink.written).name.clone();
        let collector = Collector::new(control, sink.out, &self.header, tell)
            .during_with(|| format!("cannot write the recording to {name}"))?;
        let collector = collector.state_points(self.b.state_points);
        Ok((share(collector, sink.files), None))
    }

    /// Writes the end; the summary with its figures, and whether the recording holds something.
    fn end(
        &mut self,
        collected: &mut Collected<Out>,
        summary: Summary,
        kept: bool,
    ) -> Result<(Summary, bool)> {
        let tell = &*self.b.common.tell;
        Ok(match collected.held() {
            Some(held) if kept && held.instructions() > 0 => {
                let sink = self.open()?;
                (self.write_ring(&held, sink, summary), true)
            }
            Some(_) => (summary, false),
            None => {
                let summary = finish(collected, summary, tell);
                // A program that could not be loaded leaves nothing worth keeping; the recorder said why.
                let begun = summary.totals.instructions + summary.totals.gap_instructions > 0;
                (summary, begun)
            }
        })
    }

    /// Writes what the ring holds in the end.
    fn write_ring(&mut self, held: &RingSnapshot, sink: Sink, summary: Summary) -> Summary {
        let name = &self.written.insert(sink.written).name;
        let out = std::io::BufWriter::new(sink.out);
        // A ring has the content of its files packed in memory.
        let shared = match sink.files {
            Some(Contents::Shared(files)) => Some(files),
            _ => None,
        };
        match held.write(out, shared, summary.clone()) {
            Ok((_, summary)) => summary,
            Err(cause) => {
                let cause = &cause;
                (self.b.common.tell)(&Notice::NotWritten { name, cause });
                summary
            }
        }
    }

    /// Tells of the end, and sees to the file.
    fn conclude(self, mut outcome: Outcome) -> Outcome {
        let (options, tell) = (&self.b.common, &*self.b.common.tell);
        let Some(written) = self.written else {
            tell_end(options, &outcome);
            return outcome;
        };
        let stored = written.stored.as_deref();
        let goes = stored.is_some() || self.b.kept_on() != KeepOn::Always;
        outcome.file = written.file.clone();
        if !outcome.is_kept() && goes {
            tell_end(options, &outcome);
            written.discard();
            if stored.is_some() {
                store::sweep_sometimes(&mut |u| tell(&Notice::Untidy(&u)));
            }
        } else {
            outcome.name = Some(written.name.clone());
            tell_end(options, &outcome);
            if let Some(path) = stored {
                store::prune(&self.header.name, options.keep, path, &mut |u| {
                    tell(&Notice::Untidy(&u));
                });
            }
        }
        if !outcome.is_kept() {
            outcome.file = None;
        }
        outcome
    }
}

/// A program that runs and is recorded.
struct Run<'r> {
    control: &'r Control,
    parent: &'r dyn Parent,
    tell: &'r Tell,
    deadline: Deadline,
    listener: Option<Listener>,
    pid: i32,
    clock: Instant,
}

impl Run<'_> {
    /// Records the program to its end, and those that are recorded with it. How it ended, and what was collected.
    fn record(&self, collector: Collector<Out>) -> (Option<Ended>, Option<Collected<Out>>) {
        let Run {
            control,
            parent,
            tell,
            ..
        } = *self;
        let lives = Cell::new(true);
        let (over, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let requests = collector.requests();
        std::thread::scope(|s| {
            let (done, finished) = mpsc::channel::<()>();
            let (over, stop, requests) = (&over, &stop, &requests);
            let collecting = s.spawn(move || {
                // Dropped at the end, however that comes.
                let _done = done;
                collect(collector, control, over, stop, tell)
            });
            let beat = || {
                control.beat();
                self.deadline.look(self.pid, lives.get(), control, requests);
                parent.look(control, tell);
                while let Some((peer, number)) = self.listener.as_ref().and_then(Listener::accept) {
                    let so_far = Summary {
                        wall_ms: self.clock.elapsed().as_millis() as u64,
                        ..Summary::default()
                    };
                    s.spawn(move || dump::answer(peer, number, control, requests, &so_far));
                }
            };
            let ended = parent.wait(&beat);
            lives.set(false);
            over.store(true, Release);
            control.wake();
            let meanwhile = Meanwhile {
                told_to_end: &|| parent.told_to_end() || self.deadline.is_in_vain(),
                beat: &beat,
                give_up: &|| parent.give_up(),
                tell,
            };
            await_others(control, &finished, stop, &meanwhile);
            (ended, collecting.join().ok().flatten())
        })
    }
}

/// Why the recorder could not go on with the program. Of other processes, `tell` is told.
fn refusal(collected: &Collected<Out>, pid: i32, tell: &Tell) -> Option<String> {
    // That of the program itself is the end of the recording.
    let mut own = None;
    for r in &collected.refusals {
        let message = explain(&r.message, &r.maps);
        if r.pid == pid {
            own = Some(message);
        } else {
            tell(&Notice::Refused {
                pid: r.pid,
                message: &message,
            });
        }
    }
    own
}

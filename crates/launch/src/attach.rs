//! Recording a process that runs already.

mod candidate;
mod takeover;

use crate::destination::Written;
use crate::detach;
use crate::error::{AttachError, During, Error, Result};
use crate::explain::explain;
use crate::notice::{Notice, Tell};
use crate::outcome::Outcome;
use crate::record::{
    Common, Meanwhile, await_others, collect, common, common_setters, ending_of, finish, header,
    share, tell_end, texts,
};
use crate::recorder_binary;
use crate::recording::{Asked, Recording, Said};
use crate::sys::process;
use crate::sys::signals::Signals;
use candidate::Candidate;
use hindsight_collector::{Collected, Collector, Control};
use hindsight_events::config::Config;
use hindsight_isa::Predictor;
use hindsight_isa::cpuid::Baseline;
use hindsight_remote::Status;
use hindsight_store as store;
use hindsight_trace::meta::Ending;
use hindsight_trace::{Header, Summary, Text};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};
use takeover::Halted;

/// Time between signs of life for the recorded process.
const BEAT: Duration = Duration::from_millis(100);

/// A process that is to be recorded, and how. Made by [`Recording::attach`].
pub struct AttachBuilder {
    pid: i32,
    common: Common,
}

impl Recording {
    /// Begins to say how a process that runs is recorded. All its threads are.
    pub fn attach(pid: i32) -> AttachBuilder {
        AttachBuilder {
            pid,
            common: Common::new(),
        }
    }
}

impl AttachBuilder {
    common_setters!();

    /// Stops the process for some milliseconds, and records it from there, in threads of this process. When it is detached
    /// or has ended, the recording is finished.
    ///
    /// # Errors
    /// The process cannot be recorded ([`Error::Attach`]), or the recording cannot be written. Then it goes on as if
    /// nothing had been.
    pub fn start(self) -> Result<Recording> {
        Recording::spawn(move |asked, say| {
            // They are for other threads. Those of a reader that goes away and of a limit on file sizes are errors of
            // writes.
            Signals::all().block();
            let begun = || {
                // Nobody may listen any more.
                let _ = say.send(Said::Begun(self.pid));
            };
            let give_up = || {
                let error = Err(Error::EndNotWritten);
                let _ = say.send(Said::Over(Box::new(error)));
            };
            self.record(asked, &begun, &give_up)
        })
    }

    fn record(&self, asked: &Asked, begun: &dyn Fn(), give_up: &dyn Fn()) -> Result<Outcome> {
        let candidate = candidate::find(self.pid)?;
        let started = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let header = Header {
            started_ms: started.as_millis() as u64,
            ..attach_header(&self.common, &candidate)
        };
        let to = &self.common.destination;
        let sink = to.open(&header.name, started.as_secs() as i64)?;
        let written = sink.written;
        let attached = self.take_over(candidate).and_then(|taken| {
            let collector = Collector::new(&taken.control, sink.out, &header, {
                let tell = self.common.tell.clone();
                move |text: &str| tell(&Notice::Collector(text))
            })
            .during_with(|| format!("cannot write the recording to {}", written.name))?;
            let collector = share(collector, sink.files);
            let session = Session {
                pid: self.pid,
                name: &header.name,
                control: &taken.control,
                asked,
                tell: &*self.common.tell,
                clock: taken.clock,
            };
            let cpu = process::own_cpu();
            let (peak, collected) =
                session.record((taken.halted, &taken.config), collector, (begun, give_up))?;
            let mut collected = collected.ok_or(Error::CollectorFailed)?;
            let summary = Summary {
                ending: ending(&collected, self.pid),
                wall_ms: taken.clock.elapsed().as_millis() as u64,
                collector_cpu_us: (process::own_cpu() - cpu).as_micros() as u64,
                peak_memory_kib: peak,
                ..Summary::default()
            };
            Ok(finish(&mut collected, summary, session.tell))
        });
        match attached {
            Ok(summary) => Ok(self.conclude(&header.name, &written, summary)),
            Err(e) => {
                written.discard();
                Err(e)
            }
        }
    }

    /// Stops the process, and makes the memory that it is to share with the collector.
    fn take_over(&self, candidate: Candidate) -> Result<Taken> {
        let foreign = candidate.status.namespaces > 1;
        let clock = Instant::now();
        let mut halted = Halted::new(candidate)?;
        let shared = halted.make_control();
        let shared = shared.and_then(|(fd, file)| Ok((fd, Control::in_file(file)?)));
        let (fd, control) = shared.map_err(|e| AttachError::SharedMemory(e.to_string()))?;
        control.keep_from_children();
        let mut config = common(&self.common, fd)?;
        config.attached = 1;
        config.namespace = foreign as u32;
        config.limits = halted.memory_limits();
        // For programs that it executes.
        control
            .set_image(recorder_binary::IMAGE)
            .during("the recorder's image")?;
        Ok(Taken {
            halted,
            control,
            config,
            clock,
        })
    }

    /// Tells of the end, and sees to the store.
    fn conclude(&self, name: &str, written: &Written, summary: Summary) -> Outcome {
        let outcome = Outcome {
            ending: summary.ending.clone(),
            status: None,
            hung: false,
            kept: true,
            begun: true,
            name: Some(written.name.clone()),
            file: written.file.clone(),
            summary,
            unmatched: Vec::new(),
            unfilled: 0,
        };
        if let Some(path) = &written.stored {
            store::prune(name, self.common.keep, path, &mut |u| {
                (self.common.tell)(&Notice::Untidy(&u));
            });
        }
        tell_end(&self.common, &outcome);
        outcome
    }
}

/// A process that stands still, with what it is to share.
struct Taken {
    halted: Halted,
    control: Control,
    config: Config,
    /// When it was stopped.
    clock: Instant,
}

/// The recording of a process.
struct Session<'s> {
    pid: i32,
    name: &'s str,
    control: &'s Control,
    asked: &'s Asked,
    tell: &'s Tell,
    clock: Instant,
}

impl Session<'_> {
    /// Lets the process go on, and records it until it ends or is left. The most memory that it has had, in KiB, and what
    /// was collected.
    fn record(
        &self,
        (halted, config): (Halted, &Config),
        collector: Collector<crate::destination::Out>,
        (begun, give_up): (&dyn Fn(), &dyn Fn()),
    ) -> Result<(u64, Option<Collected<crate::destination::Out>>)> {
        let Session { control, tell, .. } = *self;
        let (over, cut) = (AtomicBool::new(false), AtomicBool::new(false));
        let threads = halted.threads();
        std::thread::scope(|s| {
            let (done, finished) = mpsc::channel::<()>();
            let (over, cut) = (&over, &cut);
            let collecting = s.spawn(move || {
                // Dropped at the end, however that comes.
                let _done = done;
                collect(collector, control, over, cut, tell)
            });
            let entered = halted.enter(config);
            let peak = match &entered {
                Ok(()) => {
                    tell(&Notice::Attached {
                        pid: self.pid,
                        name: self.name,
                        threads,
                        stood_still: self.clock.elapsed(),
                    });
                    begun();
                    // From here on it is known when nobody has the memory any more.
                    control.is_left();
                    self.watch()
                }
                Err(_) => {
                    cut.store(true, Release);
                    0
                }
            };
            self.asked.set_over();
            over.store(true, Release);
            control.wake();
            let meanwhile = Meanwhile {
                told_to_end: &|| self.asked.is_stopped(),
                beat: &|| {
                    control.beat();
                    detach::serve(control, tell, &|| self.asked.is_stopped());
                },
                give_up,
                tell,
            };
            await_others(control, &finished, cut, &meanwhile);
            entered.map(|()| (peak, collecting.join().ok().flatten()))
        })
    }

    /// Waits until the process has ended or has been left; the most memory that it has had, in KiB.
    fn watch(&self) -> u64 {
        let mut peak = 0;
        loop {
            self.control.beat();
            peak = Status::of_process(self.pid).map_or(peak, |s| s.peak_kib.max(peak));
            let told = || self.asked.is_stopped();
            detach::serve(self.control, self.tell, &told);
            if !detach::is_recorded(self.control, self.pid) {
                return peak;
            }
            if self.asked.takes_detach() {
                detach::leave_all(self.control, self.tell, &told);
                return peak;
            }
            self.asked.wait(BEAT);
        }
    }
}

/// How the recording of the process ended.
fn ending<W: Write>(c: &Collected<W>, pid: i32) -> Option<Ending> {
    if let Some(r) = c.refusals.iter().find(|r| r.pid == pid) {
        return Some(Ending::Unsupported(explain(&r.message, &r.maps)));
    }
    ending_of(c)
}

fn attach_header(options: &Common, c: &Candidate) -> Header {
    Header {
        name: candidate::short_name(&c.exe, &c.status.name),
        exe: Text::from(c.exe.as_os_str()),
        execfn: Text::from(c.exe.as_os_str()),
        argv: texts(&c.argv),
        env: texts(&c.env),
        cwd: Text::from(c.cwd.as_os_str()),
        baseline: Baseline::Host.name().into(),
        ..header(options)
    }
}

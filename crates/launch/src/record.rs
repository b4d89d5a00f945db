//! Recording a program that is started for that.

mod collect;
mod config;
mod deadline;
mod options;
mod own;
mod work;

pub(crate) use collect::{Meanwhile, await_others, collect, ending_of, finish, share};
pub(crate) use config::{common, header, texts};
pub use options::{Children, Regime, Trials};
pub(crate) use options::{Common, common_setters};

use crate::destination::Destination;
use crate::detach;
use crate::error::{During, Error, Result};
use crate::front::foreground::Foreground;
use crate::front::parent::Parent;
use crate::front::proxy::Worker;
use crate::notice::Notice;
use crate::outcome::{Outcome, Status};
use crate::program::{self, Program};
use crate::recorder_binary;
use crate::recording::Recording;
use crate::retention::KeepOn;
use crate::selection::Selection;
use crate::sys::files::{c_string, close};
use crate::sys::signals::{Signals, is_told_to_end};
use crate::sys::spawn::{Exec, spawn};
use hindsight_collector::{Control, StatePoints};
use hindsight_events::config::Config;
use hindsight_events::ring::file_len;
use hindsight_isa::Predictor;
use hindsight_isa::cpuid::Baseline;
use hindsight_trace::Limit;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// A program that is to be recorded, and how. Made by [`Recording::builder`].
pub struct Builder {
    pub(crate) common: Common,
    command: Vec<OsString>,
    /// Without one, that of this process.
    env: Option<Vec<(OsString, OsString)>>,
    folder: Option<PathBuf>,
    streams: [Option<OwnedFd>; 3],
    regime: Option<Regime>,
    baseline: Baseline,
    selection: Selection,
    ring: Option<Limit>,
    ring_on_disk: bool,
    kept_states: Option<usize>,
    keep_on: Option<KeepOn>,
    timeout: Option<Duration>,
    chaos: Option<u64>,
    clock_throttle: Option<Duration>,
    fill_fresh: Option<NonZeroU32>,
    state_points: Option<StatePoints>,
    cache: bool,
    trials: Trials,
}

impl Recording {
    /// Begins to say how a program is recorded. A name without a slash is looked for in PATH.
    pub fn builder(program: impl Into<OsString>) -> Builder {
        Builder {
            common: Common::new(),
            command: vec![program.into()],
            env: None,
            folder: None,
            streams: [None, None, None],
            regime: None,
            baseline: Baseline::Host,
            selection: Selection::default(),
            ring: None,
            kept_states: None,
            ring_on_disk: false,
            keep_on: None,
            timeout: None,
            chaos: None,
            clock_throttle: None,
            fill_fresh: None,
            state_points: None,
            cache: true,
            trials: Trials::default(),
        }
    }
}

/// The program.
impl Builder {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Builder {
        self.command.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Builder {
        self.command.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the program's environment, which is otherwise this process's.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Builder {
        let name = name.into();
        let env = self
            .env
            .get_or_insert_with(|| std::env::vars_os().collect());
        env.retain(|(n, _)| *n != name);
        env.push((name, value.into()));
        self
    }

    /// Takes a variable out of the program's environment.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Builder {
        let env = self
            .env
            .get_or_insert_with(|| std::env::vars_os().collect());
        env.retain(|(n, _)| n != name.as_ref());
        self
    }

    /// Begins with an empty environment.
    pub fn env_clear(mut self) -> Builder {
        self.env = Some(Vec::new());
        self
    }

    /// The folder in which the program starts. It is looked for from the folder of this process.
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.folder = Some(folder.into());
        self
    }

    /// What the program reads as standard input.
    pub fn stdin(mut self, from: impl Into<OwnedFd>) -> Builder {
        self.streams[0] = Some(from.into());
        self
    }

    /// Where the program's standard output goes.
    pub fn stdout(mut self, to: impl Into<OwnedFd>) -> Builder {
        self.streams[1] = Some(to.into());
        self
    }

    /// Where the program's standard error goes.
    pub fn stderr(mut self, to: impl Into<OwnedFd>) -> Builder {
        self.streams[2] = Some(to.into());
        self
    }
}

/// How it is recorded.
impl Builder {
    common_setters!();

    /// How reads are recorded. Default: quiet, unless key frames are asked for or a ring is.
    pub fn regime(mut self, regime: Regime) -> Builder {
        self.regime = Some(regime);
        self
    }

    /// The processor that the program is shown, for a recording that is to be replayed on others. Default:
    /// [`Baseline::Host`], this one.
    pub fn baseline(mut self, processor: Baseline) -> Builder {
        self.baseline = processor;
        self
    }

    /// The part of the program that is recorded. Default: all.
    pub fn selection(mut self, part: Selection) -> Builder {
        self.selection = part;
        self
    }

    /// Keeps only the latest part of the recording, in memory. It is written when the program ends (see
    /// [`Builder::keep_on`]) and by [`dump`](crate::dump).
    pub fn ring(mut self, limit: Limit) -> Builder {
        self.ring = Some(limit);
        self
    }

    /// Holds the ring in a file without a name, where the recording is to go.
    pub fn ring_on_disk(mut self, on_disk: bool) -> Builder {
        self.ring_on_disk = on_disk;
        self
    }

    /// Keeps the recording only if the program ends like this. Default: [`KeepOn::Failure`] with a ring, otherwise
    /// [`KeepOn::Always`].
    pub fn keep_on(mut self, ends: KeepOn) -> Builder {
        self.keep_on = Some(ends);
        self
    }

    /// Kills the program and all processes that are recorded with it when it takes longer.
    pub fn timeout(mut self, limit: Duration) -> Builder {
        self.timeout = Some(limit);
        self
    }

    /// Disturbs the timing of threads and processes, to bring rare interleavings out. Every seed disturbs in another way.
    pub fn chaos(mut self, seed: u64) -> Builder {
        self.chaos = Some(seed);
        self
    }

    /// Repeats each answer about the time for so long. A program that asks more often gets the last answer again, and its
    /// recording becomes smaller. At most 2^63 ns.
    pub fn clock_throttle(mut self, time: Duration) -> Builder {
        self.clock_throttle = Some(time);
        self
    }

    /// Fills memory that the program gets, and has not written yet, with what programs usually find there: blocks of `malloc` and
    /// its like, and the stacks of threads that begin. Each seed chooses other bytes.
    pub fn fill_fresh(mut self, seed: NonZeroU32) -> Builder {
        self.fill_fresh = Some(seed);
        self
    }

    /// Keeps of each thread only what follows its last `n` state points. Only of a ring: what is written to a file stays there.
    pub fn keep_state_points(mut self, n: usize) -> Builder {
        self.kept_states = Some(n);
        self
    }

    /// Has all memory recorded now and then, or what has changed of it, as long as a process is in the quiet regime. It begins
    /// in that one, then.
    pub fn state_points(mut self, when: StatePoints) -> Builder {
        self.state_points = Some(when);
        self
    }

    /// Whether translations of earlier recordings are used and kept (see [`translations`](crate::translations)). Default:
    /// they are.
    pub fn cache(mut self, used: bool) -> Builder {
        self.cache = used;
        self
    }

    /// Changes that tests of the recorder make.
    #[doc(hidden)]
    pub fn trials(mut self, trials: Trials) -> Builder {
        self.trials = trials;
        self
    }
}

impl Builder {
    /// Finds what would be run.
    ///
    /// # Errors
    /// There is no such program, or it cannot be recorded.
    pub fn find(&self) -> Result<Program> {
        let search = std::env::var_os("PATH");
        Ok(program::resolve(&self.command, search.as_deref())?)
    }

    /// Starts the program, and records it in threads of this process, which may do other things meanwhile.
    ///
    /// The program is a child of this process. It gets no signals but its own. Do not wait for children without naming them
    /// (`waitpid(-1)`): the recording would not learn how the program ended.
    ///
    /// # Errors
    /// The program cannot be found or started, the recording cannot be written, or this process ignores SIGCHLD.
    pub fn start(self) -> Result<Recording> {
        own::start(self)
    }

    /// Runs the program and records it to its end, with this process standing for it: see [`Foreground`]. Another process
    /// collects, so that the recording is finished whatever becomes of this one.
    ///
    /// # Errors
    /// As [`Builder::start`]; or the process that collects is gone.
    pub fn run_in(self, front: &Foreground) -> Result<Outcome> {
        let program = self.find()?;
        let shared = Shared::new(&self, &program)?;
        let mut exec = self.exec(&shared.config, &program)?;
        exec.blocked = front.inherited();
        exec.ignore_child = front.child_ignored();
        exec.keep = Some(shared.theirs.as_raw_fd());
        let Shared {
            control,
            config,
            theirs,
        } = shared;
        let worker = Worker::start(|face| {
            // Only who is recorded has it.
            close(theirs.as_raw_fd());
            work::work(&self, &program, &control, &config, face as &dyn Parent)
        })?;
        let pid = spawn(&exec).during(NOT_STARTED)?;
        drop(theirs);
        worker.started(pid);
        let beat = || {
            worker.look();
            // Where tracing is allowed to parents only, it is to this process.
            detach::serve(&control, &*self.common.tell, &is_told_to_end);
        };
        let ended = front.wait(pid, beat, |news| worker.tell(news))?;
        worker.finish(&ended, front, beat)
    }

    /// Runs the program translated to its end, but records nothing: for measurements.
    ///
    /// # Errors
    /// The program cannot be found or started.
    pub fn run_unrecorded(self, front: &Foreground) -> Result<Status> {
        let program = self.find()?;
        let mut config = config::config(&self, &program, -1)?;
        config.plain = 1;
        let mut exec = self.exec(&config, &program)?;
        exec.blocked = front.inherited();
        exec.ignore_child = front.child_ignored();
        exec.merge_output = false;
        let pid = spawn(&exec).during(NOT_STARTED)?;
        Ok(front.wait(pid, || {}, |_| {})?.status())
    }

    /// Which recordings are kept.
    fn kept_on(&self) -> KeepOn {
        self.keep_on.unwrap_or(match self.ring {
            None => KeepOn::Always,
            Some(_) => KeepOn::Failure,
        })
    }

    /// Variables as the program gets them.
    fn environment(&self) -> Vec<OsString> {
        let join = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            name
        };
        match &self.env {
            Some(env) => env.iter().cloned().map(join).collect(),
            None => std::env::vars_os().map(join).collect(),
        }
    }

    /// How the program is started.
    fn exec(&self, config: &Config, p: &Program) -> Result<Exec> {
        let strings = |list: &[OsString]| list.iter().map(|s| c_string(s)).collect();
        let folder = self.folder.as_ref().map(|f| c_string(f.as_os_str()));
        let argv: io::Result<Vec<CString>> = strings(&p.argv);
        let env: io::Result<Vec<CString>> = strings(&self.environment());
        let streams = self.streams.each_ref();
        let copies = streams.map(|s| s.as_ref().map(OwnedFd::try_clone).transpose());
        let [input, output, errors] = copies;
        Ok(Exec {
            image: recorder_binary::file(config)?,
            argv: argv?,
            env: env?,
            folder: folder.transpose()?,
            streams: [input?, output?, errors?],
            blocked: Signals::of(&[]),
            ignore_child: false,
            default_pipe: false,
            keep: None,
            merge_output: self.common.destination == Destination::StandardOutput,
        })
    }
}

/// What the error says if the recorder cannot be executed.
const NOT_STARTED: &str = "the recorder could not be started";

/// What the program and the collector share.
struct Shared {
    control: Control,
    config: Config,
    /// The program's own open file of the memory.
    theirs: File,
}

impl Shared {
    fn new(b: &Builder, program: &Program) -> Result<Shared> {
        if !b.common.destination.is_file() && b.ring.is_none() && b.kept_on() != KeepOn::Always {
            return Err(Error::CannotTakeBack);
        }
        let control = Control::new().map_err(|cause| Error::SharedMemory {
            mebibytes: (file_len(2) >> 20) + 1,
            cause,
        })?;
        control
            .set_image(recorder_binary::IMAGE)
            .during("the recorder's image")?;
        let theirs = control
            .for_program()
            .during("the memory shared with the program")?;
        let config = config::config(b, program, theirs.as_raw_fd())?;
        Ok(Shared {
            control,
            config,
            theirs,
        })
    }
}

/// Tells that the recording is over.
pub(crate) fn tell_end(options: &Common, outcome: &Outcome) {
    (options.tell)(&Notice::Finished(outcome));
}

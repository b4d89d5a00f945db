//! The half that runs the program.

mod answer;
mod calls;
mod files;
mod memory;
mod moved;
mod processes;
mod recording;
mod signals;
mod stack;
mod tell;

use crate::plan::compare::Compare;
use crate::plan::script::{Files, Script};
use crate::plan::table::{FileId, Table};
use crate::report::{Divergence, OutputDifference, Report};
use crate::wire::{Begin, End, Image};
use hindsight_remote::{Ended, Halt, Regs, Thread, next_halt, next_halt_until};
use memory::ProcessMemory;
use recording::Recording;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

/// Why a program cannot be run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording does not answer.
    #[error("the recording does not answer: {0}")]
    Recording(std::io::Error),
    /// The program cannot be started.
    #[error("cannot start {0}: {1}")]
    Start(String, std::io::Error),
    /// The process cannot be traced.
    #[error("cannot trace the program: {0}")]
    Trace(#[from] std::io::Error),
    /// Something that cannot be fed.
    #[error("{0}")]
    Limit(String),
}

/// What is done about output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outputs {
    /// It is compared, and goes nowhere.
    Compare,
    /// It goes nowhere, and only standard output and standard error are compared.
    Skip,
    /// It is compared, and files below the scratch directory are really written.
    Perform,
}

/// How a program is run again.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program. `None`: the recorded one.
    pub program: Option<PathBuf>,
    /// Its arguments, without its name. `None`: the recorded ones.
    pub args: Option<Vec<OsString>>,
    /// What is done about output.
    pub outputs: Outputs,
    /// The directory below which files may be written.
    pub scratch: Option<PathBuf>,
    /// Files, and folders, that are read as they are here: they belong to the program.
    pub here: Vec<PathBuf>,
    /// End at the first call that does not match.
    pub stop: bool,
}

/// What the caller supplies.
pub struct Setup<'a> {
    /// The other half.
    pub stream: UnixStream,
    /// Rules of Landlock that the program obeys.
    pub rules: Option<OwnedFd>,
    /// Gets what the program writes to standard output, or else to standard error.
    pub show: &'a mut dyn FnMut(bool, &[u8]),
}

/// Open files from here on are not recorded.
const FOREIGN: FileId = 1 << 31;

/// What a process waits for before it goes on.
enum After {
    /// The call has changed descriptors.
    Descriptors,
    /// It has made descriptors in place of another call, with these registers. The recorded call, if there is one.
    Make(Box<Regs>, Option<usize>),
    /// It opened a file. The recorded call, and whether the kernel has opened it.
    Open(Box<Regs>, Option<usize>, bool),
    /// It has made a process, which a recorded call did too.
    Fork(usize),
    /// It has waited for a child, with these registers, which a recorded call did too.
    Wait(Box<Regs>, usize),
    /// It has done something of which the recorded call tells the result.
    Result(usize),
    /// It has read from the file at a place.
    Read(Box<Regs>, FileId),
    /// It has mapped memory, where this goes.
    Map(Box<Regs>, Vec<u8>),
    /// The registers are restored, but for the result.
    Restore(Box<Regs>),
}

/// A process that runs.
struct Process {
    thread: Thread,
    memory: ProcessMemory,
    /// The process id that it sees.
    pid: i32,
    script: Script,
    image: Image,
    table: Table,
    /// Where open files are read next.
    places: HashMap<FileId, u64>,
    outputs: Compare,
    after: Option<After>,
    /// The recorded wait that it makes again.
    held: Option<usize>,
    /// Signals that will come.
    expected: Vec<i32>,
    /// Signals that are sent once those of the same number have come.
    backlog: Vec<i32>,
    /// It has not run yet.
    is_new: bool,
    /// When the signal comes that ended the recorded process, if it makes no more calls until then.
    overdue: Option<(Instant, i32)>,
    /// Where its thread id is to stand in its memory when it begins.
    id_at: Option<u64>,
    /// Calls before those of the present program image.
    calls_before: u64,
    /// What its registers for events (`epoll`) are: recorded, and now.
    events: HashMap<u64, u64>,
    /// Where it failed.
    fault: Option<Vec<String>>,
}

/// An open file that is not recorded.
struct Foreign {
    /// The kernel reads and writes it.
    is_real: bool,
}

/// A run of the program.
struct Rerun<'a> {
    recording: Recording,
    begin: Begin,
    options: Options,
    show: &'a mut dyn FnMut(bool, &[u8]),
    files: Files,
    /// Names of open files, for people.
    names: HashMap<FileId, String>,
    foreign: HashMap<FileId, Foreign>,
    next_foreign: FileId,
    /// Open files of the recording that are also open here.
    real: HashSet<FileId>,
    /// Open files that may be written: memory without a name, and files below the scratch folder.
    writable: HashSet<FileId>,
    /// The kernel keeps the program from changing other files.
    confined: bool,
    processes: BTreeMap<i32, Process>,
    /// Processes that stand still before it is known who made them.
    early: HashSet<i32>,
    /// Images that a process has.
    taken: HashSet<u32>,
    /// From recorded process ids to those of now.
    pids: HashMap<i32, i32>,
    main: i32,
    time: u64,
    tally: Tally,
    contents: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Names of new files that were made up, and the recorded ones.
    renamed: HashMap<Vec<u8>, Vec<u8>>,
}

/// What is counted on the way.
#[derive(Default)]
struct Tally {
    matched: u64,
    added: u64,
    left_out: u64,
    here: u64,
    /// Calls in a row that were not recorded.
    lost: u32,
    divergence: Option<Divergence>,
    outputs: Vec<OutputDifference>,
    notes: Vec<String>,
    /// Recorded calls that the processes came to, and all of them.
    reached: (u64, u64),
}

/// How the run ended.
enum Finish {
    /// The first process has ended.
    Ended(End),
    /// The program asked for what is not recorded.
    TooFar(String),
    /// The recording does not say more.
    Cut,
}

/// Why a call is not dealt with.
enum Trouble {
    Error(Error),
    Finish(Finish),
}

impl From<Error> for Trouble {
    fn from(e: Error) -> Trouble {
        Trouble::Error(e)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(e: std::io::Error) -> Trouble {
        Trouble::Error(Error::Trace(e))
    }
}

type Done<T = ()> = Result<T, Trouble>;

/// Runs a program with the inputs of a recording. The other half of `setup.stream` is [`crate::serve`].
///
/// # Errors
/// The recording or the program is something that cannot be fed.
pub fn rerun(options: Options, setup: Setup) -> Result<Report, Error> {
    let mut recording = Recording::new(setup.stream);
    if options.scratch.is_some() && setup.rules.is_none() {
        let what = "this kernel has no Landlock, so nothing is really written: leave out the scratch folder";
        return Err(Error::Limit(what.into()));
    }
    let begin = recording.begin().map_err(Error::Recording)?;
    let mut run = Rerun {
        recording,
        begin,
        options,
        show: setup.show,
        files: Files::default(),
        names: HashMap::new(),
        foreign: HashMap::new(),
        next_foreign: FOREIGN,
        real: HashSet::new(),
        writable: HashSet::new(),
        confined: setup.rules.is_some(),
        processes: BTreeMap::new(),
        early: HashSet::new(),
        taken: HashSet::new(),
        pids: HashMap::new(),
        main: 0,
        time: 0,
        tally: Tally::default(),
        contents: HashMap::new(),
        renamed: HashMap::new(),
    };
    run.start(setup.rules)?;
    let finish = run.run();
    run.end(finish)
}

impl Rerun<'_> {
    /// Runs until the first process has ended, or nothing more can be done.
    fn run(&mut self) -> Result<Finish, Error> {
        loop {
            let Some((pid, halt)) = self.next().map_err(Error::Trace)? else {
                self.send_overdue();
                continue;
            };
            match self.halted(pid, halt) {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(Finish::Ended(end)),
                Err(Trouble::Error(e)) => match self.is_gone(pid, &e) {
                    // It was killed while it stood still: its end will be told.
                    true => {}
                    false => return Err(e),
                },
                Err(Trouble::Finish(f)) => return Ok(f),
            }
        }
    }

    /// Waits for something to happen. `None`: a process has made no call for long, and the recorded one was ended there.
    fn next(&self) -> std::io::Result<Option<(i32, Halt)>> {
        let overdue = self.processes.values().filter_map(|p| p.overdue);
        match overdue.map(|(at, _)| at).min() {
            Some(until) => next_halt_until(until),
            None => next_halt().map(Some),
        }
    }

    fn is_gone(&self, pid: i32, e: &Error) -> bool {
        let code = match e {
            Error::Trace(e) => e.raw_os_error(),
            _ => None,
        };
        code == Some(libc::ESRCH) && self.processes.contains_key(&pid)
    }

    /// Deals with a process that stands still. Returns the end of the first one.
    fn halted(&mut self, pid: i32, halt: Halt) -> Done<Option<End>> {
        if !self.processes.contains_key(&pid) {
            match halt {
                Halt::Ended(_) => drop(self.early.remove(&pid)),
                _ => drop(self.early.insert(pid)),
            }
            return Ok(None);
        }
        match halt {
            Halt::Call => self.call(pid)?,
            Halt::Returned => self.returned(pid)?,
            Halt::Made(child) => self.made(pid, child)?,
            Halt::Loaded => self.loaded(pid)?,
            Halt::Signal(s) => self.signal(pid, s)?,
            Halt::Ended(end) => {
                let end = match end {
                    Ended::Status(n) => End::Status(n),
                    Ended::Signal(n) => End::Signal(n),
                };
                self.close(pid, end)?;
                if pid == self.main {
                    return Ok(Some(end));
                }
            }
            Halt::Other => self.process(pid).thread.go_on(0),
        }
        Ok(None)
    }

    fn process(&mut self, pid: i32) -> &mut Process {
        match self.processes.get_mut(&pid) {
            Some(p) => p,
            None => unreachable!("only processes that run stand still"),
        }
    }
}

//! The half that runs the program.

mod answer;
mod calls;
mod control;
mod files;
mod futex;
mod memory;
mod messages;
mod moved;
mod pass;
mod places;
mod point;
mod processes;
mod recording;
mod signals;
mod stack;
mod tell;
mod threads;
mod watch;

use crate::plan::compare::Compare;
use crate::plan::names::Names;
use crate::plan::script::{Files, Input, Script};
use crate::plan::table::{FileId, Table};
use crate::report::{Control, Divergence, Report};
use crate::wire::{Begin, End, Image};
use hindsight_remote::{Ended, Halt, Regs, Thread};
use memory::ProcessMemory;
use messages::Came;
use places::Heap;
use point::Point;
pub use point::Stopped;
use recording::Recording;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use threads::State;
use watch::Quiet;

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
    /// Files, and folders, that are read as they are here: they belong to the program.
    pub here: Vec<PathBuf>,
    /// End at the first call that does not match.
    pub stop: bool,
    /// Stop where the recorded program failed.
    pub until_failure: bool,
}

/// What the caller supplies.
pub struct Setup<'a> {
    /// The other half.
    pub stream: UnixStream,
    /// Rules of Landlock that the program obeys.
    pub rules: OwnedFd,
    /// Gets what the program writes to standard output, or else to standard error.
    pub show: &'a mut dyn FnMut(bool, &[u8]),
}

/// What became of a run.
#[derive(Debug)]
pub enum Outcome {
    /// It is over.
    Over(Box<Report>),
    /// The program stands where the recorded one failed ([`Options::until_failure`]).
    Stopped(Box<Stopped>),
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
    /// It has made a descriptor in place of one that came in a message.
    Came(Box<Came>),
    /// Its heap was to get longer or shorter, with these registers.
    Heap(Box<Regs>),
    /// The registers are restored, but for the result.
    Restore(Box<Regs>),
}

/// A thread of a process that runs.
struct Task {
    thread: Thread,
    /// The recorded thread that it stands for: 0 is the first one of its process.
    lane: u32,
    /// The thread id that it sees.
    tid: i32,
    state: State,
    /// It has its turn at the call at which it stands.
    granted: bool,
    /// It lets others go on: those with lower numbers, and 0, come first.
    gave_way: u64,
    /// It was told to stand still, because it ran for long.
    interrupted: bool,
    /// Where the kernel writes zero when it ends.
    clears: Option<u64>,
    after: Option<After>,
    /// The recorded wait that it makes again.
    held: Option<usize>,
    /// Signals that will come.
    expected: Vec<i32>,
    /// Signals that are sent once those of the same number have come.
    backlog: Vec<i32>,
    /// It has not run yet.
    is_new: bool,
    /// Where its thread id is to stand in its memory when it begins.
    id_at: Option<u64>,
}

impl Task {
    /// The first thread of a process, or one that takes another lane.
    fn new(thread: Thread, tid: i32) -> Task {
        Task {
            thread,
            lane: 0,
            tid,
            state: State::Runs,
            granted: false,
            gave_way: 0,
            interrupted: false,
            clears: None,
            after: None,
            held: None,
            expected: Vec::new(),
            backlog: Vec::new(),
            is_new: true,
            id_at: None,
        }
    }
}

/// A process that runs.
struct Process {
    /// The thread whose turn it is.
    task: Task,
    /// All other threads.
    others: Vec<Task>,
    /// Numbers waits, and turns that were given up.
    turns: u64,
    /// All threads waited, and it got the signal that ended the recorded process.
    was_ended: bool,
    memory: ProcessMemory,
    /// The process id that it sees.
    pid: i32,
    script: Script,
    image: Image,
    table: Table,
    /// Where bytes are read next.
    places: HashMap<Input, u64>,
    outputs: Compare,
    /// The signal that ended the recorded process comes if it makes no more calls. So many instructions the recorded one
    /// made before that.
    overdue: Option<(i32, u64)>,
    /// How long it has made no call.
    quiet: Quiet,
    /// How often it has asked for the time since a call agreed, where no answer is recorded.
    asked: u32,
    /// Calls before those of the present program image.
    calls_before: u64,
    heap: Heap,
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
    recording: &'a mut Recording,
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
    /// Open files of which what is written goes nowhere outside: they are only memory, or counters, or `/dev/null`.
    memory: HashSet<FileId>,
    processes: BTreeMap<i32, Process>,
    /// From threads to processes.
    owners: HashMap<i32, i32>,
    /// Processes of which no thread has its turn.
    free: BTreeSet<i32>,
    /// Processes that stand still before it is known who made them.
    early: HashSet<i32>,
    /// Recorded threads that a process stands for.
    taken: HashSet<u32>,
    /// Recorded processes that were not made, by their ids, with the descriptors that they began with.
    not_made: HashMap<i32, Table>,
    /// Processes that are ended because they are left behind.
    left: HashSet<i32>,
    /// Processes that are over.
    finished: Vec<Finished>,
    /// How the first one ended.
    ended: Option<End>,
    /// From recorded process ids to those of now.
    pids: HashMap<i32, i32>,
    main: i32,
    time: u64,
    tally: Tally,
    contents: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Bytes of them.
    kept: usize,
    /// Bytes that the recorded calls take.
    weight: usize,
    /// Some memory may be shared by several processes.
    shares: bool,
    /// Names of new files and folders that were made up, and the recorded ones.
    renamed: Names,
    /// Those of them that the program has not removed.
    made_up: HashSet<Vec<u8>>,
    /// Where it is to stop, once that is known.
    point: Option<Point>,
}

/// A process that is over.
struct Finished {
    /// The process id that it saw.
    pid: i32,
    /// It is the first one.
    is_main: bool,
    outputs: Compare,
    /// Where it failed.
    fault: Option<Vec<String>>,
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
    /// A process had several threads.
    threads: bool,
    /// It is the recorded program, with what it got and read.
    is_recorded: bool,
    notes: Vec<String>,
    /// Recorded calls that the processes came to, and all of them.
    reached: (u64, u64),
    /// Changes of files that were not recorded, and recorded ones that were left out.
    changes: u64,
    unmade: u64,
    /// Processes that were ended because they were left behind.
    killed: u64,
    /// Processes, besides the first one, that failed otherwise than recorded.
    failures: u64,
    /// Bytes that went to files which the recorded program did not write.
    elsewhere: u64,
    /// Random bytes were made up so many times.
    random: u64,
    /// Notes that were left out.
    more: u64,
}

/// How the run ended.
enum Finish {
    /// The first process has ended.
    Ended(End),
    /// The program asked for what is not recorded.
    TooFar(String),
    /// The recording does not say more.
    Cut,
    /// A process stands where the recorded one failed.
    Point(i32),
}

impl Finish {
    fn why(&self) -> String {
        match self {
            Finish::Ended(_) => "it is over".into(),
            Finish::TooFar(why) => why.clone(),
            Finish::Point(_) => "it is where the recorded one failed".into(),
            Finish::Cut => "the recording does not say how it goes on".into(),
        }
    }
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

/// Runs a program with the inputs of a recording. The other half of `setup.stream` is [`crate::serve`]. If the order of threads
/// may be the only cause of what it did, the recorded program runs too.
///
/// # Errors
/// The recording or the program is something that cannot be fed.
pub fn rerun(options: Options, setup: Setup) -> Result<Outcome, Error> {
    let mut recording = Recording::new(setup.stream);
    let rules = setup.rules.try_clone()?;
    let done = once(&mut recording, options.clone(), setup.rules, setup.show)?;
    let Outcome::Over(mut report) = done else {
        return Ok(done);
    };
    if report.may_be_order() {
        let control = match report.is_recorded {
            true => Control::Itself,
            false => control::run(&mut recording, &options, rules),
        };
        report.weigh(&control);
    }
    Ok(Outcome::Over(report))
}

/// Runs a program once.
fn once(
    recording: &mut Recording,
    options: Options,
    rules: OwnedFd,
    show: &mut dyn FnMut(bool, &[u8]),
) -> Result<Outcome, Error> {
    let begin = recording.begin().map_err(Error::Recording)?;
    let mut run = Rerun {
        recording,
        begin,
        options,
        show,
        files: Files::default(),
        names: HashMap::new(),
        foreign: HashMap::new(),
        next_foreign: FOREIGN,
        real: HashSet::new(),
        memory: HashSet::new(),
        processes: BTreeMap::new(),
        owners: HashMap::new(),
        free: BTreeSet::new(),
        early: HashSet::new(),
        taken: HashSet::new(),
        not_made: HashMap::new(),
        left: HashSet::new(),
        finished: Vec::new(),
        ended: None,
        pids: HashMap::new(),
        main: 0,
        time: 0,
        tally: Tally::default(),
        contents: HashMap::new(),
        kept: 0,
        weight: 0,
        shares: false,
        renamed: Names::default(),
        made_up: HashSet::new(),
        point: None,
    };
    if run.options.until_failure {
        run.check_failure()?;
    }
    run.start(rules)?;
    match run.run() {
        Ok(Finish::Point(pid)) => Ok(Outcome::Stopped(Box::new(run.leave_at_point(pid)?))),
        finish => Ok(Outcome::Over(Box::new(run.end(finish)?))),
    }
}

impl Rerun<'_> {
    /// Runs until all processes have ended, or nothing more can be done.
    fn run(&mut self) -> Result<Finish, Error> {
        loop {
            if self.processes.is_empty() {
                return Ok(Finish::Ended(self.ended.unwrap_or(End::Unknown)));
            }
            let (pid, done) = match self.free.pop_first() {
                Some(pid) => (pid, self.hand_over(pid)),
                None => match self.next() {
                    Ok(Some((tid, halt))) => {
                        let pid = self.owners.get(&tid).copied().unwrap_or(tid);
                        (pid, self.halted(tid, halt))
                    }
                    Ok(None) => continue,
                    Err(Trouble::Error(e)) => return Err(e),
                    Err(Trouble::Finish(f)) => return Ok(f),
                },
            };
            match done {
                Ok(()) => {}
                // It was killed while it stood still: its end will be told.
                Err(Trouble::Error(e)) if self.is_gone(pid, &e) => {}
                Err(Trouble::Error(e)) => return Err(e),
                Err(Trouble::Finish(f)) if self.ended.is_none() => return Ok(f),
                Err(Trouble::Finish(f)) => self.end_left(pid, &f.why()),
            }
        }
    }

    fn is_gone(&self, pid: i32, e: &Error) -> bool {
        let code = match e {
            Error::Trace(e) => e.raw_os_error(),
            _ => None,
        };
        code == Some(libc::ESRCH) && self.processes.contains_key(&pid)
    }

    /// Deals with a thread that stands still, or has ended.
    fn halted(&mut self, tid: i32, halt: Halt) -> Done {
        let Some(pid) = self.owners.get(&tid).copied() else {
            match halt {
                Halt::Ended(_) => drop(self.early.remove(&tid)),
                _ => drop(self.early.insert(tid)),
            }
            return Ok(());
        };
        if tid != self.process(pid).task.thread.tid() {
            return self.other_halted(pid, tid, halt);
        }
        match halt {
            Halt::Ended(_) if tid != pid => self.thread_over(pid, tid),
            Halt::Call => self.call(pid),
            Halt::Returned => self.returned(pid),
            Halt::Made(child) => self.made(pid, child),
            Halt::Loaded => self.loaded(pid),
            Halt::Signal(s) => self.signal(pid, s),
            Halt::Ended(end) => {
                let end = match end {
                    Ended::Status(n) => End::Status(n),
                    Ended::Signal(n) => End::Signal(n),
                };
                if pid == self.main {
                    self.ended = Some(end);
                }
                self.close(pid, end)
            }
            Halt::Other => {
                self.process(pid).task.thread.go_on(0);
                Ok(())
            }
        }
    }

    /// Something to be said at the end. No more than some are kept: a recording may have many reasons.
    fn note(&mut self, text: String) {
        const NOTES: usize = 50;
        match self.tally.notes.len() < NOTES {
            true => self.tally.notes.push(text),
            false => self.tally.more += 1,
        }
    }

    fn process(&mut self, pid: i32) -> &mut Process {
        match self.processes.get_mut(&pid) {
            Some(p) => p,
            None => unreachable!("only processes that run stand still"),
        }
    }
}

#[cfg(test)]
mod tests;

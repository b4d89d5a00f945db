//! `hindsight sql`, `tables`, `convert`: hand over to `hindsight-sql`, which has the engine, and give that what it needs of the command line.
//!
//! At the prompt there are two processes. One reads lines from the terminal and knows nothing of the recording. The other
//! one, which it starts, is confined, and answers.

mod convert;
mod made;
mod tables;

pub use convert::{AskedToConvert, Exchange};
pub use tables::{AskedForTables, TableFormat, Wanted};

use crate::args::Command as Asks;
use crate::interrupts;
use crate::{args, confine, limits, out, store, travel, words};
use anyhow::{Context, Result, bail};
use hindsight_guard::private;
use hindsight_timeline::{Options, Timeline};
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, PipeReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The executable with the engine.
const EXECUTABLE: &str = "hindsight-sql";
/// The longest question.
const LONGEST: u32 = 1 << 20;

/// How rows are to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// For people.
    Table,
    /// With a line of names.
    Csv,
    /// One list of objects.
    Json,
    /// A stream in Arrow's format for processes.
    Arrow,
}

/// What a user asks, in a process that is confined.
pub struct Asked {
    /// The recordings, as they were named. There is at least one.
    pub recordings: Vec<Source>,
    /// Processors to use.
    pub processors: usize,
    /// How rows are to be shown.
    pub shape: Shape,
    /// The file that gets the rows, if they are not to be shown.
    pub parquet: Option<File>,
    /// The questions.
    pub questions: Questions,
}

/// A recording that can be opened, and opened again.
pub struct Source {
    path: PathBuf,
    processors: usize,
    /// The limit of memory counts it.
    counted: AtomicBool,
}

impl Source {
    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it.
    pub fn open(&self) -> Result<Timeline> {
        let options = Options {
            jobs: self.processors,
            ..Options::default()
        };
        travel::open_path(&self.path, options, |trace| {
            if !self.counted.swap(true, Relaxed) {
                limits::allow_more(trace, self.processors);
            }
        })
    }
}

fn sources(paths: &[PathBuf], processors: usize) -> Vec<Source> {
    let source = |path: &PathBuf| Source {
        path: path.clone(),
        processors,
        counted: AtomicBool::new(false),
    };
    paths.iter().map(source).collect()
}

/// Where questions come from.
pub enum Questions {
    /// This is all.
    Text(String),
    /// From the process that has the terminal.
    Session(Session),
}

/// The confined side of a prompt.
pub struct Session {
    done: File,
    interrupts: i32,
}

impl Session {
    /// The next question. `None`: there are no more.
    pub fn question(&mut self) -> Option<String> {
        let mut input = std::io::stdin().lock();
        let mut len = [0; 4];
        input.read_exact(&mut len).ok()?;
        let len = u32::from_le_bytes(len);
        if len > LONGEST {
            return None;
        }
        let mut text = vec![0; len as usize];
        input.read_exact(&mut text).ok()?;
        String::from_utf8(text).ok()
    }

    /// Says that a question is answered.
    pub fn done(&mut self) {
        // Whoever does not read it has ended.
        let _ = self.done.write_all(b".");
    }

    /// From now on `stop` is called when the user interrupts.
    pub fn on_interrupt(&self, stop: impl FnMut() + Send + 'static) -> Result<()> {
        interrupts::each(self.interrupts, stop)
    }
}

/// The prompt's side.
pub struct Prompt {
    child: Child,
    questions: ChildStdin,
    done: PipeReader,
}

impl Prompt {
    /// Asks, and waits until the answer has been shown. False: nobody answers any more.
    pub fn ask(&mut self, question: &str) -> bool {
        if question.len() > LONGEST as usize {
            say(&format!("a question has at most {LONGEST} bytes"));
            return true;
        }
        let len = (question.len() as u32).to_le_bytes();
        let asked = (self.questions.write_all(&len))
            .and_then(|()| self.questions.write_all(question.as_bytes()))
            .and_then(|()| self.questions.flush());
        let mut byte = [0];
        asked.is_ok() && interrupts::forwarded(|| self.done.read_exact(&mut byte)).is_ok()
    }

    /// Ends the other process; its exit status.
    pub fn end(self) -> Result<i32> {
        let Prompt {
            mut child,
            questions,
            ..
        } = self;
        drop(questions);
        Ok(child.wait()?.code().unwrap_or(2))
    }
}

/// The file for what was typed at the prompt, which only its owner can read. `None`: there is no place for it.
pub fn history() -> Option<PathBuf> {
    let folder = hindsight_store::dir().ok()?;
    private::create_folder(&folder).ok()?;
    let path = folder.join("sql-history");
    private::open_or_create(&path).ok()?;
    Some(path)
}

/// Runs `hindsight-sql` in this process.
pub(crate) fn hand_over(_: Asks) -> Result<i32> {
    let own = std::env::current_exe().context("the path of this program")?;
    let beside = own.with_file_name(EXECUTABLE);
    let path = match beside.exists() {
        true => beside,
        false => PathBuf::from(EXECUTABLE),
    };
    let failed = Command::new(&path).args(std::env::args_os().skip(1)).exec();
    match failed.kind() {
        std::io::ErrorKind::NotFound => bail!(
            "{EXECUTABLE} is neither beside {} nor in PATH; {} makes it",
            own.display(),
            match cfg!(target_arch = "x86_64") {
                true => "cargo build --release -p hindsight-sql",
                false => "scripts/elsewhere --release --sql",
            }
        ),
        _ => Err(failed).with_context(|| path.display().to_string()),
    }
}

/// Where a value came from, in words.
pub use crate::origin::text::origin as origin_in_words;

/// What `hindsight-sql` does.
pub struct Handlers {
    /// Answers questions, in a confined process; the exit status.
    pub answer: fn(Asked) -> Result<i32>,
    /// Asks for questions, in a process with the terminal.
    pub prompt: fn(Prompt) -> Result<i32>,
    /// Which files the tables of these recordings take, below a folder.
    pub files: fn(&Wanted, &[PathBuf]) -> Result<Vec<PathBuf>>,
    /// Writes the tables, in a confined process.
    pub tables: fn(AskedForTables) -> Result<i32>,
    /// Writes another tool's format, in a confined process.
    pub convert: fn(AskedToConvert) -> Result<i32>,
}

/// Runs the command line of `hindsight-sql`, which is that of `hindsight`; the exit status.
pub fn run(handlers: &Handlers) -> i32 {
    crate::run_with(|command| match command {
        Asks::Sql(a) => ask(handlers, a),
        Asks::Tables(a) => tables::run(handlers, a),
        Asks::Convert(a) => convert::run(handlers, a),
        _ => bail!("this is not a command of {EXECUTABLE}"),
    })
}

fn ask(handlers: &Handlers, mut a: args::Sql) -> Result<i32> {
    let files = match a.session {
        // The prompt's process has found them.
        Some(_) => std::mem::take(&mut a.words),
        None => words::take_before_question(&mut a.words)?,
    };
    let recordings = store::find_all(&files)?;
    let stdin = std::io::stdin();
    if a.words.is_empty() && a.session.is_none() && stdin.is_terminal() {
        if a.parquet.is_some() {
            bail!("--parquet is for one question on the command line");
        }
        if a.arrow {
            bail!("--arrow is for programs, which ask one question");
        }
        return (handlers.prompt)(begin(&a, &recordings)?);
    }
    if a.arrow && std::io::stdout().is_terminal() {
        bail!("--arrow writes bytes for programs, and a terminal may obey them");
    }
    if a.session.is_some() {
        // The prompt's process tells of them.
        interrupts::ignore();
    }
    match a.parquet.clone() {
        None => {
            let answer = |()| (handlers.answer)(asked(&a, &recordings, None)?);
            confine::run_on(&recordings, || Ok(()), answer, |_| ())
        }
        Some(to) => confine::run_on_making(&recordings, &to, |f| {
            (handlers.answer)(asked(&a, &recordings, Some(f.try_clone()?))?)
        }),
    }
}

fn asked(a: &args::Sql, recordings: &[PathBuf], parquet: Option<File>) -> Result<Asked> {
    let processors = a.jobs.unwrap_or_else(limits::processors);
    let questions = match (a.session, a.words.first()) {
        (Some(done), _) => {
            // SAFETY: the process that started this one has made the descriptor for it, and nothing else here uses it.
            let done = (done > 2).then(|| unsafe { File::from(OwnedFd::from_raw_fd(done)) });
            Questions::Session(Session {
                done: done.context("--session: not a descriptor")?,
                interrupts: a.interrupts.unwrap_or(-1),
            })
        }
        (None, Some(text)) => Questions::Text(text.clone()),
        (None, None) => {
            let mut text = String::new();
            let input = std::io::stdin().lock();
            input
                .take(u64::from(LONGEST) + 1)
                .read_to_string(&mut text)
                .context("standard input")?;
            if text.len() > LONGEST as usize {
                bail!("standard input: more than {LONGEST} bytes");
            }
            Questions::Text(text)
        }
    };
    Ok(Asked {
        recordings: sources(recordings, processors),
        processors,
        shape: match (a.csv, a.json, a.arrow) {
            (true, ..) => Shape::Csv,
            (_, true, _) => Shape::Json,
            (.., true) => Shape::Arrow,
            _ => Shape::Table,
        },
        parquet,
        questions,
    })
}

/// Starts the process that answers.
fn begin(a: &args::Sql, recordings: &[PathBuf]) -> Result<Prompt> {
    let interrupts = interrupts::forward()?;
    let (done, theirs) = std::io::pipe()?;
    // SAFETY: the descriptor is open, and only its flags change: the other process gets it.
    if unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFD, 0) } != 0 {
        return Err(std::io::Error::last_os_error()).context("fcntl");
    }
    let mut words: Vec<OsString> = vec!["sql".into()];
    words.push(format!("--interrupts={}", interrupts.as_raw_fd()).into());
    words.push(format!("--session={}", theirs.as_raw_fd()).into());
    words.extend(a.csv.then(|| "--csv".into()));
    words.extend(a.json.then(|| "--json".into()));
    words.extend(a.jobs.map(|n| format!("--jobs={n}").into()));
    words.extend(limits::said().map(|most| format!("--max-memory={}k", most >> 10).into()));
    words.push("--".into());
    words.extend(recordings.iter().map(Into::into));
    let mut child = Command::new(std::env::current_exe()?)
        .args(words)
        .stdin(Stdio::piped())
        .spawn()?;
    let questions = child.stdin.take().context("a pipe")?;
    Ok(Prompt {
        child,
        questions,
        done,
    })
}

/// What may be raised above the limit of memory for the engine's own work, in bytes.
pub fn allow(bytes: u64) {
    limits::raise(bytes);
}

/// Shows a message to the user.
pub fn say(message: &str) {
    crate::say(message);
}

/// The same in several lines, as the place of a mistake needs them.
pub fn say_lines(message: &str) {
    let text = hindsight_text::lines(message);
    let _ = std::io::stderr().write_all(format!("hindsight: {text}\n").as_bytes());
}

/// Writes to standard output; see [`out::write`].
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        out::write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

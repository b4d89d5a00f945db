//! What can be said on the command line.

mod values;

use crate::keep::{self, KeepOn, Retry};
use clap::{Args as ClapArgs, Parser, Subcommand};
use hindsight_isa::Predictor;
use hindsight_isa::cpuid::Baseline;
use hindsight_timeline::{KindOf, Place};
use hindsight_trace::Limit;
use std::ffi::OsString;
use std::path::PathBuf;
use values::{
    baseline, bytes, children, destination, duration, function, jobs, pattern, predictor, seconds,
    system_call,
};

/// A time-travel debugger: record a program once, go back in it as often as you like.
#[derive(Parser)]
#[command(name = "hindsight", version, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    /// For commands that read a recording: end with an error when they have more memory than this, such as `4G`. Default:
    /// 1 GiB, and what the recording may need by its length and by what it says that its program had.
    #[arg(long, global = true, value_name = "SIZE", value_parser = bytes, display_order = 1000)]
    pub max_memory: Option<u64>,
}

impl Command {
    /// Whether it reads recordings, which may be anybody's.
    pub fn reads(&self) -> bool {
        use Command::*;
        match self {
            Replay(_) | Gdbserver(_) | Info(_) | At(_) | Backtrace(_) | Waits(_) | Breakpath(_)
            | Events(_) | Mem(_) | Writes(_) | Calls(_) | Index(_) | Ls(_) | Rm(_) | Export(_) => {
                true
            }
            Record(_)
            | Attach(_)
            | Detach(_)
            | Cache(_)
            | Dump(_)
            | Receive(_)
            | Completions { .. } => false,
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a program and record it.
    Record(Record),
    /// Record a process that already runs, until it ends or is detached.
    Attach(Attach),
    /// Have a recorded process go on by itself.
    Detach(Detach),
    /// Debug a recording with gdb, or play it again and compare.
    Replay(Replay),
    /// Offer a recording to gdb or lldb over their remote protocol.
    Gdbserver(Gdbserver),
    /// Show what a recording holds.
    Info(Info),
    /// Show a place of a recording: registers, source line, instructions, call stack, variables.
    At(At),
    /// Show the call stack at a place of a recording.
    Backtrace(Backtrace),
    /// Show what the threads wait for at a place of a recording, and whom.
    Waits(Waits),
    /// Find the fewest breakpoints that bring a live run of the program to a place of its recording.
    Breakpath(Breakpath),
    /// List what happened in a recording: system calls, signals, threads, modules, gaps, marks.
    Events(Events),
    /// Show memory at a place of a recording, and why it is known.
    Mem(Mem),
    /// List the instructions that wrote to some memory, the last one first.
    Writes(Writes),
    /// List the calls of a function, with arguments and what they returned.
    Calls(Calls),
    /// Make the index of a recording, which makes travel in it fast.
    Index(Index),
    /// List the recordings in the store.
    Ls(List),
    /// Delete recordings from the store, and the copies of files that no other recording uses.
    Rm(Remove),
    /// Copy a recording from the store, with all files that it uses, into one file for another machine.
    Export(Export),
    /// Show or delete the translated code that is kept between recordings.
    Cache(Cache),
    /// Take what a circular recording (`record --ring`) holds now; it goes on.
    Dump(Dump),
    /// Accept one recording that `record -o tcp:HOST:PORT` sends.
    Receive(Receive),
    /// Print a completion script.
    Completions { shell: clap_complete::Shell },
}

#[derive(ClapArgs)]
pub struct Record {
    /// Where the recording goes: a file, `-` for standard output (the program's own standard
    /// output then goes to standard error), or `tcp:HOST:PORT`. Default: a new file in the store.
    #[arg(short, long, value_name = "FILE", value_parser = destination())]
    pub output: Option<OsString>,
    /// Copy the files that the program uses into the recording, also in the store, where recordings
    /// otherwise share one copy. With `-o` they always are in it.
    #[arg(long)]
    pub self_contained: bool,
    /// What predicts the values that the program reads: `window` (a full shadow of its memory) or
    /// a bounded cache such as `cache:64k`, for a program with little memory to spare.
    #[arg(long, default_value = "window", value_parser = predictor)]
    pub predictor: Predictor,
    /// How reads are recorded: `quiet` does not check them as long as a process has one thread, shares
    /// no memory, and all that the kernel changes is known, and checks them from then on; `checked`
    /// checks them from the beginning. Default: quiet, unless key frames are asked for.
    #[arg(long, value_enum, value_name = "REGIME")]
    pub regime: Option<Regime>,
    /// The processor that the program is shown: `host`, or `x86-64-v2`, `-v3`, `-v4` for a
    /// recording that is to be replayed on other machines.
    #[arg(long, default_value = "host", value_parser = baseline)]
    pub cpu: Baseline,
    /// Instructions between points from which replay can start, of what is checked; 0: only from the
    /// beginning. They are at least 64 instructions apart for each byte of memory that the process has had, since
    /// behind each of them all that is read is recorded anew; for travel, see `index --range`. [default: 1000000000]
    #[arg(long, value_name = "N")]
    pub keyframe_interval: Option<u64>,
    /// Instructions between digests of all registers, which replay compares; 0: none.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub digest_interval: u64,
    /// Processes that the program makes: `follow` records them too, `none` lets them run
    /// unrecorded, `only-matching=GLOB` records those whose program's name (or path, if GLOB has a
    /// slash) matches.
    #[arg(long, value_parser = children, value_name = "WHICH", default_value = "follow")]
    pub children: Children,
    /// Record only the code of modules that match: by path, file name, or file name up to `.so`, with
    /// `*` and `?`; `[vdso]` and `[anonymous]` (code made at run time) are names too. May be repeated.
    #[arg(long, value_name = "GLOB", value_parser = pattern, conflicts_with = "plain")]
    pub only_module: Vec<String>,
    /// Do not record the code of modules that match; wins over --only-module. May be repeated.
    #[arg(long, value_name = "GLOB", value_parser = pattern, conflicts_with = "plain")]
    pub skip_module: Vec<String>,
    /// Record each thread only from where it enters this function (until it returns, or --to):
    /// `name`, `module!name`, or `module+0x123` with an address as `nm` shows it.
    #[arg(long, value_name = "FUNCTION", value_parser = function, conflicts_with = "plain")]
    pub from: Vec<String>,
    /// Record each thread only to where it enters this function.
    #[arg(long, value_name = "FUNCTION", value_parser = function, conflicts_with = "plain")]
    pub to: Vec<String>,
    /// Record nothing until the program asks for it (`hindsight.h`, or the crate `hindsight-mark`).
    #[arg(long, conflicts_with = "plain")]
    pub start_stopped: bool,
    /// Keep only the latest part of the recording, in memory: this many bytes, such as `64M`, or what
    /// happened in the last seconds, such as `10s`. It is written when the program ends (see
    /// `--keep-on`) and by `hindsight dump`.
    #[arg(long, value_name = "SIZE|SECONDS", value_parser = keep::limit, conflicts_with = "plain")]
    pub ring: Option<Limit>,
    /// Hold the ring in a file without a name, where the recording is to go.
    #[arg(long, requires = "ring")]
    pub ring_on_disk: bool,
    /// Keep the recording only if the program ends like this: `failure` (by a signal, with a
    /// status other than 0, or by --timeout), `crash` (by a signal), `signal=N`, `hang` (by --timeout), or `always`.
    /// Default: `failure` with `--ring` or `--retry`, otherwise `always`.
    #[arg(long, value_name = "END", value_parser = KeepOn::parse, conflicts_with = "plain")]
    pub keep_on: Option<KeepOn>,
    /// Run the program again, at most N times, until a recording is kept. The status is then that of
    /// this run, otherwise 0.
    #[arg(long, value_name = "N|until-failure", value_parser = Retry::parse, conflicts_with = "plain")]
    pub retry: Option<Retry>,
    /// End a run that takes longer, such as `10s` or `2m`: all its processes are killed, and what its threads wait
    /// for is shown (see `waits`). The status is then 124, as that of timeout(1). With --retry, each run has this time.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "plain")]
    pub timeout: Option<std::time::Duration>,
    /// Disturb the timing of threads and processes, to bring rare interleavings out. Every SEED
    /// disturbs in another way; with `--retry`, each run takes the next one. Threads sleep for half of the time at most.
    #[arg(long, value_name = "SEED")]
    pub chaos: Option<u32>,
    /// Recordings of the same program that are kept in the store, this one included.
    #[arg(long, value_name = "N", env = "HINDSIGHT_KEEP", default_value_t = 5)]
    pub keep: usize,
    /// Neither use nor keep translated code of earlier recordings (see `hindsight cache`).
    #[arg(long)]
    pub no_cache: bool,
    /// Run the program translated, but record nothing (to measure).
    #[arg(long)]
    pub plain: bool,
    /// For tests: every program image ends its quiet regime when it has come to the runtime N times.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub leave_quiet_after: u64,
    /// For tests: every quiet thread restates its memory each N instructions, if it can.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub restate_every: u64,
    /// For tests: leave out what this system call wrote, as if the table of calls were wrong.
    #[arg(long, value_name = "CALL", hide = true, value_parser = system_call)]
    pub untold: Option<u64>,
    /// For tests: whether memory that is only read shares its pages with what it is compared with; else by the processor.
    #[arg(long, value_name = "BOOL", hide = true)]
    pub joint: Option<bool>,
    /// No line about the recording at the end.
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

impl Record {
    /// Which recordings are kept.
    pub fn keep_on(&self) -> KeepOn {
        self.keep_on.unwrap_or(match (self.ring, self.retry) {
            (None, None) => KeepOn::Always,
            _ => KeepOn::Failure,
        })
    }
}

#[derive(ClapArgs)]
#[command(
    after_help = "Ctrl-C detaches: the process goes on by itself, and the recording ends. \
    Exit status 0: the process was recorded until it was detached or ended; 125: it was not."
)]
pub struct Attach {
    /// The process. All its threads are recorded.
    pub pid: i32,
    /// Where the recording goes: a file, `-` for standard output, or `tcp:HOST:PORT`. Default: a
    /// new file in the store.
    #[arg(short, long, value_name = "FILE", value_parser = destination())]
    pub output: Option<OsString>,
    /// Copy the files that the program uses into the recording, also in the store, where recordings
    /// otherwise share one copy. With `-o` they always are in it.
    #[arg(long)]
    pub self_contained: bool,
    /// Detach after this time.
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<std::time::Duration>,
    /// What predicts the values that the program reads: see `record`.
    #[arg(long, default_value = "window", value_parser = predictor)]
    pub predictor: Predictor,
    /// Instructions between points from which replay can start; 0: only from the beginning. See `record`.
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    pub keyframe_interval: u64,
    /// Instructions between digests of all registers, which replay compares; 0: none.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub digest_interval: u64,
    /// Processes that the program makes from now on: see `record`.
    #[arg(long, value_parser = children, value_name = "WHICH", default_value = "follow")]
    pub children: Children,
    /// Recordings of the same program that are kept in the store, this one included.
    #[arg(long, value_name = "N", env = "HINDSIGHT_KEEP", default_value_t = 5)]
    pub keep: usize,
    /// No lines about the recording.
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(ClapArgs)]
#[command(after_help = "Exit status 0: it goes on by itself; 1: it could not be detached.")]
pub struct Detach {
    /// The process, recorded by `record` or `attach`.
    pub pid: i32,
}

/// How reads are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Regime {
    Quiet,
    Checked,
}

/// What becomes of processes that the program makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Children {
    Follow,
    None,
    Matching(String),
}

/// What `replay --verify` compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Checks {
    /// All that the recording says twice: registers, system calls with their arguments, what was written,
    /// the order of all threads, copies of files
    Full,
    /// Registers at digests and key frames
    Digests,
}

#[derive(ClapArgs)]
pub struct Replay {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Begin at this place instead of the first instruction: 1A2:3F, 50%, `end`, `crash`, `event:N`, `syscall:N`,
    /// `time:1.5s`, 12:34:56.
    #[arg(long, value_name = "PLACE", conflicts_with = "verify")]
    pub at: Option<Place>,
    /// The program image to debug, by its number in `info`; default: the first, or that of --at.
    #[arg(long, value_name = "IMAGE", conflicts_with = "verify")]
    pub process: Option<u32>,
    /// Replay everything and compare; `full`, if nothing is said: all that was recorded; `digests`: only
    /// the registers. Exit status 0: all that is recorded is equal; 1: a difference; 2: the recording cannot be
    /// read; 3: it has no instruction that could be replayed, so that nothing is known.
    #[arg(
        long,
        value_name = "CHECKS",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "full"
    )]
    pub verify: Option<Checks>,
    /// Also prove the order of atomic operations: each must have read what the one before it left, or
    /// what something else that may have come in between wrote. Exit status 1 if one did not.
    #[arg(long, requires = "verify")]
    pub check_order: bool,
    /// Also count what is executed, which takes a little longer: reads and writes of memory, segments (instructions up to a
    /// branch) and indirect branches.
    #[arg(long, requires = "verify")]
    pub count: bool,
    /// Processors to use, where the recording has key frames; default: all.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
    /// Arguments for gdb.
    #[arg(last = true, value_name = "GDB ARGS", conflicts_with = "verify")]
    pub gdb: Vec<OsString>,
}

#[derive(ClapArgs)]
pub struct Gdbserver {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Listen on this port of the loopback interface; 0 takes a free one, which is printed. Up to eight clients
    /// are served at the same time, each for itself.
    #[arg(
        long,
        value_name = "PORT",
        required_unless_present = "stdio",
        conflicts_with = "stdio"
    )]
    pub port: Option<u16>,
    /// Listen on this address instead of loopback. The protocol is neither encrypted nor
    /// authenticated: whoever can connect can read the recording.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        requires = "port"
    )]
    pub host: String,
    /// Leave a client that has not said a word within this time.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds, requires = "port")]
    pub timeout: std::time::Duration,
    /// Leave a client that has said nothing for this time; 0: never.
    #[arg(long, value_name = "SECONDS", default_value = "86400", value_parser = seconds, requires = "port")]
    pub idle: std::time::Duration,
    /// Serve one client on standard input and output: `target remote | hindsight gdbserver …`.
    #[arg(long)]
    pub stdio: bool,
    /// Each byte that can be read there interrupts what the client cannot interrupt by itself.
    #[arg(long, hide = true, value_name = "DESCRIPTOR", requires = "stdio")]
    pub interrupts: Option<i32>,
    /// Begin at this place instead of the first instruction: 1A2:3F, 50%, `end`, `crash`, `event:N`, `syscall:N`,
    /// `time:1.5s`, 12:34:56.
    #[arg(long, value_name = "PLACE")]
    pub at: Option<Place>,
    /// The program image to debug, by its number in `info`; default: the first, or that of --at.
    #[arg(long, value_name = "IMAGE")]
    pub process: Option<u32>,
}

/// Whose place is meant, where several run at the same time.
#[derive(ClapArgs)]
pub struct Within {
    /// In this program image, by its number in `info`: where it then is. Places are counted in it.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// In this thread (the number of its stream): where it then is.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// In this frame of the call stack, as `backtrace` counts them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub frame: usize,
}

#[derive(ClapArgs)]
pub struct At {
    /// The recording, a file or a name in the store (default: the latest in the store), and a place: a position (1A2:3F),
    /// a part of the run (50%), `begin`, `end`, `crash`, `event:N` (as `events` lists them), `syscall:N`, `time:1.5s`
    /// (since the start) or a time of day (12:34:56); default:
    /// the crash, or else the end.
    #[arg(value_name = "[FILE] PLACE", num_args = 0..=2, required = false)]
    pub words: Vec<String>,
    #[command(flatten)]
    pub at: Within,
    /// Instructions to show.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub instructions: usize,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Breakpath {
    /// The recording, a file or a name in the store (default: the latest in the store), and a place: a position (1A2:3F),
    /// a part of the run (50%), `begin`, `end`, `crash`, `event:N` (as `events` lists them), `syscall:N`, `time:1.5s`
    /// (since the start) or a time of day (12:34:56).
    #[arg(value_name = "[FILE] PLACE", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// Print a script for gdb that does it: `gdb -x SCRIPT --args PROGRAM ARGUMENTS`.
    #[arg(long)]
    pub gdb: bool,
    /// Most instructions from the start that are looked at; each takes about ten bytes of memory.
    #[arg(long, value_name = "N", default_value_t = 64_000_000)]
    pub limit: u64,
    /// For scripts.
    #[arg(long, conflicts_with = "gdb")]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Backtrace {
    /// The recording, a file or a name in the store (default: the latest in the store), and a place: a position (1A2:3F),
    /// a part of the run (50%), `begin`, `end`, `crash`, `event:N` (as `events` lists them), `syscall:N`, `time:1.5s`
    /// (since the start) or a time of day (12:34:56); default:
    /// the crash, or else the end.
    #[arg(value_name = "[FILE] PLACE", num_args = 0..=2, required = false)]
    pub words: Vec<String>,
    #[command(flatten)]
    pub at: Within,
    /// Those of all threads of the process.
    #[arg(long, conflicts_with_all = ["thread", "frame"])]
    pub threads: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Waits {
    /// The recording, a file or a name in the store (default: the latest in the store), and a place: a position (1A2:3F),
    /// a part of the run (50%), `begin`, `end`, `crash`, `event:N` (as `events` lists them), `syscall:N`, `time:1.5s`
    /// (since the start) or a time of day (12:34:56); default: the end.
    #[arg(value_name = "[FILE] PLACE", num_args = 0..=2, required = false)]
    pub words: Vec<String>,
    /// With their call stacks.
    #[arg(long)]
    pub stacks: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Events {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Only these kinds: syscall, signal, exception, thread, process, module, gap, mark or regime.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<KindOf>,
    /// Only these system calls, by name or number.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub syscall: Vec<String>,
    /// Only of this thread (the number of its stream).
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Only of this program image.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// Not before this position.
    #[arg(long, value_name = "POSITION")]
    pub from: Option<Place>,
    /// Before this position.
    #[arg(long, value_name = "POSITION")]
    pub until: Option<Place>,
    /// Show when they happened, in seconds since the start of the recording.
    #[arg(long)]
    pub time: bool,
    /// Show system calls that were asked for (by --kind or --syscall) with their arguments as numbers, not in words as
    /// strace does, which replays the recording.
    #[arg(long)]
    pub raw: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Mem {
    /// The recording, a file or a name in the store (default: the latest in the store), and a place: a position (1A2:3F),
    /// a part of the run (50%), `begin`, `end`, `crash`, `event:N` (as `events` lists them), `syscall:N`, `time:1.5s`
    /// (since the start) or a time of day (12:34:56). Then what is to
    /// be shown: an address, or a variable or what leads to one (`p->next`, `table[3]`, `*p`, `$rsp+8`), and how many
    /// bytes; default: as many as the variable has, or 8.
    #[arg(value_name = "[FILE] PLACE ADDRESS [LENGTH]", num_args = 2..=4, required = true)]
    pub words: Vec<String>,
    #[command(flatten)]
    pub at: Within,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Writes {
    /// The recording, a file or a name in the store (default: the latest in the store). Then where was written: an address,
    /// or a variable or what leads to one, as of the place before which is searched (`p->next`, `table[3]`, `*p`,
    /// `$rsp+8`), and how many bytes; default: as many as the variable has, or 8.
    #[arg(value_name = "[FILE] ADDRESS [LENGTH]", num_args = 1..=3, required = true)]
    pub words: Vec<String>,
    /// Only before this position, in the program image that is there; default: the end.
    #[arg(long, value_name = "POSITION")]
    pub before: Option<String>,
    /// The program image whose memory is meant; default: that which ends last.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// What is written names variables as of this thread there (the number of its stream).
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// The same of this frame of the call stack, as `backtrace` counts them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub frame: usize,
    /// At most this many; 0: all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub count: usize,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Calls {
    /// The recording, a file or a name in the store (default: the latest in the store), and the function: its name,
    /// `MODULE!NAME` (libc!malloc), or its address (0x…).
    #[arg(value_name = "[FILE] FUNCTION", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// Only of this thread (the number of its stream).
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// The program image whose function is meant; default: the one of --thread, or the first.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// Not before this place.
    #[arg(long, value_name = "PLACE")]
    pub from: Option<Place>,
    /// Before this place.
    #[arg(long, value_name = "PLACE")]
    pub until: Option<Place>,
    /// Without arguments, which is quicker.
    #[arg(long)]
    pub no_args: bool,
    /// At most this many; 0: all.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub count: usize,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Index {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Processors to use, where the recording has key frames or threads; default: all.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Instructions between the index's own key frames; 0: about 32 million, and
    /// 8 million, with steps of two million between them, where threads share memory. They are made rarer where the index would be larger than twice the recording and 256 MiB. Parts that
    /// are there already stay as they are, also those that were saved for a question.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub interval: u64,
    /// Only there, and with key frames as dense as `--interval` says (default here: 100000; at least 1024, and a
    /// 65536th of the range): two places, such as `40%..1A2:3F`. Parts that are there already are made anew if they
    /// are not as dense, and added to the file, which only becomes larger by a range.
    #[arg(long, value_name = "FROM..TO", value_parser = crate::parse::range)]
    pub range: Option<(hindsight_timeline::Place, hindsight_timeline::Place)>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Info {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct List {
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Remove {
    /// Names, as `ls` shows them.
    #[arg(required_unless_present = "all")]
    pub names: Vec<PathBuf>,
    /// All recordings.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// For scripts: each recording and whether it is gone.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Export {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// The file to make, which must not be there, or `-` for standard output; default: one of the same name
    /// in the current folder.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// For scripts: what was made, on standard output.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Cache {
    /// Delete it; recordings that run are not disturbed.
    #[arg(long)]
    pub clear: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Dump {
    /// A recorded process, or the `hindsight` that records it.
    pub pid: i32,
    /// File to write; default: a new file in the store.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// For scripts: what was written, on standard output.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Receive {
    /// Address to listen on; port 0 takes a free one. The connection is neither encrypted nor
    /// authenticated.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7890")]
    pub listen: String,
    /// File to write; default: a new file in the store.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Take at most so many bytes, such as `500M`; what has come until then stays.
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = bytes)]
    pub max_size: u64,
    /// Leave whoever does not begin with a recording within this time, and wait for the next one.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub timeout: std::time::Duration,
    /// End when nothing has come for this time, as of a program that sleeps; 0: only when the other machine is gone.
    #[arg(long, value_name = "SECONDS", default_value = "86400", value_parser = seconds)]
    pub idle: std::time::Duration,
}

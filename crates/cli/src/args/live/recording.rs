//! How programs are recorded, and where recordings go.

use super::super::values::seconds;
use super::values::{
    Retry, baseline, children, count, data_limit, destination, duration, function, pattern,
    predictor, ring, state_points, system_call,
};
use clap::Args as ClapArgs;
use hindsight_launch::{Baseline, Children, KeepOn, Limit, Predictor, Selection};
use std::ffi::OsString;
use std::path::PathBuf;

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
    /// What predicts the values that the program reads: `window` (a full shadow of its memory), or a bounded cache such as
    /// `cache:64k` for a program with little memory to spare.
    #[arg(long, default_value = "window", value_parser = predictor)]
    pub predictor: Predictor,
    /// How reads are recorded. `checked` checks them from the beginning. `quiet` does not check them as long as a process
    /// has one thread, shares no memory, and makes only system calls whose effects are known. Default: quiet, unless key
    /// frames or a ring are asked for.
    #[arg(long, value_enum, value_name = "REGIME")]
    pub regime: Option<Regime>,
    /// The processor that the program is shown: `host`, or `x86-64-v2`, `-v3`, `-v4` for a
    /// recording that is to be replayed on other machines.
    #[arg(long, default_value = "host", value_parser = baseline)]
    pub cpu: Baseline,
    /// Instructions between points from which replay can start, at least; 0: only from the beginning. In the checked regime
    /// all that is read is recorded again behind each point. So they are at least 64 instructions apart for each byte of
    /// memory that the process has had. In the quiet regime (with this option: only if --regime asks for it) they take at
    /// most a fortieth of the time. For travel, see `index --range`. [default: 1000000000]
    #[arg(long, value_name = "N")]
    pub keyframe_interval: Option<u64>,
    /// Instructions between digests of all registers, which replay compares; 0: none.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub digest_interval: u64,
    /// Of a process with several threads, or one that shares memory: record at most N bytes of what a system call reads
    /// (`64K`, `all` or `none`). What is behind them is recorded only where the program looks at it. Of other processes
    /// all is recorded. Default: 128K, or 4K with --ring or --predictor cache.
    #[arg(long, value_name = "N|all|none", value_parser = data_limit)]
    pub data_limit: Option<u64>,
    /// Processes that the program starts. `follow` records them too, and `none` does not. `only-matching=GLOB` records those
    /// whose program's name matches (or its path, if GLOB has a slash).
    #[arg(long, value_parser = children, value_name = "WHICH", default_value = "follow")]
    pub children: Children,
    /// Record only the code of modules that match: by path, file name, or file name up to `.so`, with `*` and `?`. `[vdso]`
    /// and `[anonymous]` (code that is made at run time) are names too. May be repeated.
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
    /// Keep only the latest part of the recording, in memory: so many bytes (`64M`), or the last seconds (`10s`). It is
    /// written when the program ends (see `--keep-on`) and by `hindsight dump`.
    #[arg(long, value_name = "SIZE|SECONDS", value_parser = ring, conflicts_with = "plain")]
    pub ring: Option<Limit>,
    /// Hold the ring in a file without a name, where the recording is to go.
    #[arg(long, requires = "ring")]
    pub ring_on_disk: bool,
    /// Keep the recording only if the program ends like this: `failure` (by a signal, with a
    /// status other than 0, or by --timeout), `crash` (by a signal), `signal=N`, `hang` (by --timeout), or `always`.
    /// Default: `failure` with `--ring` or `--retry`, otherwise `always`.
    #[arg(long, value_name = "END", conflicts_with = "plain")]
    pub keep_on: Option<KeepOn>,
    /// Run the program again, at most N times, until a recording is kept. The status is then that of
    /// this run, otherwise 0.
    #[arg(long, value_name = "N|until-failure", value_parser = Retry::parse, conflicts_with = "plain")]
    pub retry: Option<Retry>,
    /// End a run that takes longer than this, such as `10s` or `2m`. All its processes are killed, and what its threads wait
    /// for is shown (see `waits`). The status is then 124, as that of timeout(1). With --retry, each run has this time.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "plain")]
    pub timeout: Option<std::time::Duration>,
    /// Disturb the timing of threads and processes, so that rare interleavings happen. Every SEED disturbs in another way.
    /// With `--retry`, each run takes the next seed. Threads sleep for half of the time at most.
    #[arg(long, value_name = "SEED")]
    pub chaos: Option<u32>,
    /// Repeat the last answer if the program asks for the time again within TIME, such as `1ms`, and no thread has made another
    /// system call or got a signal since. The recording of a program that asks all the time becomes smaller.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub clock_throttle: Option<std::time::Duration>,
    /// Fill memory that the program has not written yet with what programs usually find there, instead of zeros that hide errors:
    /// the first 64 KiB of each block of `malloc` and its like, and of each stack that begins. Each SEED (from 1) gives other
    /// bytes, and the same ones each time. With `--retry`, each run takes the next seed.
    #[arg(long, value_name = "SEED", conflicts_with = "plain")]
    pub fill_fresh: Option<std::num::NonZeroU32>,
    /// Record all memory each time a time has passed, such as `1s` or `every=1s`, or what has changed of it (see `states`).
    /// `events=N`: each time a thread has had N events. `calls`: before calls that make a thread or a process, execute a program, or
    /// map or unmap a MiB or more, but not twice within 100 ms. For processes in the quiet regime, in which they then begin.
    #[arg(long, value_name = "WHEN", value_parser = state_points, conflicts_with = "plain")]
    pub state_points: Option<hindsight_launch::StatePoints>,
    /// With `--ring`: keep of each thread only what follows its last N state points. They are dropped sooner if the ring is full.
    #[arg(long, value_name = "N", value_parser = count)]
    pub keep_state_points: Option<usize>,
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
    /// For tests: an invariant of the recorder does not hold when a program image has translated N blocks of code.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub violate_after: u64,
    /// For tests: whether memory that is only read shares its pages with what it is compared with; else by the processor.
    #[arg(long, value_name = "BOOL", hide = true)]
    pub joint: Option<bool>,
    /// Write what became of the run into this file, for scripts, as an object of JSON: the recording's `file`, whether it is
    /// `kept`, how the program `ended`, with which `status` or `signal`. Or an `error`: nothing was run.
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
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
    /// The part of the program that is recorded.
    pub fn selection(&self) -> Selection {
        Selection {
            only_modules: self.only_module.clone(),
            skip_modules: self.skip_module.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            start_stopped: self.start_stopped,
        }
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
    /// The most bytes of what a system call reads that are recorded: see `record`.
    #[arg(long, value_name = "N|all|none", value_parser = data_limit)]
    pub data_limit: Option<u64>,
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

#[derive(ClapArgs)]
#[command(
    after_help = "A thread that computes gets the mark within tenths of a second, one that waits in a system call at once. \
    Exit status 0: it is in the recording; 2: it is not, or its state point is not."
)]
pub struct Mark {
    /// A recorded process or thread. Or the `hindsight` that records: then its program gets the mark.
    pub pid: i32,
    /// The name, of at most 256 bytes. `hindsight at FILE mark:NAME` goes there.
    pub name: std::ffi::OsString,
    /// Have all memory recorded there. In the quiet regime only.
    #[arg(long)]
    pub state: bool,
    /// For scripts: where it was set, on standard output.
    #[arg(long)]
    pub json: bool,
}

/// How reads are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Regime {
    Quiet,
    Checked,
}

impl From<Regime> for hindsight_launch::Regime {
    fn from(regime: Regime) -> Self {
        match regime {
            Regime::Quiet => Self::Quiet,
            Regime::Checked => Self::Checked,
        }
    }
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

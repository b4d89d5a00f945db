//! What is asked of a recording.

use super::values::{assumption, jobs, seconds};
use clap::Args as ClapArgs;
use hindsight_inspect::Assumption;
use hindsight_timeline::{KindOf, Place};
use std::ffi::OsString;
use std::path::PathBuf;

/// Help for a recording and a place in it, with what is to be said after that.
macro_rules! recording_and_place {
    ($more:literal) => {
        concat!(
            "The recording (a file, or a name in the store; default: the latest one), and a place in it. A place is a \
             position (1A2:3F), a part of the run (50%), `begin`, `end`, `crash`, `event:N` (as `events` lists them), \
             `syscall:N`, `mark:NAME`, `state:N` (as `states` lists them), `time:1.5s` (since the start) or a time of day (12:34:56)",
            $more
        )
    };
}
pub(super) use recording_and_place;

const BEGIN_AT: &str = "Begin at this place instead of the first instruction: 1A2:3F, 50%, `end`, `crash`, `event:N`, \
                        `syscall:N`, `mark:NAME`, `state:N`, `time:1.5s`, 12:34:56";
const IMAGE_TO_DEBUG: &str =
    "The program image to debug, by its number in `info`; default: the first, or that of --at";

/// What `replay --verify` compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Checks {
    /// All that the recording says twice: registers, system calls with their arguments, what was written,
    /// the order of all threads, copies of files
    Full,
    /// Registers at digests and key frames
    Digests,
}

/// What executes instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Processor {
    /// The native one where this machine can run it, otherwise the interpreter
    Auto,
    /// Code translated for this machine
    Native,
    /// One instruction after the other, without any feature of this machine
    Interpreter,
    /// Both, for `replay --verify`: all registers are compared at each digest
    Both,
}

#[derive(ClapArgs)]
pub struct Replay {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    #[arg(long, value_name = "PLACE", conflicts_with = "verify", help = BEGIN_AT)]
    pub at: Option<Place>,
    #[arg(long, value_name = "IMAGE", conflicts_with = "verify", help = IMAGE_TO_DEBUG)]
    pub process: Option<u32>,
    /// Functions that are not recorded, and what they write, in the format of docs/declared-functions.md, for `hindsight-assume`.
    /// Those of the C library need no file.
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    pub declared: Vec<PathBuf>,
    /// Replay everything and compare. `full` (the default) compares all that was recorded, `digests` only the registers.
    /// Exit status 0: all that is recorded is equal; 1: a difference; 2: the recording cannot be read; 3: it has no
    /// instruction to replay.
    #[arg(
        long,
        value_name = "CHECKS",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "full"
    )]
    pub verify: Option<Checks>,
    /// Also prove the order of atomic operations. Each must have read what the one before it left, or what something else
    /// may have written in between. Exit status 1 if one did not.
    #[arg(long, requires = "verify")]
    pub check_order: bool,
    /// Also count reads and writes of memory, segments (instructions up to a branch) and indirect branches. That takes a
    /// little longer.
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
    #[arg(long, value_name = "PLACE", help = BEGIN_AT)]
    pub at: Option<Place>,
    #[arg(long, value_name = "IMAGE", help = IMAGE_TO_DEBUG)]
    pub process: Option<u32>,
    /// Functions that are not recorded, and what they write, in the format of docs/declared-functions.md, for `monitor assume`.
    /// Those of the C library need no file.
    #[arg(long, value_name = "FILE")]
    pub declared: Vec<PathBuf>,
}

#[derive(ClapArgs)]
pub struct Serve {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Functions that are not recorded, and what they write, in the format of docs/declared-functions.md. Those of the C library
    /// need no file.
    #[arg(long, value_name = "FILE")]
    pub declared: Vec<PathBuf>,
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

/// By what values are carried over what is not recorded.
#[derive(ClapArgs)]
pub struct Carrying {
    /// Functions that are not recorded, and what they write, in the format of docs/declared-functions.md. Those of the C library
    /// need no file.
    #[arg(long, value_name = "FILE")]
    pub declared: Vec<PathBuf>,
    /// Which values are shown, too, that are not known but carried over what is not recorded. Default: declared. Without this
    /// option `at` looks only over 4 gaps in each direction, which is quick.
    #[arg(long, value_name = "WHAT", value_parser = assumption())]
    pub assume: Option<Assumption>,
}

#[derive(ClapArgs)]
pub struct At {
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 0..=2,
        required = false,
        help = recording_and_place!(". Default: the crash, or else the end")
    )]
    pub words: Vec<String>,
    #[command(flatten)]
    pub at: Within,
    /// Instructions to show.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub instructions: usize,
    #[command(flatten)]
    pub carrying: Carrying,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Core {
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 0..=2,
        required = false,
        help = recording_and_place!(". Default: the crash, or else the end")
    )]
    pub words: Vec<String>,
    /// The file to make, which must not exist. Only its owner can read it.
    #[arg(short, long, value_name = "FILE", default_value = "core")]
    pub output: PathBuf,
    /// The program image to dump, by its number in `info`: where it then is. Places are counted in it. Default: that of the
    /// place.
    #[arg(long, value_name = "IMAGE", alias = "image")]
    pub process: Option<u32>,
    /// The thread that comes first (the number of its stream), where it then is; default: that of the place.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Cut {
    /// The recording, and the part: two places, such as `40%..1A2:3F`, `begin..crash` or `time:2s..time:3s`. It may become a bit
    /// larger, since each thread begins at a key frame. Default recording: the latest one in the store.
    #[arg(value_name = "[FILE] FROM..TO", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// The file to make, which must not exist. Only its owner can read it.
    #[arg(short, long, value_name = "FILE", default_value = "cut.hst")]
    pub output: PathBuf,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Breakpath {
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 1..=2,
        required = true,
        help = recording_and_place!("")
    )]
    pub words: Vec<String>,
    /// Print a script for gdb that does it: `gdb -x SCRIPT PROGRAM`. It holds the recorded environment.
    #[arg(long, conflicts_with_all = ["lldb", "json"])]
    pub gdb: bool,
    /// Print a script for lldb that does it: `lldb -o "command script import ./SCRIPT.py" -- PROGRAM ARGUMENTS`.
    #[arg(long, conflicts_with = "json")]
    pub lldb: bool,
    /// What may be set: `all`, `instructions`, `lines` (where a source line begins), `functions` (their first instructions), `data`,
    /// or a file with one setting in each line: `MODULE+0xOFFSET`, `FUNCTION` or `SOURCE:LINE`. `data` needs a `--limit` of all
    /// instructions before the place.
    #[arg(long, value_name = "WHAT", default_value = "all")]
    pub candidates: String,
    /// Most instructions before the place whose data counts; each takes about 16 bytes of memory. Before these, only
    /// instructions count.
    #[arg(long, value_name = "N", default_value_t = 16_000_000)]
    pub limit: u64,
    /// Start the recorded program under gdb, as it was recorded, and bring it to the place. Shows what would be executed, and asks. At a
    /// terminal gdb stays there. With `--batch`, `--json`, or without a terminal, it says where the program arrived; exit status 0:
    /// there; 1: this run is not like the recorded one; 2: another error.
    #[arg(long, conflicts_with_all = ["gdb", "lldb"])]
    pub run: bool,
    /// Do not ask. Only for recordings that you trust as you trust a program.
    #[arg(long, requires = "run")]
    pub yes: bool,
    /// Say where the program arrived and end it, also at a terminal.
    #[arg(long, requires = "run")]
    pub batch: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
    /// Options of gdb, which count at the place, such as `-ex bt`.
    #[arg(last = true, value_name = "GDB OPTIONS", requires = "run")]
    pub options: Vec<OsString>,
}

#[derive(ClapArgs)]
pub struct Backtrace {
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 0..=2,
        required = false,
        help = recording_and_place!(". Default: the crash, or else the end")
    )]
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
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 0..=2,
        required = false,
        help = recording_and_place!(". Default: the end")
    )]
    pub words: Vec<String>,
    /// With their call stacks.
    #[arg(long)]
    pub stacks: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Maps {
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 0..=2,
        required = false,
        help = recording_and_place!(". Default: the crash, or else the end")
    )]
    pub words: Vec<String>,
    /// Only the mapping that has this address: a number, a variable, or an expression such as `p->next`, `$rsp+8`.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    #[command(flatten)]
    pub at: Within,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Symbol {
    /// The recording (a file, or a name in the store; default: the latest one) and perhaps a place in it, such as
    /// `list.hst@crash`, `@50%`; default: the crash, or else the end. Then addresses (0x… or decimal), and names of functions
    /// and variables: NAME, or `MODULE!NAME` (libc!malloc). What is not known is shown as `?`. Exit status 0: all of them
    /// were found; 1: some were not; 2: another error.
    #[arg(value_name = "[FILE][@PLACE] ADDRESS|NAME", num_args = 1.., required = true)]
    pub words: Vec<String>,
    /// In this program image, by its number in `info`: where it then is. Places are counted in it.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
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
    /// Show the arguments of system calls as numbers. Otherwise those that are asked for (by --kind or --syscall) are shown
    /// as strace does, which replays the recording.
    #[arg(long)]
    pub raw: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

/// Which calls that read and write are meant.
#[derive(ClapArgs)]
pub struct Moved {
    /// Only of this thread (the number of its stream).
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Only of this program image.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// Not before this place.
    #[arg(long, value_name = "PLACE")]
    pub from: Option<Place>,
    /// Before this place.
    #[arg(long, value_name = "PLACE")]
    pub until: Option<Place>,
}

#[derive(ClapArgs)]
pub struct Output {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// What was written there: to what was first open as descriptor N, and all its copies, or to the file with this path, or
    /// with a path that ends so. Default: the standard output and the standard error that the program began with.
    #[arg(long, value_name = "N|PATH")]
    pub fd: Option<String>,
    #[command(flatten)]
    pub of: Moved,
    /// Write the bytes as they are, and nothing else. Those that are not known are left out. Exit status 0: all are there;
    /// 1: some were left out; 2: another error.
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Data {
    /// File, or name in the store; default: the latest recording in the store.
    pub file: Option<PathBuf>,
    /// Only what was read.
    #[arg(long = "in", conflicts_with = "writes")]
    pub reads: bool,
    /// Only what was written.
    #[arg(long = "out")]
    pub writes: bool,
    /// Only what went through what was first open as descriptor N, and all its copies, through the file with this path, or with
    /// a path that ends so, through the socket with this peer (127.0.0.1:80), or what was `random`.
    #[arg(long, value_name = "N|PATH|PEER")]
    pub fd: Option<String>,
    #[command(flatten)]
    pub of: Moved,
    /// Write the bytes as they are, and nothing else, each where it stood in its file. It takes --fd, and --in or --out.
    /// Those that are not known are left out. Exit status 0: all are there; 1: some were left out; 2: another error.
    #[arg(long, requires = "fd", conflicts_with_all = ["json", "hex"])]
    pub raw: bool,
    /// Show the bytes as hexadecimal numbers.
    #[arg(long, conflicts_with = "json")]
    pub hex: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Mem {
    #[arg(
        value_name = "[FILE] PLACE ADDRESS [LENGTH]",
        num_args = 2..=4,
        required = true,
        help = recording_and_place!(
            ". Then what to show: an address, a variable, or an expression such as `p->next`, `table[3]`, `*p`, `$rsp+8`. \
             Last, the number of bytes; default: as many as the variable has, or 8"
        )
    )]
    pub words: Vec<String>,
    #[command(flatten)]
    pub at: Within,
    #[command(flatten)]
    pub carrying: Carrying,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Origin {
    #[arg(
        value_name = "[FILE] PLACE ADDRESS [LENGTH]",
        num_args = 2..=4,
        required = true,
        help = recording_and_place!(
            ". Then where the value is there: an address, a variable, or an expression such as `p->next`, `table[3]`, `*p`, \
             `$rsp+8`. Last, the number of bytes, at most 4096; default: as many as the variable has, or 8"
        )
    )]
    pub words: Vec<String>,
    #[command(flatten)]
    pub at: Within,
    /// Follow the value through at most this many instructions and calls.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub hops: u32,
    /// Show all of them. Otherwise the middle of a long way is left out.
    #[arg(long)]
    pub all: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs)]
pub struct Writes {
    /// The recording (a file, or a name in the store; default: the latest one). Then what was written to: an address, a
    /// variable, or an expression such as `p->next`, `table[3]`, `*p`, `$rsp+8`. It has its value at the place before which
    /// is searched. Last, the number of bytes; default: as many as the variable has, or 8.
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
    /// The recording (a file, or a name in the store; default: the latest one), and the function: its name, `MODULE!NAME`
    /// (libc!malloc), or its address (0x…).
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
pub struct Sql {
    /// Recordings (files, names in the store, or patterns in quotes such as 'runs/*.hst'; default: the latest recording), and
    /// behind them what is asked. If the last word is a recording too, the question comes from the prompt or from standard
    /// input. SHOW TABLES lists the tables, DESCRIBE TABLE the columns.
    #[arg(value_name = "[FILE]... [QUERY]", num_args = 0..)]
    pub words: Vec<String>,
    /// Show rows as CSV, with a line of names.
    #[arg(long, conflicts_with_all = ["json", "parquet"])]
    pub csv: bool,
    /// Show rows as a list of objects.
    #[arg(long, conflicts_with = "parquet")]
    pub json: bool,
    /// Write the rows of the only statement to standard output as a stream of Arrow's format for processes, for programs.
    #[arg(long, conflicts_with_all = ["csv", "json", "parquet"])]
    pub arrow: bool,
    /// Write the rows of the only statement to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
    /// Processors to use; default: all.
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Answers questions that come in frames from standard input. Here it says that each is done.
    #[arg(long, hide = true, value_name = "FD")]
    pub session: Option<i32>,
    /// Each byte from there ends a question.
    #[arg(long, hide = true, value_name = "FD")]
    pub interrupts: Option<i32>,
}

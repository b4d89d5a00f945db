//! What can be said on the command line.

mod declare;
mod diff;
mod housekeeping;
#[cfg(target_arch = "x86_64")]
mod live;
#[cfg(not(target_arch = "x86_64"))]
#[path = "args/elsewhere.rs"]
mod live;
mod questions;
mod tables;
mod values;
mod whole;

use clap::{Parser, Subcommand};
pub use declare::*;
pub use diff::*;
pub use housekeeping::*;
pub use live::*;
pub use questions::*;
pub use tables::*;
use values::bytes;
pub use whole::*;

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
    /// What executes a recording's instructions. The interpreter is slower, and ends with an error at an instruction that
    /// it does not support.
    #[arg(
        long,
        global = true,
        value_name = "PROCESSOR",
        value_enum,
        default_value = "auto",
        hide_default_value = true,
        display_order = 1001
    )]
    pub processor: Processor,
    /// For tests: play recordings as on a machine without these features of its processor and what needs them.
    #[arg(
        long,
        global = true,
        hide = true,
        value_name = "FEATURES",
        value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(hindsight_replay::features()),
    )]
    pub without: Vec<String>,
}

impl Command {
    /// Whether it reads recordings, which may be anybody's.
    pub fn reads(&self) -> bool {
        use Command::*;
        match self {
            Replay(_) | Gdbserver(_) | Serve(_) | Info(_) | States(_) | At(_) | Backtrace(_)
            | Core(_) | Cut(_) | Waits(_) | Breakpath(_) | Events(_) | Output(_) | Data(_)
            | Mem(_) | Maps(_) | Symbol(_) | Writes(_) | Origin(_) | Calls(_) | Diff(_)
            | Sql(_) | Tables(_) | Convert(_) | Audit(_) | Index(_) | Ls(_) | Rm(_) | Export(_)
            | Rerun(_) | Resume(_) => true,
            Record(_)
            | Attach(_)
            | Detach(_)
            | Mark(_)
            | Cache(_)
            | Declare(_)
            | Dump(_)
            | Receive(_)
            | Completions { .. } => false,
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a program and record it.
    Record(Box<Record>),
    /// Record a process that already runs, until it ends or is detached.
    Attach(Attach),
    /// Have a recorded process go on by itself.
    Detach(Detach),
    /// Set a mark in a recording that goes on, also with all memory of the program.
    Mark(Mark),
    /// Debug a recording with gdb, or play it again and compare.
    Replay(Replay),
    /// Run a changed program with the recorded inputs, and tell what became of the failure.
    Rerun(Rerun),
    /// Make a live process of a place of a recording, which goes on for real.
    Resume(Resume),
    /// Offer a recording to gdb or lldb over their remote protocol.
    Gdbserver(Gdbserver),
    /// Answer a program's questions about a recording, in lines of JSON on standard input and output.
    Serve(Serve),
    /// Show what a recording holds.
    Info(Info),
    /// List the instants at which a recording has all memory of a program. `record --state-points` makes them, and
    /// `hindsight_state_point` in `hindsight.h`.
    States(States),
    /// Show a place of a recording: registers, source line, instructions, call stack, variables.
    At(At),
    /// Show the call stack at a place of a recording.
    Backtrace(Backtrace),
    /// Write a place of a recording as a core dump, for gdb, lldb and others.
    Core(Core),
    /// Write a part of a recording as a smaller one that stands alone, for example for a bug report.
    Cut(Cut),
    /// Show what the threads wait for at a place of a recording, and whom.
    Waits(Waits),
    /// Find the fewest breakpoints that bring a live run of the program to a place of its recording.
    Breakpath(Breakpath),
    /// List what happened in a recording: system calls, signals, threads, modules, gaps, marks.
    Events(Events),
    /// Show what the recorded program printed, or wrote to a descriptor or a file.
    Output(Output),
    /// Show what the recorded program read and wrote through descriptors.
    Data(Data),
    /// Show memory at a place of a recording, and why it is known.
    Mem(Mem),
    /// List what the process has mapped at a place of a recording, as `/proc/PID/maps` would.
    Maps(Maps),
    /// Show which function and source line addresses belong to, and where functions and variables are.
    Symbol(Symbol),
    /// List the instructions that wrote to some memory, the last one first.
    Writes(Writes),
    /// Show where a value came from: each copy of it, back to the input or the computation that made it.
    Origin(Origin),
    /// List the calls of a function, with arguments and what they returned.
    Calls(Calls),
    /// Find where two recordings of a program part, and which value made them.
    Diff(Diff),
    /// Ask a recording in SQL: its events, calls, memory and instructions are tables.
    Sql(Sql),
    /// Write the tables of recordings into files for other tools: Parquet, Arrow or CSV.
    Tables(Tables),
    /// Write what a recording tells in the format of another tool: lcov, flame graphs, Firefox profiler, Perfetto.
    Convert(Convert),
    /// List the files that a recording used, compared with those of this machine, or take them out.
    Audit(Audit),
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
    /// Derive from headers what functions write that are not recorded, for `--declared`.
    Declare(Declare),
    /// Take what a circular recording (`record --ring`) holds now; it goes on.
    Dump(Dump),
    /// Accept one recording that `record -o tcp:HOST:PORT` sends.
    Receive(Receive),
    /// Print a completion script.
    Completions { shell: clap_complete::Shell },
}

//! The command line: `hindsight record`, `info`, `replay`, and the store of recordings.

// Some of it serves commands on live programs only, which other machines do not have.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

mod args;
mod assets_here;
mod at;
mod audit;
mod bar;
mod breakpath;
mod calls;
mod carried;
mod choice;

mod confine;
mod coredump;
mod cut;
mod data;
mod debugger;
mod declare;
mod diff;
mod export;
mod hex;
mod info;
mod interrupts;
mod limits;
#[cfg(target_arch = "x86_64")]
mod live;
#[cfg(not(target_arch = "x86_64"))]
#[path = "elsewhere.rs"]
mod live;
mod maps;
mod mem;
mod numbers;
mod origin;
mod out;
mod output;
mod parse;
mod placed;
mod printers;
mod processor;
mod receive;
mod replay;
mod serve;
pub mod sql;
mod states;
mod status;
mod store;
mod symbol;
mod transfers;
mod travel;
mod tree;
mod variables;
mod waits;
mod words;

use args::{Args, Command};
use clap::{CommandFactory, FromArgMatches};
use live::{attach, cache, dump, mark, record, rerun, resume};

/// Runs the command line; the exit status.
pub fn run() -> i32 {
    run_with(sql::hand_over)
}

/// The same. `engine` runs the commands that need an engine so large that another executable has it.
fn run_with(engine: impl FnOnce(Command) -> anyhow::Result<i32>) -> i32 {
    let parsed = command().try_get_matches();
    let mut args = match parsed.and_then(|m| Args::from_arg_matches(&m)) {
        Ok(a) => a,
        Err(e) => return misused(&e),
    };
    if let Err(wrong) = fits(&args) {
        say(wrong);
        return 2;
    }
    processor::begin(args.processor, std::mem::take(&mut args.without));
    let result = match args.command {
        Command::Record(a) => return record::run(*a),
        Command::Attach(a) => return attach::run(&a),
        Command::Detach(a) => attach::detach(&a),
        Command::Replay(a) if a.verify.is_none() => debugger::run(&a),
        Command::Replay(a) => confine::run(a.file.as_deref(), || replay::run(&a)),
        Command::Rerun(a) => rerun::run(&a),
        Command::Resume(a) => resume::run(a),
        Command::Gdbserver(a) => debugger::serve(&a),
        Command::Serve(a) => serve::run(&a),
        Command::At(mut a) => {
            let file = words::take(&mut a.words, 0, 1);
            at::run(&a, file.as_deref())
        }
        Command::Backtrace(mut a) => {
            let file = words::take(&mut a.words, 0, 1);
            confine::run(file.as_deref(), || at::backtrace(&a))
        }
        Command::Core(mut a) => {
            let file = words::take(&mut a.words, 0, 1);
            coredump::run(&a, file.as_deref())
        }
        Command::Cut(mut a) => {
            let file = words::take(&mut a.words, 1, 1);
            cut::run(&a, file.as_deref())
        }
        Command::Waits(mut a) => {
            let file = words::take(&mut a.words, 0, 1);
            confine::run(file.as_deref(), || waits::run(&a))
        }
        Command::Breakpath(mut a) => {
            let file = words::take(&mut a.words, 1, 1);
            breakpath::run(&a, file.as_deref())
        }
        Command::Info(a) => confine::run(a.file.as_deref(), || info::run(&a)),
        Command::States(a) => confine::run(a.file.as_deref(), || states::run(&a)),
        Command::Calls(mut a) => {
            let file = words::take(&mut a.words, 1, 1);
            confine::run(file.as_deref(), || calls::run(&a))
        }
        Command::Diff(a) => {
            let files = [a.first.as_path(), a.second.as_path()];
            confine::run_on_both(files, |files| diff::run(&a, files))
        }
        command @ (Command::Sql(_) | Command::Tables(_) | Command::Convert(_)) => engine(command),
        Command::Data(a) => data::run(&a),
        Command::Audit(a) => audit::run(&a),
        Command::Index(a) => confine::run(a.file.as_deref(), || travel::index(&a)),
        Command::Events(a) => confine::run(a.file.as_deref(), || travel::events(&a)),
        Command::Output(a) => confine::run(a.file.as_deref(), || output::run(&a)),
        Command::Mem(mut a) => {
            let file = words::take(&mut a.words, 2, 3);
            mem::run(&a, file.as_deref())
        }
        Command::Maps(mut a) => {
            let file = words::take(&mut a.words, 0, 1);
            confine::run(file.as_deref(), || maps::run(&a))
        }
        Command::Symbol(mut a) => {
            let (file, place) = words::take_with_place(&mut a.words);
            confine::run(file.as_deref(), || symbol::run(&a, place.as_ref()))
        }
        Command::Writes(mut a) => {
            let file = words::take(&mut a.words, 1, 2);
            confine::run(file.as_deref(), || travel::writes(&a))
        }
        Command::Origin(mut a) => {
            let file = words::take(&mut a.words, 2, 3);
            confine::run(file.as_deref(), || origin::run(&a))
        }
        Command::Ls(a) => limits::within(|| store::list(&a)),
        Command::Rm(a) => limits::within(|| store::remove(&a)),
        Command::Export(a) => limits::within(|| export::run(&a)),
        Command::Cache(a) => cache::run(&a),
        Command::Declare(a) => declare::run(&a),
        Command::Mark(a) => mark::run(&a),
        Command::Dump(a) => dump::run(&a),
        Command::Receive(a) => receive::run(&a),
        Command::Completions { shell } => Ok(completions(shell)),
    };
    status(result)
}

/// What can be said on the command line of this machine.
fn command() -> clap::Command {
    args::adapt(Args::command())
}

/// Shows help, or what is wrong with a command line; the exit status.
fn misused(e: &clap::Error) -> i32 {
    let _ = e.print();
    // The lower statuses of `record` are the program's.
    let recording = std::env::args_os()
        .nth(1)
        .is_some_and(|a| a == "record" || a == "attach");
    match (e.use_stderr(), recording) {
        (false, _) => 0,
        (true, true) => status::FAILED,
        (true, false) => 2,
    }
}

/// Prints what a shell needs to complete command lines.
fn completions(shell: clap_complete::Shell) -> i32 {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "hindsight", &mut text);
    out::put(String::from_utf8_lossy(&text).trim_end());
    0
}

/// Whether the options for all commands fit this one. Begins to limit memory.
fn fits(args: &Args) -> Result<(), &'static str> {
    match (args.command.reads(), args.max_memory) {
        (true, said) => {
            if !processor::has_small_pages() {
                return Err(
                    "recordings are played where pages have 4 KiB; this kernel has larger ones",
                );
            }
            limits::begin(said);
        }
        (false, None) => {}
        (false, Some(_)) => return Err("--max-memory is for commands that read a recording"),
    }
    if args.processor != args::Processor::Auto && !args.command.reads() {
        return Err("--processor is for commands that read a recording");
    }
    let native = matches!(
        args.processor,
        args::Processor::Native | args::Processor::Both
    );
    if native && !hindsight_replay::is_native_possible() {
        return Err(
            "this machine cannot run translated code: leave --processor out, or say interpreter",
        );
    }
    let verifies = matches!(&args.command, Command::Replay(a) if a.verify.is_some());
    if args.processor == args::Processor::Both && !verifies {
        return Err("--processor both is for `replay --verify`, which compares the two");
    }
    Ok(())
}

/// The exit status of a command, which says what went wrong.
fn status(result: anyhow::Result<i32>) -> i32 {
    result.unwrap_or_else(|e| {
        say(&format!("{e:#}"));
        2
    })
}

/// Shows a message of one line to the user.
fn say(message: &str) {
    use std::io::Write;
    let message = hindsight_text::line(message);
    // One write: the recorded program may write there at the same time.
    let _ = std::io::stderr().write_all(format!("hindsight: {message}\n").as_bytes());
}

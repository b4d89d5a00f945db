//! The command line: `hindsight record`, `info`, `replay`, and the store of recordings.
//!
//! The C entry point is taken instead of Rust's own: before `main`, the standard library ignores
//! SIGPIPE and opens descriptors that are closed, and the recorded program would inherit that.
#![cfg_attr(not(test), no_main)]

mod args;
mod image;
mod info;
mod launch;
mod os;
mod program;
mod record;
mod sink;
mod store;
mod stream;
mod symbols;

use args::{Args, Command};
use clap::{CommandFactory, Parser};

#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const u8) -> i32 {
    std::process::exit(run())
}

/// Runs the command line; the exit status.
fn run() -> i32 {
    let args = match Args::try_parse() {
        Ok(a) => a,
        Err(e) => {
            let _ = e.print();
            // `record` uses statuses below 125 for the program.
            return if e.use_stderr() { record::FAILED } else { 0 };
        }
    };
    let result = match args.command {
        Command::Record(a) => return record::run(a),
        Command::Info(a) => info::run(&a),
        Command::Ls(a) => store::list(&a),
        Command::Rm(a) => store::remove(&a),
        Command::Receive(a) => stream::receive(&a),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Args::command(),
                "hindsight",
                &mut std::io::stdout(),
            );
            Ok(0)
        }
    };
    result.unwrap_or_else(|e| {
        say(&format!("{e:#}"));
        2
    })
}

/// Shows a message to the user.
fn say(message: &str) {
    use std::io::Write;
    // One write: the recorded program may write there at the same time.
    let _ = std::io::stderr().write_all(format!("hindsight: {message}\n").as_bytes());
}

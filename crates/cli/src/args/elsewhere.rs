//! Commands on live programs, on a machine that cannot run any: programs are recorded on x86-64.

use clap::Args as ClapArgs;
use std::ffi::OsString;

/// Only on x86-64.
#[derive(ClapArgs)]
#[command(disable_help_flag = true)]
pub struct Elsewhere {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// What the help says of these commands: they are not listed, and say what `help` is asked for.
pub fn adapt(mut command: clap::Command) -> clap::Command {
    let names = [
        "record", "attach", "detach", "mark", "dump", "cache", "rerun", "resume",
    ];
    for name in names {
        command = command.mut_subcommand(name, |c| {
            c.about("Not on this machine: programs are recorded and run on x86-64")
                .hide(true)
        });
    }
    command
}

pub type Record = Elsewhere;
pub type Attach = Elsewhere;
pub type Detach = Elsewhere;
pub type Mark = Elsewhere;
pub type Dump = Elsewhere;
pub type Cache = Elsewhere;
pub type Rerun = Elsewhere;
pub type Resume = Elsewhere;

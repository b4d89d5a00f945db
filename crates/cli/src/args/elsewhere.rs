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

pub type Record = Elsewhere;
pub type Attach = Elsewhere;
pub type Detach = Elsewhere;
pub type Dump = Elsewhere;
pub type Cache = Elsewhere;
pub type Rerun = Elsewhere;
pub type Resume = Elsewhere;

//! How a program is run again with recorded inputs.

use clap::{Args as ClapArgs, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(ClapArgs)]
pub struct Rerun {
    /// File, or name in the store.
    pub file: PathBuf,
    /// What becomes of what the program writes. Standard output and standard error are always compared, and shown.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "compare")]
    pub outputs: Outputs,
    /// A file or folder that belongs to the program, such as a script or a module that was changed. It is read as it is here.
    /// May be repeated. The program itself always is.
    #[arg(long, value_name = "FILE|FOLDER")]
    pub here: Vec<PathBuf>,
    /// End at the first call that does not match. Otherwise the run goes on wherever it can.
    #[arg(long)]
    pub stop: bool,
    /// Stop where the recorded program failed: behind the last call that it made before. gdb is started there. The program's system
    /// calls fail from there on.
    #[arg(long, conflicts_with = "json")]
    pub until_failure_point: bool,
    /// Do not show what the program prints.
    #[arg(short, long)]
    pub quiet: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments. Default: the recorded ones. A program without arguments gets the recorded ones.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub command: Vec<OsString>,
}

/// What becomes of what a program writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Outputs {
    /// It is compared with what was recorded, and goes nowhere.
    Compare,
    /// Only standard output and standard error are compared. Other files and effects do not count.
    Skip,
}

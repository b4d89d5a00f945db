//! How an instant of a recording goes on as a live process.

use super::super::questions::recording_and_place;
use clap::{Args as ClapArgs, ValueEnum};

#[derive(ClapArgs)]
pub struct Resume {
    #[arg(
        value_name = "[FILE] PLACE",
        num_args = 1..=2,
        required = true,
        help = recording_and_place!("")
    )]
    pub words: Vec<String>,
    /// The program image that goes on, by its number in `info`: where it then is. Places are counted in it. Default: that of
    /// the place.
    #[arg(long, value_name = "IMAGE", alias = "image")]
    pub process: Option<u32>,
    /// What becomes of open files that are not certainly what they were at the place.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "same")]
    pub files: Files,
    /// Do not ask. Without a terminal nothing runs unless this is said.
    #[arg(short, long)]
    pub yes: bool,
    /// Only say what would be done. Nothing is made, opened for writing, or run.
    #[arg(short = 'n', long, conflicts_with_all = ["yes", "gdb"])]
    pub dry_run: bool,
    /// Start gdb on the process, which stands still at the place.
    #[arg(long)]
    pub gdb: bool,
    /// Say in JSON what will be done: on standard error, or on standard output with `--dry-run`.
    #[arg(long)]
    pub json: bool,
}

/// What becomes of files that are not what they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Files {
    /// Nothing goes on unless they are certainly what they were
    Same,
    /// The process gets copies with the recorded contents, in a new folder, where all of these are known
    Recorded,
}

//! What is done with recordings as files.

use clap::Args as ClapArgs;
use std::path::PathBuf;

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

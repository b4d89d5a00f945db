//! What is done with recordings as files.

use super::values::{bytes, seconds};
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
pub struct Receive {
    /// Address to listen on; port 0 takes a free one. The connection is neither encrypted nor
    /// authenticated.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7890")]
    pub listen: String,
    /// File to write; default: a new file in the store.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Take at most so many bytes, such as `500M`; what has come until then stays.
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = bytes)]
    pub max_size: u64,
    /// Leave whoever does not begin with a recording within this time, and wait for the next one.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub timeout: std::time::Duration,
    /// End when nothing has come for this time, as of a program that sleeps; 0: only when the other machine is gone.
    #[arg(long, value_name = "SECONDS", default_value = "86400", value_parser = seconds)]
    pub idle: std::time::Duration,
}

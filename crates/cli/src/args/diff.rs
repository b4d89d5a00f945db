//! What is asked of two recordings.

use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(ClapArgs)]
pub struct Diff {
    /// The first recording: a file, or a name in the store.
    pub first: PathBuf,
    /// The second one, of the same program or another build of it.
    pub second: PathBuf,
    /// Show so many differences. Behind each, the comparison goes on where both do the same again.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Show all differences.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// Compare only this thread of the first recording (the number of its stream) with the one that belongs to it.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Compare only this program image of the first recording, by its number in `info`.
    #[arg(long, value_name = "N")]
    pub image: Option<u32>,
    /// Compare every branch. Otherwise registers are compared once in a million instructions, and at each system call; branches
    /// only where these differ.
    #[arg(long)]
    pub exact: bool,
    /// Show every branch that goes another way, also where only addresses, clocks, random numbers, ids or the size of the
    /// environment make it and both do the same again at once. Implies --exact.
    #[arg(long)]
    pub strict: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

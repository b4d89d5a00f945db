//! The translations that are kept.

use clap::Args as ClapArgs;

#[derive(ClapArgs)]
pub struct Cache {
    /// Delete it; recordings that run are not disturbed.
    #[arg(long)]
    pub clear: bool,
    /// For scripts.
    #[arg(long)]
    pub json: bool,
}

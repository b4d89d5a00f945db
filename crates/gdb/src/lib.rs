//! A recording as a target of gdb's remote protocol: gdb's own commands go forwards and backwards in
//! it.
//!
//! [`serve`] talks to one client over any pair of byte streams. [`hindsight_packets`] knows the packets; [`answers`]
//! answers them. All knowledge of the recording comes from [`hindsight_timeline`]. Nothing that a client sends changes
//! the recording: what it writes, and functions it calls, are in a side branch ([`state::side`]) that is thrown away.

mod answers;
mod monitor;
mod process;
mod program;
mod run;
mod server;
mod state;

pub use hindsight_packets::Patience;
pub use server::serve;
pub use state::bookmarks::Bookmarks;
pub use state::interrupt::Interrupt;
pub use state::session::Session;

use hindsight_timeline::Position;

/// Commands for gdb that go with a connection to [`serve`]: a file for its `-x` option.
pub const SCRIPT: &str = include_str!("hindsight.gdb");

/// Why a session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Timeline(#[from] hindsight_timeline::Error),
    #[error("the recording has no program image {0}; `hindsight info` lists them")]
    NoProcess(u32),
    #[error("no thread {0} at this position")]
    NoThread(usize),
    #[error(
        "position {0} is in program image {1}: go there by `process {1}`, or open it with --process {1}"
    )]
    OtherProcess(Position, u32),
    #[error("{0}")]
    Command(String),
    #[error(transparent)]
    Connection(#[from] hindsight_packets::Error),
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        Error::Connection(e.into())
    }
}

/// The result of what can fail for one of these reasons.
pub type Result<T> = std::result::Result<T, Error>;

//! Recording programs: what a command, a package for another language, or an editor needs for that.
//!
//! [`Recording::builder`] starts a program and records it; [`Recording::attach`] records a process that runs. The recording
//! goes to a file, the [store](hindsight_store), standard output or another machine ([`Destination`]). `hindsight_timeline`
//! opens it.
//!
//! ```
//! use hindsight_launch::{Destination, Recording, Status};
//! use hindsight_timeline::{Options, Timeline};
//!
//! let file = std::env::temp_dir().join(format!("launch-{}.hst", std::process::id()));
//! let recording = Recording::builder("/bin/true")
//!     .destination(Destination::File(file.clone()))
//!     .on_notice(|notice| eprintln!("{notice}"))
//!     .start()?;
//! println!("recording process {}", recording.pid());
//! let outcome = recording.wait()?;
//! assert_eq!(outcome.status, Some(Status::Exited(0)));
//!
//! let timeline = Timeline::open(&file, Options::default())?;
//! let (first, last) = timeline.range()?;
//! assert!(first < last);
//! # std::fs::remove_file(&file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here prints, ends this process, or reads arguments. What a user may want to know is a [`Notice`], what went
//! wrong an [`Error`]; both are sentences as text.
//!
//! # Two ways to stand by
//!
//! - [`Builder::start`] records in threads of this process, which goes on with what it does. The program is a child like
//!   others.
//! - [`Builder::run_in`] has this process stand for the program, as the command `hindsight record` does: it passes on
//!   signals, stops and goes on with the program. See [`Foreground`].

#![deny(missing_docs)]

mod attach;
mod destination;
mod detach;
mod dump;
mod error;
mod explain;
mod front;
mod mark;
mod notice;
mod outcome;
mod program;
mod record;
mod recorder_binary;
mod recorder_log;
mod recording;
mod retention;
mod selection;
mod shared;
mod sys;
pub mod translations;

pub use attach::AttachBuilder;
pub use destination::Destination;
pub use detach::{Left, detach};
pub use dump::dump;
pub use error::{AttachError, DetachError, Error, MarkError, ReachError, Result, Unfit};
pub use front::foreground::Foreground;
pub use hindsight_collector::StatePoints;
pub use hindsight_isa::Predictor;
pub use hindsight_isa::cpuid::Baseline;
pub use hindsight_trace::meta::Ending;
pub use hindsight_trace::{Limit, Summary};
pub use mark::{Marked, mark};
pub use notice::{Notice, Tell};
pub use outcome::{Outcome, Status};
pub use program::{Program, Refusal, resolve};
#[doc(hidden)]
pub use record::Trials;
pub use record::{Builder, Children, Regime};
pub use recorder_log::LogError;
pub use recording::Recording;
pub use retention::KeepOn;
pub use selection::{Selection, SelectionError, Unmatched};
pub use sys::signals::EndSignals;

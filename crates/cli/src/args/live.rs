//! Commands on live programs.

mod cache;
mod recording;
mod rerun;
mod resume;
mod values;

pub use cache::*;
pub use recording::*;
pub use rerun::*;
pub use resume::*;

//! Plays threads on virtual processors.

mod begin;
pub mod player;
mod swept;
mod viewpoint;

pub use begin::{Begin, begins};
pub use player::Player;
pub use swept::{Effect, Last, Learned, Slices, Swept};
pub use viewpoint::{Doing, Viewpoint};

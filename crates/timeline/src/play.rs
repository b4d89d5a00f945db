//! Plays threads on virtual processors.

pub mod player;
mod swept;
mod viewpoint;

pub use player::Player;
pub use swept::{Effect, Last, Learned, Swept};
pub use viewpoint::{Doing, Viewpoint};

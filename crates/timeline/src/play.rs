//! Threads on virtual processors.

pub mod player;
mod swept;

pub use player::{Chunks, Player, STRIDE};
pub use swept::{Effect, Last, Learned, Swept};

//! What a session is, and what it is made of.

pub mod action;
pub mod agent;
pub mod arch;
pub mod bookmarks;
pub mod carrying;
pub mod forks;
pub mod inferior;
pub mod interrupt;
pub mod session;
pub mod side;
pub mod signals;
pub mod stops;
pub mod told;

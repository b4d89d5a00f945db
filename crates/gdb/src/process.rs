//! Processes of the recording, as the client sees them: it is attached to some, and one is active.

pub mod aside;
pub mod attach;
pub mod begin;
pub mod events;
pub mod renew;

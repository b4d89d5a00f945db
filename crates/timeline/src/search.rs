//! Runs, steps and lists. They search for the next or previous stop, in one thread or in all.

mod breaks;
mod changes;
mod cold;
mod effects;
mod events;
mod hit;
mod known;
mod list;
mod out;
mod run;
mod step;
mod thread;
mod threads;
mod writers;

pub use list::Writes;
pub use out::step_out;
pub use run::{find, run};
pub use step::{step, step_over};

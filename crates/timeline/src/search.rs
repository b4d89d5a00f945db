//! Runs, steps and lists: what comes next or came before, in one thread or in all.

mod changes;
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

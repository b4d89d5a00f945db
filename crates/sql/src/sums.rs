//! What whole executions amount to: how often code was executed, and what calls cost.

mod blocks;
mod calls;
mod numbers;
mod places;
mod tree;

pub use blocks::{Block, blocks};
pub use calls::{Ended, How, Wanted, calls};
pub use numbers::Numbers;
pub use tree::{Tree, tree};

use crate::bounds::Bounds;
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Cancel, Executed, Run, Runs, ThreadId};
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// What can play a thread for sums.
fn runs(r: &Recording, thread: ThreadId, cancel: &Cancel) -> Result<Runs, Stop> {
    Ok(r.timeline.runs(thread, cancel.clone())?)
}

/// The threads that lie within the bounds, with their program images.
fn threads(r: &Recording, bounds: &Bounds) -> Result<Vec<(ThreadId, u32, u64, u64)>, Stop> {
    let all = r.timeline.threads()?.into_iter();
    let within = all.filter(|t| bounds.has("thread", t.id.0) && bounds.has("process", t.image));
    Ok(within.map(|t| (t.id, t.image, t.from, t.to)).collect())
}

/// How many workers there are.
fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Works through items in several threads. Whoever takes an item has a state of its own.
fn share<I: Sync, S: Send>(
    items: &[I],
    new: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &I) -> Result<(), Stop> + Sync,
) -> Result<Vec<S>, Stop> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let one = || -> Result<S, Stop> {
        let mut state = new();
        while let Some(item) = items.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            work(&mut state, item)?;
        }
        Ok(state)
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs().min(items.len()))
            .map(|_| scope.spawn(one))
            .collect();
        let mut all = vec![one()];
        all.extend(others.into_iter().map(|o| match o.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        all.into_iter().collect()
    })
}

/// The name of the whole function of which this is the name of a part: the compiler puts what is seldom executed elsewhere.
pub fn whole(function: &str) -> Option<&str> {
    let cold = [".cold", " [clone .cold]"];
    cold.iter().find_map(|end| function.strip_suffix(end))
}

/// The instructions of a run.
fn instructions(e: &Executed, run: Run) -> Vec<Instruction> {
    let n = run.instructions() as usize;
    let mut code = vec![0; 15 * n];
    let known = e.code(run.pc(), &mut code);
    let decoder = Decoder::with_ip(64, &code[..known], run.pc(), DecoderOptions::NONE);
    decoder.into_iter().take(n).collect()
}

/// Which file has an address of a program image when a thread has completed `count` instructions.
fn file_at(
    r: &Recording,
    image: u32,
    address: u64,
    thread: ThreadId,
    count: u64,
) -> Result<Option<usize>, Stop> {
    let position = r.timeline.position(thread, count)?;
    Ok(r.file(image, address, r.clock()?.time(position))?)
}

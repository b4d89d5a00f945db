//! What the instruction at a viewpoint accesses.

use super::Done;
use crate::Result;
use crate::play::Viewpoint;
use hindsight_replay::access::Access;

/// The memory that the instruction at a viewpoint accesses.
pub fn accesses(view: &mut Viewpoint) -> Result<Vec<Access>> {
    let count = view.count();
    let player = view.here()?;
    let mut done = Done::new(player);
    done.step(player, count)?;
    view.set_position(view.thread(), count)?;
    Ok(done.list)
}

/// What the instruction at the viewpoint writes (addresses and lengths), if it is the thread's first one. The answer is
/// remembered: many questions in a row ask it, and otherwise play only later instructions. Going back to the first one
/// would lay out again all memory that the thread found.
pub fn first_writes(view: &mut Viewpoint) -> Result<Vec<(u64, u64)>> {
    if let Some((_, known)) = view.first_writes.as_ref().filter(|f| f.0 == view.thread()) {
        return Ok(known.clone());
    }
    let own = accesses(view)?.into_iter().filter(|a| a.write);
    let found: Vec<_> = own.map(|a| (a.address, a.len)).collect();
    view.first_writes = Some((view.thread(), found.clone()));
    Ok(found)
}

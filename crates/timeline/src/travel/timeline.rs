//! An opened recording.

use crate::calls::{self, Call};
use crate::engine::interest::Dense;
use crate::engine::{Engine, IndexStatus, Options, interest};
use crate::model::contents::*;
use crate::{Cancel, Cursor, Position, Result};
use hindsight_trace::{ModuleHash, Trace};
use std::path::Path;
use std::sync::Arc;

/// A recording, and what has been found out about it. Cheap to clone; may be used from several threads.
#[derive(Clone)]
pub struct Timeline(pub(crate) Arc<Engine>);

impl Timeline {
    /// Opens a trace file. Reads no more than the headers of its chunks; what else is needed is read
    /// when it is asked for.
    ///
    /// ```no_run
    /// use hindsight_timeline::{Options, Timeline};
    /// let t = Timeline::open("trace.hst", Options::default())?;
    /// for p in t.processes()? {
    ///     println!("{} {} {}", p.image, p.pid, p.command);
    /// }
    /// # Ok::<(), hindsight_timeline::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file is no trace, holds no instructions, or keeps too little to travel in it.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Timeline> {
        Ok(Timeline(Arc::new(Engine::open(path.as_ref(), options)?)))
    }

    /// From now on `tell` is told, while a part of the index is made because a question needs it, how many instructions were
    /// played for such parts in all, and `None` when one is done. By any thread; what was set first stays.
    pub fn tell_progress(&self, tell: impl Fn(Option<u64>) + Send + Sync + 'static) {
        let _ = self.0.teller.set(Box::new(tell));
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The trace itself.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// A place to look from, at the first instruction of the first thread.
    pub fn cursor(&self) -> Result<Cursor> {
        Cursor::new(self.clone())
    }

    /// All program images, parents before children.
    pub fn processes(&self) -> Result<Vec<Process>> {
        self.0.processes()
    }

    /// All threads of all processes, in the order in which they were first seen.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        self.0.threads()
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Result<Thread> {
        self.0.thread(id)
    }

    /// The files that a program image had mapped, in the order in which they were.
    pub fn modules(&self, image: u32) -> Result<Vec<Module>> {
        self.0.modules(image)
    }

    /// What a program image has mapped at a position, in order of address.
    pub fn mappings(&self, image: u32, at: Position) -> Result<Vec<Mapping>> {
        self.0.mappings(image, at)
    }

    /// The content of a module.
    pub fn module_bytes(&self, hash: ModuleHash) -> Result<Vec<u8>> {
        Ok(self.0.trace.module_bytes(hash)?)
    }

    /// What happened, in the total order.
    pub fn events(&self, filter: &Filter) -> Result<Vec<Happening>> {
        self.0.events(filter)
    }

    /// The segments of a thread, in order; empty ones are left out.
    pub fn segments(&self, thread: ThreadId) -> Result<impl Iterator<Item = Segment> + '_> {
        self.0.segments(thread)
    }

    /// The segment in which a thread has completed `count` instructions.
    pub fn segment(&self, thread: ThreadId, count: u64) -> Result<Segment> {
        self.0.segment(thread, count)
    }

    /// The position at which a thread has completed `count` instructions.
    pub fn position(&self, thread: ThreadId, count: u64) -> Result<Position> {
        self.0.position(thread, count)
    }

    /// The thread that is at a position, and the number of instructions it has completed there.
    pub fn locate(&self, position: Position) -> Result<ThreadInstant> {
        self.0.locate(position)
    }

    /// Instructions that a thread has completed at a position of the total order; `None` if it has
    /// not begun. What follows in the segment that it runs then counts as completed when the segment
    /// was opened before.
    pub fn count_at(&self, thread: ThreadId, position: Position) -> Result<Option<u64>> {
        self.0.count_at(thread, position)
    }

    /// Whether a thread has begun at a position and not yet ended. One that then waits in the kernel until its process ends
    /// has completed all that it ever does, and lives: threads that wait for each other are to be seen.
    pub fn is_alive(&self, thread: ThreadId, position: Position) -> Result<bool> {
        self.0.is_alive(thread, position)
    }

    /// The first and the last position of the recording.
    pub fn range(&self) -> Result<(Position, Position)> {
        self.0.range()
    }

    /// What there is of the index.
    pub fn index_status(&self) -> IndexStatus {
        self.0.index_status()
    }

    /// Builds what is missing of the index and writes it beside the trace, several parts at the same
    /// time. `progress` is told the numbers of instructions done and to do. What was written when it
    /// fails or is cancelled stays and is used.
    pub fn build_index(
        &self,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<IndexStatus> {
        self.0.build_index(progress, cancel)
    }

    /// The shortest interval of a range of interest: shorter ones take more for their frames than steps gain by them.
    pub const SHORTEST_INTERVAL: u64 = interest::SHORTEST;

    /// Announces that a range of instants will be looked at closely: there the index gets more frames, so that steps back and seeks replay no
    /// more than that. The parts of the index in which the range lies are made anew, and saved beside the trace; where that fails, they are used
    /// all the same as long as the recording is open. Where the index would become larger than it may, frames are
    /// made rarer. `progress` is told the numbers of instructions done and to do.
    ///
    /// Returns the number of parts that were made.
    ///
    /// # Errors
    /// If there is no instant in the range, an index cannot be written or would be too large, a stream cannot be replayed, or it was cancelled.
    pub fn interest(
        &self,
        range: Dense,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<usize> {
        self.0.interest(range, progress, cancel)
    }

    /// All calls of the function that begins at an address, with their returns, in the total order.
    /// `filter`: threads, program image and instants (of the calls); its kinds do not matter.
    ///
    /// The first question about a function replays the threads that are asked about; what was found is
    /// kept, and saved beside the trace.
    ///
    /// ```no_run
    /// # use hindsight_timeline::{Cancel, Filter, Result, Timeline};
    /// fn count(t: &Timeline, function: u64) -> Result<usize> {
    ///     Ok(t.calls(function, &Filter::default(), &Cancel::new())?.len())
    /// }
    /// ```
    ///
    /// # Errors
    /// If the recording has no such thread or program image, a function is called more than 16 million times in a
    /// thread, a stream cannot be replayed, or it was cancelled.
    pub fn calls(&self, function: u64, filter: &Filter, cancel: &Cancel) -> Result<Vec<Call>> {
        calls::calls(&self.0, function, filter, cancel)
    }
}

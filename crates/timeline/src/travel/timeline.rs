//! An opened recording.

use crate::calls::{self, Call};
use crate::engine::interest::Dense;
use crate::engine::{Asking, Background, Depth, Engine, IndexStatus, Options, interest};
use crate::model::contents::*;
use crate::value;
use crate::{Cancel, Cursor, Position, Result, Runs, Walk};
use hindsight_trace::{Completeness, ModuleHash, Trace};
use std::path::Path;
use std::sync::Arc;

/// A recording, with all that was found out about it. It is cheap to clone, and threads may share it.
#[derive(Clone)]
pub struct Timeline(pub(crate) Arc<Engine>);

impl Timeline {
    /// Opens a trace file. It reads the headers of the chunks only. The rest is read when a question needs it.
    ///
    /// ```
    /// # let (_scene, trace) = hindsight_lab::example();
    /// use hindsight_timeline::{Options, Timeline};
    /// let t = Timeline::open(&trace, Options::default())?;
    /// # assert_eq!(t.processes()?.len(), 1);
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

    /// Opens a trace that is in memory, on any host. What questions find out is kept in memory as long as it is open, and never
    /// saved. Modules that the trace shares with other recordings are missing.
    ///
    /// # Errors
    /// As [`Timeline::open`].
    pub fn from_bytes(bytes: Vec<u8>, options: Options) -> Result<Timeline> {
        Ok(Timeline(Arc::new(Engine::from_bytes(bytes, options)?)))
    }

    /// Sets a callback for progress. A question may need a part of the index, and making that part takes time.
    /// Meanwhile `tell` gets the number of instructions played for all parts that questions needed. It gets `None` when
    /// a part is done. Any thread may call it. Only the first callback that is set counts.
    pub fn tell_progress(&self, tell: impl Fn(Option<u64>) + Send + Sync + 'static) {
        let _ = self.0.teller.set(Box::new(tell));
    }

    /// Makes the index while nobody asks, until the answer is dropped. Parts around the place where a cursor stands come
    /// first, then those before it. They are saved as [`Timeline::build_index`] saves them. The fine level is left to
    /// the questions that need it. What fails is met again by the question that needs it. Nothing is made of a program
    /// whose memory is so large that there is no room for a question beside it.
    pub fn index_in_background(&self) -> Background {
        self.0.in_background()
    }

    /// Says that a question is being answered, until the answer is dropped. [`Timeline::index_in_background`] pauses
    /// meanwhile.
    pub fn asking(&self) -> Asking<'_> {
        self.0.asking()
    }

    /// The path of the trace file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The trace itself.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Whether the recording was still being written when it was opened. What is known of it ends where it then ended.
    pub fn is_growing(&self) -> bool {
        self.0.trace.completeness() == Completeness::Growing
    }

    /// The same recording as it is now, if it was still being written when it was opened. Nothing is opened again: the file
    /// is read through the same descriptor. Positions, threads and program images keep their names. Cursors of this
    /// timeline stay with what it knows. The new one has no callback for progress.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn renewed(&self) -> Result<Timeline> {
        Ok(Timeline(Arc::new(self.0.renewed()?)))
    }

    /// A cursor at the first instruction of the first thread.
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

    /// The files that a program image had mapped, in the order of their first mappings.
    pub fn modules(&self, image: u32) -> Result<Vec<Module>> {
        self.0.modules(image)
    }

    /// What a program image has mapped at a position, in order of address.
    pub fn mappings(&self, image: u32, at: Position) -> Result<Vec<Mapping>> {
        self.0.mappings(image, at)
    }

    /// Whether the kernel cleared an address when it loaded a program, although the mapping's file has something else there: the rest
    /// of the page behind a writable segment. The mapping is one that is there when the program image begins.
    ///
    /// # Errors
    /// The file's recorded copy cannot be read.
    pub fn cleared(&self, mapping: &Mapping, address: u64) -> Result<bool> {
        value::cleared(&self.0, mapping, address)
    }

    /// How often the mappings of a program image have changed up to a position. Where two positions have the same number, they have
    /// the same mappings.
    pub fn mapping_changes(&self, image: u32, at: Position) -> Result<usize> {
        self.0.mapping_changes(image, at)
    }

    /// The content of a module.
    pub fn module_bytes(&self, hash: ModuleHash) -> Result<Vec<u8>> {
        Ok(self.0.trace.module_bytes(hash)?)
    }

    /// The events that `filter` lets through, in the total order.
    pub fn events(&self, filter: &Filter) -> Result<Vec<Happening>> {
        self.0.events(filter)
    }

    /// The segments of a thread, in order. Empty ones are left out.
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

    /// The thread that runs at a position, and how many instructions it has completed there.
    pub fn locate(&self, position: Position) -> Result<ThreadInstant> {
        self.0.locate(position)
    }

    /// The number of instructions that a thread has completed at a position of the total order. `None`: it has not
    /// begun.
    ///
    /// The thread may be in a segment that was opened before the position. Then the whole segment counts as completed.
    pub fn count_at(&self, thread: ThreadId, position: Position) -> Result<Option<u64>> {
        self.0.count_at(thread, position)
    }

    /// The same, where a system call counts only once it has returned. A thread that waits in the kernel then stands before its
    /// call, whose registers say what it waits for.
    pub fn returned_at(&self, thread: ThreadId, position: Position) -> Result<Option<u64>> {
        self.0.returned_at(thread, position)
    }

    /// Whether a thread has begun at a position and has not yet ended. A thread may wait in the kernel until its
    /// process ends. It has completed its last instruction then, but it lives: questions about deadlocks must see it.
    pub fn is_alive(&self, thread: ThreadId, position: Position) -> Result<bool> {
        self.0.is_alive(thread, position)
    }

    /// The first and the last position of the recording.
    pub fn range(&self) -> Result<(Position, Position)> {
        self.0.range()
    }

    /// Something that plays a thread instruction by instruction, with what these access.
    ///
    /// # Errors
    /// The recording has no such thread.
    pub fn walk(&self, thread: ThreadId, cancel: Cancel) -> Result<Walk> {
        Walk::new(&self.0, thread, cancel)
    }

    /// Something that plays a thread and tells which instructions it executes, many at once.
    ///
    /// # Errors
    /// The recording has no such thread.
    pub fn runs(&self, thread: ThreadId, cancel: Cancel) -> Result<Runs> {
        Runs::new(&self.0, thread, cancel)
    }

    /// What there is of the index.
    pub fn index_status(&self) -> IndexStatus {
        self.0.index_status()
    }

    /// Builds what is missing of the index and writes it beside the trace: the coarsest level of all parts, then what
    /// `depth` says. Several parts are built at the same time.
    /// `progress` gets the numbers of instructions done and to do. When it fails or is cancelled, the parts that were
    /// written stay and are used.
    ///
    /// A part for which the file has no room is no error. It is made again when a question needs it. Fewer parts are then
    /// present than there are, and [`IndexStatus::problem`] says why.
    pub fn build_index(
        &self,
        depth: Depth,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<IndexStatus> {
        self.0.build_index(depth, progress, cancel)
    }

    /// The shortest interval of a range of interest, in instructions. With shorter ones frames would cost more than
    /// steps gain.
    pub const SHORTEST_INTERVAL: u64 = interest::SHORTEST;

    /// Announces that somebody will look at a range of instants closely. The index gets more frames there. Steps back
    /// and seeks then replay no more than one short interval.
    ///
    /// The parts of the index that the range touches are made again and saved beside the trace. If they cannot be
    /// saved, they are used as long as the recording is open. Frames get rarer where the index would become too large.
    /// `progress` gets the numbers of instructions done and to do.
    ///
    /// Returns the number of parts that were made.
    ///
    /// # Errors
    /// - There is no instant in the range.
    /// - An index cannot be written, or would be too large.
    /// - A stream cannot be replayed.
    /// - It was cancelled.
    pub fn interest(
        &self,
        range: Dense,
        progress: &(dyn Fn(u64, u64) + Sync),
        cancel: &Cancel,
    ) -> Result<usize> {
        self.0.interest(range, progress, cancel)
    }

    /// All calls of the function that begins at an address, with their returns, in the total order. `filter` chooses
    /// threads, program image and instants of the calls. Its kinds do not matter.
    ///
    /// The first question about a function replays the threads in question. The answer is remembered and saved beside
    /// the trace.
    ///
    /// ```
    /// # use hindsight_timeline::{Cancel, Filter, Options, Result, Timeline};
    /// fn count(t: &Timeline, function: u64) -> Result<usize> {
    ///     Ok(t.calls(function, &Filter::default(), &Cancel::new())?.len())
    /// }
    /// # let (_scene, trace) = hindsight_lab::example();
    /// # let t = Timeline::open(&trace, Options::default())?;
    /// # // The recording begins there.
    /// # let first = t.cursor()?.registers()?.rip;
    /// # assert_eq!(count(&t, first)?, 1);
    /// # Ok::<(), hindsight_timeline::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The recording has no such thread or program image.
    /// - The function is called more than 16 million times in a thread.
    /// - A stream cannot be replayed.
    /// - It was cancelled.
    pub fn calls(&self, function: u64, filter: &Filter, cancel: &Cancel) -> Result<Vec<Call>> {
        calls::calls(&self.0, &[function], filter, cancel)
    }

    /// The same for several functions, which are looked for at once: that takes little longer than one. Each address may be named
    /// once.
    ///
    /// # Errors
    /// As [`Timeline::calls`].
    pub fn calls_of(
        &self,
        functions: &[u64],
        filter: &Filter,
        cancel: &Cancel,
    ) -> Result<Vec<Call>> {
        calls::calls(&self.0, functions, filter, cancel)
    }
}

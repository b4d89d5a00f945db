//! What is left of a recording, and what can be asked for while it goes on.

use crate::output::Output;
use hindsight_trace::{RingSnapshot, StreamEnd, StreamSummary, Summary, Totals};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Refusals that are kept, and memory for the mappings of them.
const MOST_REFUSALS: usize = 1000;
const REFUSAL_BYTES: usize = 64 << 20;

/// Part of a file that was mapped executable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    pub addr: u64,
    pub len: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub path: Vec<u8>,
}

impl MappedFile {
    /// About the memory that it takes where it is kept.
    pub(crate) fn memory(&self) -> usize {
        2 * size_of::<MappedFile>() + self.path.len()
    }
}

/// A process that the recorder could not go on with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub image: u32,
    pub pid: i32,
    pub tid: i32,
    pub message: String,
    /// Executable parts of files as the process had them mapped. Where two lie at one address, the
    /// last was there.
    pub maps: Vec<MappedFile>,
}

/// What became of a recording.
pub struct Collected<W: Write> {
    pub(crate) output: Option<Output<W>>,
    /// Of all streams that have ended, whether they could be written or not.
    pub(crate) totals: Totals,
    /// The end of the program's process that came last in the order of all threads, as far as its
    /// threads have said, and that place in the order.
    last: Option<(Option<u64>, StreamEnd)>,
    detached: bool,
    /// A process has given up rights that the user has, and nothing that was in its memory should be
    /// trusted more than it.
    pub unprivileged: bool,
    /// Processes that the recorder could not go on with.
    pub refusals: Vec<Refusal>,
    /// Why the trace is not whole, if it could not be written.
    pub error: Option<io::Error>,
}

impl<W: Write> Collected<W> {
    pub(crate) fn new(output: Output<W>) -> Collected<W> {
        Collected {
            output: Some(output),
            totals: Totals::default(),
            last: None,
            detached: false,
            unprivileged: false,
            refusals: Vec::new(),
            error: None,
        }
    }

    /// A stream has ended; `own`: it is of the process of the program.
    pub(crate) fn see(&mut self, s: &StreamSummary, own: bool) {
        self.totals.add(s);
        if let Some(end) = s.end.as_ref().filter(|_| own) {
            self.detached |= end.kind == "detached";
            let latest = self.last.as_ref().map(|(sequence, _)| *sequence);
            if latest.is_none_or(|l| l <= s.last_sequence) {
                self.last = Some((s.last_sequence, end.clone()));
            }
        }
    }

    /// Notes a refusal, if not too many have been noted.
    pub(crate) fn refuse(&mut self, mut refusal: Refusal) {
        let kept = self.refusals.iter().flat_map(|r| &r.maps);
        let memory: usize = kept.chain(&refusal.maps).map(MappedFile::memory).sum();
        if memory > REFUSAL_BYTES {
            refusal.maps.clear();
        }
        if self.refusals.len() < MOST_REFUSALS {
            self.refusals.push(refusal);
        }
    }

    /// How the process that was recorded first ended, as far as its threads have said.
    pub fn end(&self) -> Option<&StreamEnd> {
        self.last.as_ref().map(|(_, end)| end)
    }

    /// That process was left, and goes on unrecorded.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// Counts of all streams that have ended.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What a ring holds in the end; `None` if the recording was not circular.
    pub fn held(&self) -> Option<RingSnapshot> {
        match &self.output {
            Some(Output::Ring(r)) => Some(r.snapshot(Vec::new(), false)),
            _ => None,
        }
    }

    /// Ends the trace with `summary`, whose counts are filled in; returns the sink unless writing
    /// failed, and the summary as it is (or would be) in the trace.
    pub fn finish(&mut self, mut summary: Summary) -> (Option<W>, Summary) {
        summary.totals = self.totals;
        let Some(output) = self.output.take() else {
            return (None, summary);
        };
        match output.finish(summary.clone()) {
            Ok(done) => done,
            Err(e) => {
                self.error = Some(e);
                (None, summary)
            }
        }
    }
}

/// Asks a collector for what its ring holds while it goes on.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<mpsc::Sender<RingSnapshot>>>>);

impl Requests {
    /// The answer comes when the collector looks at the rings next (see [`Control::wake`]), and all threads have said where
    /// they stand. None comes if it holds no ring, or has ended; then nobody is left to send one.
    pub fn ask(&self) -> mpsc::Receiver<RingSnapshot> {
        let (answer, receiver) = mpsc::channel();
        self.lock().push(answer);
        receiver
    }

    /// Those who wait for an answer.
    pub(crate) fn take(&self) -> Vec<mpsc::Sender<RingSnapshot>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<mpsc::Sender<RingSnapshot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

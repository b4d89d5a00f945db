//! What is left of a recording, and what can be asked for while it goes on.

use crate::output::Output;
use hindsight_trace::{RingSnapshot, StreamEnd, StreamSummary, Summary, Totals};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// The most refusals that are kept.
const MOST_REFUSALS: usize = 1000;
/// The most bytes for the mappings in them.
const REFUSAL_BYTES: usize = 64 << 20;

/// A part of a file that was mapped executable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Offset of the part in the file.
    pub offset: u64,
    /// The file's path, as bytes.
    pub path: Vec<u8>,
}

impl MappedFile {
    /// About how many bytes it takes where it is kept.
    pub(crate) fn memory(&self) -> usize {
        2 * size_of::<MappedFile>() + self.path.len()
    }
}

/// A process with which the recorder could not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Its program image.
    pub image: u32,
    /// Its process id.
    pub pid: i32,
    /// The thread that had to stop.
    pub tid: i32,
    /// Why.
    pub message: String,
    /// Executable parts of files that the process had mapped. If two share an address, the later
    /// one counts there.
    pub maps: Vec<MappedFile>,
}

/// What became of a recording.
pub struct Collected<W: Write> {
    /// Where it goes. `None` if it cannot be written any more, or has been finished.
    pub(crate) output: Option<Output<W>>,
    /// Counts of all streams that have ended, whether they could be written or not.
    pub(crate) totals: Totals,
    /// The last end of a thread of the program's process, as far as its threads have said, with its
    /// order number.
    last: Option<(Option<u64>, StreamEnd)>,
    detached: bool,
    /// A process has given up rights that the user has. So nothing that was in its memory should be
    /// trusted more than that process.
    pub unprivileged: bool,
    /// Processes with which the recorder could not go on.
    pub refusals: Vec<Refusal>,
    /// Why the trace could not be written to its end.
    pub error: Option<io::Error>,
}

impl<W: Write> Collected<W> {
    /// Nothing has ended yet.
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

    /// Counts a stream that has ended. `own`: it belongs to the program's process.
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

    /// Notes a refusal, unless too many were noted.
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

    /// How the process that was recorded first has ended, as far as its threads have said.
    pub fn end(&self) -> Option<&StreamEnd> {
        self.last.as_ref().map(|(_, end)| end)
    }

    /// Whether that process was left, and goes on unrecorded.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// Counts of all streams that have ended.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What a ring holds in the end. `None` if the recording has no ring.
    pub fn held(&self) -> Option<RingSnapshot> {
        match &self.output {
            Some(Output::Ring(r)) => Some(r.snapshot(Vec::new(), false)),
            _ => None,
        }
    }

    /// Ends the trace with `summary`, and fills in its counts. Returns the sink, unless writing
    /// failed, and the summary as it is or would be in the trace.
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

/// Asks a collector for what its ring holds, while it goes on.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<mpsc::Sender<RingSnapshot>>>>);

impl Requests {
    /// The answer comes after the collector's next look at the rings (see [`crate::Control::wake`]), when
    /// all threads have said where they stand. If it has no ring, or has ended, none comes, and the
    /// sender is dropped.
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

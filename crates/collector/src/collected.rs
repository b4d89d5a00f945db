//! What is left of a recording, and what can be asked for while it goes on.

use crate::output::Output;
use hindsight_trace::{Snapshot, StreamSummary, Summary};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Part of a file that was mapped executable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    /// The program image that mapped it.
    pub image: u32,
    pub addr: u64,
    pub len: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub path: Vec<u8>,
}

/// A process that the recorder could not go on with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub image: u32,
    pub pid: i32,
    pub tid: i32,
    pub message: String,
}

/// What became of a recording.
pub struct Collected<W: Write> {
    pub(crate) output: Option<Output<W>>,
    /// Streams of a trace that could not be written to its end.
    pub(crate) streams: Vec<StreamSummary>,
    /// Locks on atomic operations that were taken from threads which had died.
    pub stolen_locks: u32,
    /// Executable parts of files as they were mapped, in order.
    pub maps: Vec<MappedFile>,
    /// Processes that the recorder could not go on with.
    pub refusals: Vec<Refusal>,
    /// Why the trace is not whole, if it could not be written.
    pub error: Option<io::Error>,
}

impl<W: Write> Collected<W> {
    pub(crate) fn new(output: Output<W>) -> Collected<W> {
        Collected {
            output: Some(output),
            streams: Vec::new(),
            stolen_locks: 0,
            maps: Vec::new(),
            refusals: Vec::new(),
            error: None,
        }
    }

    /// The streams and what is known of them, until the trace is finished. Empty for a ring.
    pub fn streams(&self) -> &[StreamSummary] {
        match &self.output {
            Some(Output::Trace { streams, .. }) => streams,
            _ => &self.streams,
        }
    }

    /// What a ring holds in the end; `None` if the recording was not circular.
    pub fn held(&self) -> Option<Snapshot> {
        match &self.output {
            Some(Output::Ring(r)) => Some(r.snapshot(Vec::new(), false)),
            _ => None,
        }
    }

    /// Ends the trace with `summary`, whose counts are filled in; returns the sink unless writing
    /// failed, and the summary as it is (or would be) in the trace.
    pub fn finish(&mut self, mut summary: Summary) -> (Option<W>, Summary) {
        summary.stolen_locks = self.stolen_locks;
        let Some(output) = self.output.take() else {
            summary.streams = std::mem::take(&mut self.streams);
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
pub struct Requests(Arc<Mutex<Vec<mpsc::Sender<Snapshot>>>>);

impl Requests {
    /// The answer comes when the collector looks at the rings next (see [`Control::wake`]);
    /// none if it holds no ring, or has ended.
    pub fn ask(&self) -> mpsc::Receiver<Snapshot> {
        let (answer, receiver) = mpsc::channel();
        self.lock().push(answer);
        receiver
    }

    /// Those who wait for an answer.
    pub(crate) fn take(&self) -> Vec<mpsc::Sender<Snapshot>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<mpsc::Sender<Snapshot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

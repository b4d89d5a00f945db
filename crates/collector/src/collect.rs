use crate::{Control, futex};
use hindsight_events::ring::{Consumer, RING_BYTES, RINGS, state};
use hindsight_events::{EndKind, Event};
use hindsight_trace::chunk::MAX_MODULE;
use hindsight_trace::columns::Content;
use hindsight_trace::meta::StreamSummary;
use hindsight_trace::{ChunkBuilder, Header, Pushed, StreamId, Summary, Text, Writer};
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// What has been gathered reaches the file after this time at the latest.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Longest time between looks at the rings: rings that fill quickly wake the collector by
/// themselves.
const NAP: Duration = Duration::from_millis(50);

/// First of these times. A program that has just begun loads its libraries, and taking those
/// into the trace should not be left for its end.
const FIRST_NAP: Duration = Duration::from_millis(1);

/// Bit of `prot` in [`Event::Map`].
const PROT_EXEC: u32 = 4;

/// Part of a file that was mapped executable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    pub addr: u64,
    pub len: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub path: Vec<u8>,
}

/// What became of a recording.
pub struct Collected<W: Write> {
    writer: Option<Writer<W>>,
    streams: Vec<StreamSummary>,
    /// Executable parts of files as they were mapped, in order.
    pub maps: Vec<MappedFile>,
    /// The last end that the recorder reported: kind, code and message.
    pub end: Option<(EndKind, u32, String)>,
    /// Why the trace is not whole, if it could not be written.
    pub error: Option<io::Error>,
}

impl<W: Write> Collected<W> {
    /// Ends the trace with `summary`, whose counts are filled in; returns the sink unless writing
    /// failed, and the summary as it is (or would be) in the trace.
    pub fn finish(&mut self, mut summary: Summary) -> (Option<W>, Summary) {
        summary.streams = std::mem::take(&mut self.streams);
        let Some(w) = self.writer.take() else {
            return (None, summary);
        };
        match w.finish(summary.clone()) {
            Ok((sink, summary)) => (Some(sink), summary),
            Err(e) => {
                self.error = Some(e);
                (None, summary)
            }
        }
    }
}

/// One ring's way into the trace.
struct Lane {
    consumer: Consumer,
    /// Drained and not yet a whole event.
    pending: Vec<u8>,
    builder: ChunkBuilder,
    stream: Option<StreamId>,
    oldest: Instant,
    broken: bool,
}

/// Moves events from the rings to a trace.
pub struct Collector<'c, W: Write> {
    control: &'c Control,
    lanes: Vec<Lane>,
    next_stream: StreamId,
    paths: HashSet<Vec<u8>>,
    out: Collected<W>,
    tell: Box<dyn Fn(&str) + Send + 'c>,
}

impl<'c, W: Write> Collector<'c, W> {
    /// Begins a trace with `header`. `tell` shows a message to the user.
    pub fn new(
        control: &'c Control,
        sink: W,
        header: &Header,
        tell: impl Fn(&str) + Send + 'c,
    ) -> io::Result<Collector<'c, W>> {
        let now = Instant::now();
        let lane = |consumer| Lane {
            consumer,
            pending: Vec::new(),
            builder: ChunkBuilder::default(),
            stream: None,
            oldest: now,
            broken: false,
        };
        Ok(Collector {
            control,
            lanes: control.consumers().into_iter().map(lane).collect(),
            next_stream: 1,
            paths: HashSet::new(),
            out: Collected {
                writer: Some(Writer::new(sink, header)?),
                streams: Vec::new(),
                maps: Vec::new(),
                end: None,
                error: None,
            },
            tell: Box::new(tell),
        })
    }

    /// Collects until `ended` is set (by whoever saw the recorded process end, who then calls
    /// [`Control::wake`]), then what is left in the rings.
    pub fn run(mut self, ended: &AtomicBool) -> Collected<W> {
        let header = self.control.header();
        let mut nap = FIRST_NAP;
        loop {
            // Before the drain: what the process wrote before it ended is then seen.
            let last = ended.load(Acquire);
            let seen = header.wake.load(Acquire);
            header.sleeping.store(0, Relaxed);
            let mut busiest = 0;
            for i in 0..RINGS {
                busiest = busiest.max(self.drain(i));
            }
            if last {
                break;
            }
            let now = Instant::now();
            for i in 0..RINGS {
                let l = &self.lanes[i];
                if l.builder.events() > 0 && now - l.oldest >= FLUSH_AFTER {
                    self.write(i);
                }
            }
            // A ring this full has more by now.
            if busiest >= RING_BYTES / 4 {
                continue;
            }
            header.sleeping.store(1, SeqCst);
            futex::wait(&header.wake, seen, nap);
            nap = (nap * 9 / 8).min(NAP);
        }
        for i in 0..RINGS {
            self.close(i);
        }
        self.out.streams.sort_by_key(|s| s.stream);
        self.out
    }

    /// Empties ring `i`; the number of bytes.
    fn drain(&mut self, i: usize) -> usize {
        let lane = &mut self.lanes[i];
        let life = lane.consumer.ctl().state.load(Acquire);
        if lane.stream.is_none() {
            let ctl = lane.consumer.ctl();
            if life == state::FREE && ctl.head.load(Acquire) == ctl.tail.load(Relaxed) {
                return 0;
            }
            lane.stream = Some(if i == 0 {
                0
            } else {
                self.next_stream += 1;
                self.next_stream - 1
            });
        }
        let discard = lane.broken;
        let pending = &mut lane.pending;
        let n = lane.consumer.drain(|bytes| {
            if !discard {
                pending.extend_from_slice(bytes);
            }
        });
        let ctl = lane.consumer.ctl();
        if ctl.waiting.load(SeqCst) != 0 {
            ctl.space.fetch_add(1, Release);
            futex::wake(&ctl.space);
        }
        match n {
            None => self.damaged(i),
            Some(0) => {}
            Some(_) => self.cut(i),
        }
        if life == state::ENDED && i != 0 {
            self.close(i);
            self.lanes[i]
                .consumer
                .ctl()
                .state
                .store(state::FREE, Release);
        }
        n.unwrap_or(0)
    }

    /// Makes chunks of whole events.
    fn cut(&mut self, i: usize) {
        let mut at = 0;
        loop {
            let lane = &mut self.lanes[i];
            if lane.builder.events() == 0 {
                lane.oldest = Instant::now();
            }
            let mut mapped = Vec::new();
            let end = &mut self.out.end;
            let (n, pushed) = lane.builder.push(&lane.pending[at..], |_, e| match *e {
                Event::Map {
                    addr,
                    len,
                    prot,
                    offset,
                    path,
                    ..
                } if prot & PROT_EXEC != 0 && path.starts_with(b"/") => {
                    mapped.push(MappedFile {
                        addr,
                        len,
                        offset,
                        path: path.to_vec(),
                    });
                }
                Event::End {
                    kind,
                    code,
                    message,
                } => {
                    *end = Some((kind, code, String::from_utf8_lossy(message).into_owned()));
                }
                _ => {}
            });
            at += n;
            for m in mapped {
                self.module(m.path.clone());
                self.out.maps.push(m);
            }
            match pushed {
                Pushed::More => break,
                Pushed::Full => self.write(i),
                Pushed::Bad => {
                    self.damaged(i);
                    break;
                }
            }
        }
        self.lanes[i].pending.drain(..at);
    }

    fn damaged(&mut self, i: usize) {
        let lane = &mut self.lanes[i];
        if !lane.broken {
            lane.broken = true;
            (self.tell)(
                "the program overwrote the recorder's memory; the recording of this thread ends here",
            );
        }
        // Indices that make no sense: let the producer believe that all is read.
        let ctl = lane.consumer.ctl();
        ctl.tail.store(ctl.head.load(Acquire), Release);
    }

    fn write(&mut self, i: usize) {
        if i != 0 {
            // A trace that is cut behind this chunk then holds all code that the chunk runs.
            self.drain(0);
            self.write(0);
        }
        let lane = &mut self.lanes[i];
        let stream = lane.stream.unwrap_or(0);
        match &mut self.out.writer {
            Some(w) => {
                if let Err(e) = w.stream(stream, &mut lane.builder) {
                    self.fail(e);
                }
            }
            // Still cut into events, since the last one tells how the program ended.
            None => lane.builder.take(&mut Content::default()),
        }
    }

    /// Takes an executable file into the trace.
    fn module(&mut self, path: Vec<u8>) {
        let Some(w) = &mut self.out.writer else {
            return;
        };
        if self.paths.contains(&path) {
            return;
        }
        // A file that is gone or not ours to read is not an error: the code that ran is in the
        // streams, only names for it are missing.
        if let Some(content) = read_module(&path)
            && let Err(e) = w.module(Text::from(&path[..]), &content)
        {
            self.fail(e);
        }
        self.paths.insert(path);
    }

    fn fail(&mut self, e: io::Error) {
        self.control
            .header()
            .failed
            .store(e.raw_os_error().unwrap_or(libc::EIO) as u32, Release);
        (self.tell)(&format!(
            "the trace cannot be written any more: {e}. The program goes on, unrecorded; \
             what was written stays readable"
        ));
        // Its counts describe what is in the file; they are lost with the summary.
        self.out.writer = None;
        self.out.error = Some(e);
    }

    /// Ends the stream of ring `i`.
    fn close(&mut self, i: usize) {
        if self.lanes[i].stream.is_none() {
            return;
        }
        self.write(i);
        let lane = &mut self.lanes[i];
        let Some(stream) = lane.stream.take() else {
            return;
        };
        let builder = std::mem::take(&mut lane.builder);
        lane.pending.clear();
        lane.broken = false;
        let ctl = lane.consumer.ctl();
        self.out.streams.push(StreamSummary {
            stream,
            tid: ctl.tid.load(Relaxed),
            instructions: ctl.position.load(Relaxed).max(builder.position()),
            unpredicted_reads: ctl.surprises.load(Relaxed),
            translated: ctl.translated.load(Relaxed),
            cache_flushes: ctl.flushes.load(Relaxed),
            exits: ctl.exits.iter().map(|e| e.load(Relaxed)).collect(),
            ..StreamSummary::default()
        });
    }
}

fn read_module(path: &[u8]) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(path);
    let m = std::fs::metadata(path).ok()?;
    if !m.is_file() || m.len() > MAX_MODULE {
        return None;
    }
    std::fs::read(path).ok()
}

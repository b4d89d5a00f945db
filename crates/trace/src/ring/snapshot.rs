//! What a ring holds at one moment, and how that becomes a trace.

use super::{Held, Module, Ring};
use crate::files::Files;
use crate::meta::Circular;
use crate::pack::Packer;
use crate::{Header, StreamInfo, StreamKind, StreamSummary, Summary, Taken, Writer};
use std::io::{self, Write};
use std::sync::Arc;

impl Ring {
    /// What is held now. The copy stays as it is while the ring continues. `live` has the counts of streams
    /// that have not ended. `running` says that the recording continues.
    pub fn snapshot(&self, live: Vec<StreamSummary>, running: bool) -> RingSnapshot {
        let mut circular = Circular {
            running,
            ..self.gone.clone()
        };
        let mut summaries = Vec::new();
        let mut streams = Vec::new();
        for (id, s) in &self.streams {
            if s.is_thread() {
                circular.instructions += s.dropped.instructions;
                circular.bytes += s.dropped.bytes;
            }
            let counts = s.ended.as_ref();
            let counts = counts.or_else(|| live.iter().find(|l| l.stream == *id));
            let counts = counts.cloned().unwrap_or(StreamSummary {
                stream: *id,
                tid: s.info.tid,
                ..StreamSummary::default()
            });
            summaries.push(s.summary(counts));
            let info = StreamInfo {
                dropped: (s.dropped.chunks > 0).then_some(s.dropped),
                ..s.info.clone()
            };
            streams.push((info, s.chunks.iter().cloned().collect()));
        }
        RingSnapshot {
            header: Header {
                ring: Some(circular),
                ..self.header.clone()
            },
            streams,
            modules: self.modules.clone(),
            taken: self.taken.clone(),
            summaries,
        }
    }
}

/// What a ring held at one moment.
pub struct RingSnapshot {
    header: Header,
    streams: Vec<(StreamInfo, Vec<Arc<Held>>)>,
    modules: Vec<Module>,
    taken: Vec<Taken>,
    summaries: Vec<StreamSummary>,
}

impl RingSnapshot {
    /// Instructions of all threads, including dropped ones.
    pub fn instructions(&self) -> u64 {
        let kept: u64 = self.summaries.iter().map(|s| s.instructions).sum();
        kept + self.header.ring.as_ref().map_or(0, |r| r.instructions)
    }

    /// Writes it as a trace that ends with `summary`, and fills in the summary's counts. `files`: the folder
    /// with which the content of modules is shared.
    ///
    /// # Errors
    /// `out` fails, or a piece that is held in a file cannot be read.
    pub fn write<W: Write>(
        &self,
        out: W,
        files: Option<Files>,
        summary: Summary,
    ) -> io::Result<(W, Summary)> {
        let mut w = Writer::new(out, &self.header)?;
        files.into_iter().for_each(|f| w.share(f));
        let mut chunks: Vec<&Held> = Vec::new();
        for (info, held) in &self.streams {
            w.begin(info)?;
            if info.kind == StreamKind::Thread {
                chunks.extend(held.iter().map(|c| &**c));
            } else {
                for (i, c) in held.iter().enumerate() {
                    c.write(i as u32, &mut w)?;
                }
            }
        }
        for m in &self.modules {
            let pieces = |_: &mut Packer, add: &mut dyn FnMut(&_, &[u8]) -> io::Result<()>| {
                let mut all = m.pieces.iter();
                all.try_for_each(|p| add(&p.header, &p.payload()?))
            };
            w.take(&m.info, || m.pages.to_vec(), pieces)?;
        }
        self.taken.iter().try_for_each(|t| w.taken(t))?;
        // Chunks are written in the order in which they came. So a trace that is cut has the same time of all
        // threads.
        chunks.sort_by_key(|c| c.serial);
        for c in chunks {
            c.write(w.totals(c.header.stream).chunks, &mut w)?;
        }
        for s in &self.summaries {
            w.end(s.clone())?;
        }
        w.finish(summary)
    }
}

use crate::chunk::{ChunkHeader, Codec, Kind};
use crate::columns::ChunkBuilder;
use crate::files::{self, Files, State};
use crate::pack::{self, Packer};
use crate::repeat::Repeats;
use crate::{
    Header, ModuleHash, ModuleInfo, StreamId, StreamInfo, StreamSummary, Summary, Taken, Text,
    Totals,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use xxhash_rust::xxh3::xxh3_64;

/// How much of one stream was written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StreamTotals {
    /// Number of chunks of events.
    pub chunks: u32,
    /// Number of events.
    pub events: u64,
    /// Bytes of the events before compression.
    pub raw_bytes: u64,
    /// Bytes of the chunks in the file.
    pub stored_bytes: u64,
    /// Position of the last event.
    pub last_pos: u64,
}

/// Writes a trace from front to end; the sink needs no seeking. After an error, stop writing: a chunk may be
/// cut. The writer forgets streams that ended.
pub struct Writer<W: Write> {
    out: W,
    packer: Packer,
    repeats: Repeats,
    /// The streams that have not ended.
    streams: BTreeMap<StreamId, StreamTotals>,
    totals: Totals,
    modules: u32,
    /// Contents that are in the trace (`false`) or to which it refers (`true`).
    known: HashMap<ModuleHash, bool>,
    /// Where contents are that recordings share.
    files: Option<Files>,
    /// Where packed contents may be that the trace takes a copy of.
    packed: Option<Files>,
    module_bytes: u64,
    shared_bytes: u64,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace and writes its header.
    ///
    /// # Errors
    /// The sink fails, or there is no memory for compression.
    pub fn new(out: W, header: &Header) -> io::Result<Writer<W>> {
        let mut w = Writer {
            out,
            packer: Packer::new()?,
            repeats: Repeats::new(),
            streams: BTreeMap::new(),
            totals: Totals::default(),
            modules: 0,
            known: HashMap::new(),
            files: None,
            packed: None,
            module_bytes: 0,
            shared_bytes: 0,
            written: 0,
        };
        w.chunk(
            ChunkHeader::blank(Kind::Header),
            &serde_json::to_vec(header)?,
        )?;
        w.out.flush()?;
        Ok(w)
    }

    /// From here on, shares the content of modules with other recordings through `files`.
    pub fn share(&mut self, files: Files) {
        self.files = Some(files);
    }

    /// From here on, copies the content of modules from `files` where it is there. It is packed already
    /// then. The trace has it itself all the same.
    pub fn copy_from(&mut self, files: Files) {
        self.packed = Some(files);
    }

    /// Describes a stream. To be called before its first events.
    ///
    /// # Errors
    /// The sink fails.
    pub fn begin(&mut self, info: &StreamInfo) -> io::Result<()> {
        let header = ChunkHeader {
            stream: info.stream,
            ..ChunkHeader::blank(Kind::Begin)
        };
        self.streams.insert(info.stream, StreamTotals::default());
        self.chunk(header, &serde_json::to_vec(info)?)
    }

    /// Ends a stream. The writer fills in the sizes that it knows.
    ///
    /// # Errors
    /// The sink fails.
    pub fn end(&mut self, mut s: StreamSummary) -> io::Result<()> {
        let t = self.streams.remove(&s.stream).unwrap_or_default();
        s.chunks = t.chunks as u64;
        s.events = t.events;
        s.raw_bytes = t.raw_bytes;
        s.stored_bytes = t.stored_bytes;
        self.totals.add(&s);
        let header = ChunkHeader {
            stream: s.stream,
            sequence: t.chunks,
            ..ChunkHeader::blank(Kind::End)
        };
        self.chunk(header, &serde_json::to_vec(&s)?)
    }

    /// Writes the events that `b` has gathered as a chunk of `stream`. Writes nothing if there are none.
    ///
    /// # Errors
    /// The sink fails, or the events cannot be compressed.
    pub fn stream(&mut self, stream: StreamId, b: &mut ChunkBuilder) -> io::Result<()> {
        if b.events() == 0 {
            return Ok(());
        }
        let sequence = self.totals(stream).chunks;
        let (out, written) = (&mut self.out, &mut self.written);
        let repeats = Some(&mut self.repeats);
        let header = self
            .packer
            .events(stream, sequence, b, repeats, |h, stored| {
                append(out, written, &h, stored)?;
                Ok(h)
            })?;
        self.count(&header);
        Ok(())
    }

    /// Appends a chunk that was packed before.
    pub(crate) fn packed(&mut self, h: &ChunkHeader, stored: &[u8]) -> io::Result<()> {
        append(&mut self.out, &mut self.written, h, stored)?;
        if h.kind == Kind::Stream {
            self.count(h);
        }
        Ok(())
    }

    /// Packs a chunk of events again, with all of its content.
    pub(crate) fn again(&mut self, h: &ChunkHeader, raw: &[u8]) -> io::Result<()> {
        let (out, written) = (&mut self.out, &mut self.written);
        // The packer says so if it compresses.
        let codec = Codec::Plain;
        let header = self
            .packer
            .chunk(ChunkHeader { codec, ..*h }, raw, |h, stored| {
                append(out, written, &h, stored)?;
                Ok(h)
            })?;
        self.count(&header);
        Ok(())
    }

    fn count(&mut self, h: &ChunkHeader) {
        let totals = self.streams.entry(h.stream).or_default();
        totals.chunks += 1;
        totals.events += h.events as u64;
        totals.raw_bytes += h.raw_len as u64;
        totals.stored_bytes += frame_len(h);
        totals.last_pos = h.last_pos;
    }

    /// Writes that the program uses the file `path`, and the file's content unless that is known already.
    /// Returns the content's name.
    ///
    /// # Errors
    /// The sink fails. Failures to share the content are not errors: the trace then has the content itself.
    pub fn module(&mut self, path: Text, content: &[u8]) -> io::Result<ModuleHash> {
        let info = ModuleInfo {
            path,
            hash: ModuleHash::of(content),
            size: content.len() as u64,
            shared: false,
        };
        let pages = || files::pages(content);
        self.take(&info, pages, |packer, add| {
            pack::pieces(content)
                .try_for_each(|(h, piece)| packer.chunk(h, piece, |h, b| add(&h, b)))
        })?;
        Ok(info.hash)
    }

    /// Writes that the program uses the file `path`, which is in this state. Works only if recordings share
    /// its content, or this one can copy it; otherwise returns `None`. Returns the names of the content and of
    /// its pages.
    ///
    /// # Errors
    /// The sink fails.
    pub fn known_module(
        &mut self,
        path: Text,
        state: &State,
    ) -> io::Result<Option<(ModuleHash, Vec<ModuleHash>)>> {
        let files = self.files.as_ref().or(self.packed.as_ref());
        let Some((hash, pages)) = files.and_then(|f| f.known(state)) else {
            return Ok(None);
        };
        let info = ModuleInfo {
            path,
            hash,
            size: state.size,
            shared: false,
        };
        let has = self.known.get(&hash) == Some(&false);
        let done = match (&self.files, has) {
            (Some(_), true) => false,
            (Some(_), false) => self.refer(&info)?,
            (None, true) => self.describe(&info).map(|()| true)?,
            (None, false) => self.copy(&info)?,
        };
        Ok(done.then_some((hash, pages)))
    }

    /// Remembers for other recordings that a file in this state has this content, if the content is shared.
    pub fn note_module(&self, state: &State, hash: ModuleHash) {
        if let Some(files) = self
            .files
            .as_ref()
            .filter(|_| self.known.get(&hash) == Some(&true))
        {
            files.note_down(state, hash);
        }
    }

    /// Writes that the program uses the file `info`. If the content is not known, `pieces` hands it over in
    /// packed chunks. `pieces` may be called twice.
    pub(crate) fn take(
        &mut self,
        info: &ModuleInfo,
        pages: impl FnOnce() -> Vec<ModuleHash>,
        pieces: impl Fn(
            &mut Packer,
            &mut dyn FnMut(&ChunkHeader, &[u8]) -> io::Result<()>,
        ) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.known.get(&info.hash) == Some(&false) {
            return self.describe(info);
        }
        if self.refer(info)? {
            return Ok(());
        }
        if let Some(files) = &self.files
            && files.put(&mut self.packer, info, &pages(), &pieces).is_ok()
            && self.refer(info)?
        {
            return Ok(());
        }
        match self.copy(info)? {
            true => Ok(()),
            false => self.embed(info, pieces),
        }
    }

    /// Writes a file's description, and its content in packed chunks.
    fn embed(
        &mut self,
        info: &ModuleInfo,
        pieces: impl FnOnce(
            &mut Packer,
            &mut dyn FnMut(&ChunkHeader, &[u8]) -> io::Result<()>,
        ) -> io::Result<()>,
    ) -> io::Result<()> {
        self.describe(info)?;
        self.known.insert(info.hash, false);
        let (out, written) = (&mut self.out, &mut self.written);
        let before = *written;
        pieces(&mut self.packer, &mut |h, stored| {
            append(out, written, h, stored)
        })?;
        self.module_bytes += self.written - before;
        Ok(())
    }

    /// Writes a file with a copy of its packed content. `false` if there is none, or it is damaged.
    fn copy(&mut self, info: &ModuleInfo) -> io::Result<bool> {
        let Some(stored) = self.packed.as_ref().and_then(|f| f.get(info.hash)) else {
            return Ok(false);
        };
        // All of it is read before anything is written, since nothing can be taken back.
        let pieces: Result<Vec<_>, _> = stored.packed().collect();
        let whole = |p: &Vec<(ChunkHeader, Vec<u8>)>| {
            let size: u64 = p.iter().map(|(h, _)| h.raw_len as u64).sum();
            size == info.size && p.iter().all(|(h, b)| xxh3_64(b) == h.checksum)
        };
        let Some(pieces) = pieces.ok().filter(whole) else {
            return Ok(false);
        };
        self.embed(info, |_, add| {
            pieces.iter().try_for_each(|(h, stored)| add(h, stored))
        })?;
        Ok(true)
    }

    /// Writes that the program uses a file whose content recordings share. `false` if the folder does not
    /// have it.
    fn refer(&mut self, info: &ModuleInfo) -> io::Result<bool> {
        // The lock is held until the description is written, so nobody can delete the file before.
        let files = self.files.take();
        let found = files
            .as_ref()
            .and_then(|f| f.share().and_then(|lock| Some((lock, f.get(info.hash)?))));
        let mut done = Ok(false);
        if let Some((_lock, stored)) = &found {
            let shared = ModuleInfo {
                shared: true,
                ..info.clone()
            };
            done = self
                .describe(&shared)
                .and_then(|()| self.out.flush())
                .map(|()| true);
            if self.known.insert(info.hash, true).is_none() {
                self.shared_bytes += stored.bytes();
            }
        }
        drop(found);
        self.files = files;
        done
    }

    /// Writes that a lock for atomic operations was taken from its thread.
    ///
    /// # Errors
    /// The sink fails.
    pub fn taken(&mut self, taken: &Taken) -> io::Result<()> {
        self.chunk(ChunkHeader::blank(Kind::Taken), &serde_json::to_vec(taken)?)
    }

    /// Writes the description of a module.
    fn describe(&mut self, info: &ModuleInfo) -> io::Result<()> {
        let before = self.written;
        let header = ChunkHeader {
            sequence: self.modules,
            ..ChunkHeader::blank(Kind::Module)
        };
        self.chunk(header, &serde_json::to_vec(info)?)?;
        self.modules += 1;
        self.module_bytes += self.written - before;
        Ok(())
    }

    /// Ends the trace, and the streams that have not ended. The writer fills in the sizes and totals that it
    /// knows.
    ///
    /// # Errors
    /// The sink fails.
    pub fn finish(mut self, mut summary: Summary) -> io::Result<(W, Summary)> {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            self.end(StreamSummary {
                stream,
                ..StreamSummary::default()
            })?;
        }
        summary.totals = self.totals;
        summary.module_bytes = self.module_bytes;
        summary.shared_bytes = self.shared_bytes;
        summary.trace_bytes = self.written;
        self.chunk(
            ChunkHeader::blank(Kind::Summary),
            &serde_json::to_vec(&summary)?,
        )?;
        self.out.flush()?;
        Ok((self.out, summary))
    }

    /// Flushes the sink.
    ///
    /// # Errors
    /// The sink fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How much of `stream` was written. Zero if it has ended.
    pub fn totals(&self, stream: StreamId) -> StreamTotals {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    fn chunk(&mut self, h: ChunkHeader, raw: &[u8]) -> io::Result<()> {
        let (out, written) = (&mut self.out, &mut self.written);
        self.packer
            .chunk(h, raw, |h, stored| append(out, written, &h, stored))
    }
}

/// Writes a chunk and counts its bytes.
pub(crate) fn append(
    out: &mut impl Write,
    written: &mut u64,
    h: &ChunkHeader,
    stored: &[u8],
) -> io::Result<()> {
    out.write_all(&h.to_bytes())?;
    out.write_all(stored)?;
    *written += frame_len(h);
    Ok(())
}

/// Bytes of a chunk in the file.
fn frame_len(h: &ChunkHeader) -> u64 {
    crate::chunk::HEADER_LEN as u64 + h.stored_len as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;
    use crate::chunk::HEADER_LEN;

    #[test]
    fn what_is_packed_again_copies_nothing() {
        let mut random = 1u64;
        let mut byte = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 56) as u8
        };
        // One compresses, the other does not.
        for raw in [vec![7; 5000], (0..5000).map(|_| byte()).collect()] {
            let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
            w.begin(&StreamInfo {
                stream: 1,
                ..StreamInfo::default()
            })
            .unwrap();
            let header = ChunkHeader {
                codec: Codec::Copies,
                stream: 1,
                events: 1,
                ..ChunkHeader::blank(Kind::Stream)
            };
            w.again(&header, &raw).unwrap();
            let bytes = w.finish(Summary::default()).unwrap().0;
            let at = Trace::from_bytes(bytes.clone()).unwrap().chunks(1)[0].offset;
            let rest = &bytes[at as usize..];
            let h = ChunkHeader::from_bytes(rest.first_chunk().unwrap(), at).unwrap();
            let stored = rest[HEADER_LEN..][..h.stored_len as usize].to_vec();
            assert!(crate::chunk::unpack(&h, at, stored).unwrap() == raw);
        }
    }
}

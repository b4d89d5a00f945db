//! The content of modules. It is in the trace or in files beside it.

use super::Trace;
use crate::chunk::{ChunkHeader, MAX_MODULE};
use crate::files::Stored;
use crate::{Error, ModuleHash, ModuleInfo, Text};
use hindsight_guard::{outside, regular};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How many bytes of unpacked pieces are cached. A piece has one MiB.
const KEPT: usize = 64 << 20;

/// A module is unpacked as a whole only up to this size plus [`PER_BYTE`] for each stored byte. Programs and
/// libraries compress to a third. Files that compress far better, for example to nothing but zeros, are only
/// read in parts.
const WHOLE: u64 = 256 << 20;
const PER_BYTE: u64 = 32;

/// Where a piece is: its file beside the trace, or `None` for the trace, and its offset.
type At = (Option<ModuleHash>, u64);

/// The parts of modules that were read.
#[derive(Default)]
pub struct Contents {
    /// The folder of the files to which the trace refers.
    pub folder: PathBuf,
    opened: Mutex<HashMap<ModuleHash, Arc<Stored>>>,
    /// The pieces that were read last.
    kept: Mutex<VecDeque<(At, Arc<Vec<u8>>)>>,
    /// For unreadable modules: the same content from a file of this machine, if there is one.
    instead: Mutex<HashMap<ModuleHash, Option<Instead>>>,
}

/// The content of a module from a file of this machine.
#[derive(Clone)]
struct Instead {
    bytes: Arc<Vec<u8>>,
    /// Path of that file, and why it is needed.
    path: Text,
    why: String,
}

/// Where the content of a module is.
enum Source<'t> {
    Trace(&'t [(u64, ChunkHeader)]),
    File(Arc<Stored>),
}

impl Source<'_> {
    fn pieces(&self) -> &[(u64, ChunkHeader)] {
        match self {
            Source::Trace(pieces) => pieces,
            Source::File(stored) => stored.pieces(),
        }
    }
}

impl Trace {
    /// The files that the program mapped executable, or that were in its memory.
    pub fn modules(&self) -> &[ModuleInfo] {
        &self.modules
    }

    /// Size of the files beside the trace to which it refers, in bytes. Each file is counted once.
    ///
    /// # Errors
    /// One of the files is missing or damaged.
    pub fn shared_bytes(&self) -> Result<u64, Error> {
        let mut seen = std::collections::HashSet::new();
        let mut sum = 0;
        for m in self.modules.iter().filter(|m| m.shared) {
            if seen.insert(m.hash) {
                sum += self.stored(m)?.bytes();
            }
        }
        Ok(sum)
    }

    /// The content of a module. If the recorded content is damaged or missing, the file of this machine from
    /// which it was taken serves. That file must still have the same content.
    ///
    /// # Errors
    /// The content is not to be had, or would take far more memory than its data in the trace.
    pub fn module_bytes(&self, hash: ModuleHash) -> Result<Vec<u8>, Error> {
        let info = self.modules.iter().find(|m| m.hash == hash);
        let info = info.ok_or(Error::NoModule(hash))?;
        if let Ok(source) = self.source(info) {
            let stored = source.pieces().iter().map(|(_, h)| h.stored_len as u64);
            if info.size > WHOLE + PER_BYTE * stored.sum::<u64>() {
                return Err(Error::Inflated(info.path.to_string()));
            }
        }
        match self.recorded_bytes(info) {
            Ok(bytes) => Ok(bytes),
            Err(e) => Ok(self.instead(info, e)?.bytes.to_vec()),
        }
    }

    /// Checks that all of a module can be read and has the content that its name says. A file of this machine
    /// with that content also counts.
    ///
    /// # Errors
    /// A part is missing or damaged, and this machine has no file with the same content.
    pub fn check_module(&self, hash: ModuleHash) -> Result<(), Error> {
        let info = self.modules.iter().find(|m| m.hash == hash);
        let info = info.ok_or(Error::NoModule(hash))?;
        self.each_piece(info, &mut |_| ())
            .or_else(|e| self.instead(info, e).map(|_| ()))
    }

    fn recorded_bytes(&self, info: &ModuleInfo) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        self.each_piece(info, &mut |piece| out.extend_from_slice(piece))?;
        Ok(out)
    }

    /// Passes the recorded pieces of a module to `show`. Checks that they are complete and match the module's
    /// name.
    fn each_piece(&self, info: &ModuleInfo, show: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let source = self.source(info)?;
        let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
        let mut len = 0;
        for (offset, h) in source.pieces() {
            let end = len + h.raw_len as u64;
            if h.first_pos != len || end > info.size.min(MAX_MODULE) {
                return Err(self.not_whole(info, &source));
            }
            let mut one = |piece: &[u8]| {
                hash.update(piece);
                show(piece);
            };
            match &source {
                Source::Trace(_) => one(&self.payload(*offset, h)?),
                Source::File(_) => one(&self.piece(info, &source, *offset, h)?),
            }
            len = end;
        }
        if ModuleHash(hash.digest128().to_be_bytes()) != info.hash {
            return Err(self.not_whole(info, &source));
        }
        Ok(())
    }

    /// Reads `len` bytes from `offset` of module number `module` (in the order of [`Trace::modules`]). Bytes
    /// behind the module's end are zero. Only the pieces that are read are checked. Damaged or missing ones
    /// come from this machine, as in [`Trace::module_bytes`].
    ///
    /// # Errors
    /// There is no such module, or its content is not to be had.
    pub fn module_part(&self, module: u32, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let unknown = Error::Damaged {
            offset: 0,
            what: "code refers to a module that is not in the trace",
        };
        let info = self.modules.get(module as usize).ok_or(unknown)?;
        self.recorded_part(info, offset, len).or_else(|e| {
            let bytes = self.instead(info, e)?.bytes;
            let from = usize::try_from(offset).ok();
            let rest = from.and_then(|from| bytes.get(from..)).unwrap_or(&[]);
            let mut out = rest[..rest.len().min(len)].to_vec();
            out.resize(len, 0);
            Ok(out)
        })
    }

    fn recorded_part(&self, info: &ModuleInfo, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let source = self.source(info)?;
        let pieces = source.pieces();
        let mut out = vec![0; len];
        let end = offset.saturating_add(len as u64).min(info.size);
        let mut at = offset;
        while at < end {
            let i = pieces.partition_point(|(_, h)| h.first_pos <= at);
            let Some((place, h)) = i.checked_sub(1).and_then(|i| pieces.get(i)) else {
                return Err(self.not_whole(info, &source));
            };
            let piece = self.piece(info, &source, *place, h)?;
            let Some(within) = usize::try_from(at - h.first_pos)
                .ok()
                .filter(|within| *within < piece.len())
            else {
                return Err(self.not_whole(info, &source));
            };
            // At most `len` bytes are left.
            let n = (piece.len() - within).min((end - at) as usize);
            let to = (at - offset) as usize;
            out[to..to + n].copy_from_slice(&piece[within..within + n]);
            at += n as u64;
        }
        Ok(out)
    }

    /// The modules that came from files of this machine so far: each path, and what is wrong with the
    /// recorded content.
    pub fn modules_from_machine(&self) -> Vec<(Text, String)> {
        let instead = self.contents.instead.lock();
        let instead = instead.unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = (instead.values().flatten())
            .map(|i| (i.path.clone(), i.why.clone()))
            .collect();
        all.sort_by_key(|i| i.0.to_string());
        all
    }

    /// The content from a file of this machine for a module that cannot be read. The error is `why` if there
    /// is none.
    fn instead(&self, info: &ModuleInfo, why: Error) -> Result<Instead, Error> {
        let mut instead = self
            .contents
            .instead
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = instead.entry(info.hash).or_insert_with(|| {
            // The same content may have been mapped from several paths.
            let mut all = self.modules.iter().filter(|m| m.hash == info.hash);
            let (path, bytes) = all.find_map(|m| Some((&m.path, from_machine(m)?)))?;
            Some(Instead {
                bytes: Arc::new(bytes),
                path: path.clone(),
                why: why.to_string(),
            })
        });
        found.clone().ok_or(why)
    }

    fn not_whole(&self, info: &ModuleInfo, source: &Source) -> Error {
        match source {
            Source::Trace(pieces) => Error::Damaged {
                offset: pieces.first().map_or(0, |p| p.0),
                what: "a module is not whole",
            },
            Source::File(_) => self.flaw(
                info,
                "its content does not fit its name, which is a hash of it".into(),
            ),
        }
    }

    fn flaw(&self, info: &ModuleInfo, what: String) -> Error {
        Error::of_shared(info, &self.contents.folder, what)
    }

    fn source(&self, info: &ModuleInfo) -> Result<Source<'_>, Error> {
        match info.shared {
            true => self.stored(info).map(Source::File),
            false => {
                let pieces = self
                    .pieces
                    .get(&info.hash)
                    .ok_or(Error::NoModule(info.hash))?;
                Ok(Source::Trace(pieces))
            }
        }
    }

    /// The file beside the trace that holds a module.
    fn stored(&self, info: &ModuleInfo) -> Result<Arc<Stored>, Error> {
        let opened = &self.contents.opened;
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(s) = opened.get(&info.hash) {
            return Ok(Arc::clone(s));
        }
        let new = Stored::open(&self.contents.folder, info.hash);
        let new = Arc::new(new.map_err(|what| self.flaw(info, what))?);
        if new.size() != info.size {
            return Err(self.flaw(
                info,
                "its size is not the one that the recording says".into(),
            ));
        }
        opened.insert(info.hash, Arc::clone(&new));
        Ok(new)
    }

    /// The payload of a piece. The last ones are cached.
    fn piece(
        &self,
        info: &ModuleInfo,
        source: &Source,
        offset: u64,
        h: &ChunkHeader,
    ) -> Result<Arc<Vec<u8>>, Error> {
        let at = match source {
            Source::Trace(_) => (None, offset),
            Source::File(_) => (Some(info.hash), offset),
        };
        let mut kept = self
            .contents
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, p)) = kept.iter().find(|(o, _)| *o == at) {
            return Ok(Arc::clone(p));
        }
        let new = match source {
            Source::Trace(_) => self.payload(offset, h)?,
            Source::File(s) => s
                .piece(offset, h)
                .map_err(|_| self.flaw(info, "it is damaged".into()))?,
        };
        let new = Arc::new(new);
        kept.push_back((at, Arc::clone(&new)));
        let mut bytes: usize = kept.iter().map(|(_, p)| p.len()).sum();
        while bytes > KEPT
            && let Some((_, oldest)) = kept.pop_front()
        {
            bytes -= oldest.len();
        }
        Ok(new)
    }
}

/// The content of the file of this machine at a module's path, if the content is the module's.
fn from_machine(info: &ModuleInfo) -> Option<Vec<u8>> {
    let path = info.path.to_os();
    if info.size > MAX_MODULE {
        return None;
    }
    // The content is compared after reading: it has to be read anyway.
    let file = outside::open_same(Path::new(&path), info.size, &info.hash.0, |_| true)?;
    let bytes = regular::rest(&file, info.size).ok()?;
    (ModuleHash::of(&bytes) == info.hash).then_some(bytes)
}

//! The content of files, kept once for all recordings of a store, in a folder beside them.
//!
//! A file of the folder is named after its content ([`ModuleHash`]), appears whole or not at all, and is
//! never changed. Traces refer to it by that name. Nobody counts the references: who deletes what is
//! not used any more ([`sweep`]) looks at all traces, and at nobody's that is being written at that very
//! moment: a lock is shared by those who refer to a file, from the look for it until the trace says so,
//! and held alone by who deletes. Who does not get the lock, or cannot write to the folder, has the
//! content in his own trace instead.

use crate::chunk::{ChunkHeader, Kind};
use crate::pack::{Packer, blank};
use crate::walk::{self, Walk};
use crate::{Error, ModuleHash, ModuleInfo};
use hindsight_guard::regular::{self, Links};
use hindsight_guard::{outside, private};
use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The folder's name, beside the traces.
const FOLDER: &str = "files";

/// The first version of the trace format that refers to such files.
const FIRST_VERSION: u8 = 5;

/// What unfinished files are called.
const UNFINISHED: &str = ".new-";

/// What the notes about files of the system are called: this, device, inode.
const NOTE: &str = "known-";

/// Bytes of a note at most: three numbers and a name.
const LONGEST_NOTE: u64 = 256;

/// Age at which an unfinished file is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Time since the last change of a file after which that change is known to be the last: who has
/// a file mapped can write to it for a while (until the kernel has written its pages to the disk)
/// without another change of its times.
const SETTLED: Duration = Duration::from_secs(3600);

/// Longest wait for who deletes files.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of a page.
const PAGE: usize = 4096;

/// The folder of the files that the trace at `path` may refer to.
pub fn beside(path: &Path) -> PathBuf {
    // Of a link's target: that is where the recording is.
    let real = fs::canonicalize(path);
    let folder = real.as_deref().unwrap_or(path).parent();
    folder.unwrap_or(Path::new("")).join(FOLDER)
}

/// The names of a content's pages, of which the last may be filled up with zeros.
pub fn pages(content: &[u8]) -> Vec<ModuleHash> {
    let name = |page: &[u8]| {
        if page.len() == PAGE {
            return ModuleHash::of(page);
        }
        let mut whole = [0; PAGE];
        whole[..page.len()].copy_from_slice(page);
        ModuleHash::of(&whole)
    };
    content.chunks(PAGE).map(name).collect()
}

/// Which file of the system, in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    pub device: u64,
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Time of the last change of the content, nanoseconds.
    pub modified: u64,
    /// Time of the last change of anything, nanoseconds, which programs cannot set.
    pub changed: u64,
}

/// A file of the folder.
pub struct Stored {
    file: File,
    info: ModuleInfo,
    /// The pieces and where they are.
    pieces: Vec<(u64, ChunkHeader)>,
    pages: Option<(u64, ChunkHeader)>,
}

impl Stored {
    /// Opens the file with this content in `folder` and sees that it is whole; or what is wrong with it.
    pub fn open(folder: &Path, hash: ModuleHash) -> Result<Stored, String> {
        let file = outside::open(&folder.join(hash.to_string())).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => "it is missing (a recording that is to be moved or copied \
                                        takes its files along by `hindsight export`)"
                .into(),
            _ => e.to_string(),
        })?;
        Stored::read(file, hash).map_err(|e| match e {
            None => "it is not whole".into(),
            Some(e) => e.to_string().replace("the trace", "it"),
        })
    }

    fn read(file: File, hash: ModuleHash) -> Result<Stored, Option<Error>> {
        let mut walk = Walk::new(&file)?;
        let (at, first) = walk.next().ok_or(None)??;
        if first.kind != Kind::Module {
            return Err(None);
        }
        let info: ModuleInfo = walk::json(&file, at, &first)?;
        let (mut pieces, mut pages, mut size) = (Vec::new(), None, 0);
        for chunk in walk.by_ref() {
            let (at, h) = chunk?;
            match h.kind {
                Kind::Pages => pages = Some((at, h)),
                Kind::Piece if h.first_pos == size => {
                    size += h.raw_len as u64;
                    pieces.push((at, h));
                }
                _ => return Err(None),
            }
        }
        if !walk.is_whole() || size != info.size || info.hash != hash {
            return Err(None);
        }
        Ok(Stored {
            file,
            info,
            pieces,
            pages,
        })
    }

    /// Bytes of the content.
    pub fn size(&self) -> u64 {
        self.info.size
    }

    /// Bytes that it takes in the folder.
    pub fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |m| m.len())
    }

    pub(crate) fn pieces(&self) -> &[(u64, ChunkHeader)] {
        &self.pieces
    }

    /// The content of a piece.
    pub(crate) fn piece(&self, at: u64, h: &ChunkHeader) -> Result<Vec<u8>, Error> {
        walk::payload(&self.file, at, h)
    }

    /// The pieces as they are stored.
    pub(crate) fn packed(&self) -> impl Iterator<Item = Result<(ChunkHeader, Vec<u8>), Error>> {
        let one = |(at, h): &(u64, ChunkHeader)| Ok((*h, walk::stored(&self.file, *at, h)?));
        self.pieces.iter().map(one)
    }

    /// The names of the content's pages.
    fn pages(&self) -> Option<Vec<ModuleHash>> {
        let (at, h) = self.pages.as_ref()?;
        let raw = walk::payload(&self.file, *at, h).ok()?;
        let (names, rest) = raw.as_chunks::<16>();
        let all = self.info.size.div_ceil(PAGE as u64) == names.len() as u64 && rest.is_empty();
        all.then(|| names.iter().map(|n| ModuleHash(*n)).collect())
    }

    /// Says that it was used just now.
    fn touch(&self) {
        // Another user's: he has to see to it himself.
        let _ = self.file.set_modified(SystemTime::now());
    }
}

/// The folder, for who makes recordings.
pub struct Files {
    folder: PathBuf,
    lock: File,
}

/// The right to refer to files, until it is dropped.
pub(crate) struct Shared<'f>(&'f File);

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Files {
    /// The folder for traces in the folder `store`, made if it is not there.
    pub fn open(store: &Path) -> io::Result<Files> {
        let folder = store.join(FOLDER);
        private::create_folder(&folder)?;
        let lock = private::open_or_create(&folder.join("lock"))?;
        Ok(Files { folder, lock })
    }

    /// Takes part in the lock; `None` if somebody who deletes files is slow, or there are no locks here.
    pub(crate) fn share(&self) -> Option<Shared<'_>> {
        let since = Instant::now();
        loop {
            match self.lock.try_lock_shared() {
                Ok(()) => return Some(Shared(&self.lock)),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {
                    std::thread::sleep(PATIENCE / 40);
                }
                Err(_) => return None,
            }
        }
    }

    /// The file with this content, which is then used.
    pub(crate) fn get(&self, hash: ModuleHash) -> Option<Stored> {
        let stored = Stored::open(&self.folder, hash).ok()?;
        stored.touch();
        Some(stored)
    }

    /// The names of the pages of what a file of the system holds, if that is known and in the folder.
    pub(crate) fn known(&self, state: &State) -> Option<(ModuleHash, Vec<ModuleHash>)> {
        let note = read_note(&self.note(state))?;
        let (said, name) = note.trim_end().rsplit_once(' ')?;
        if said != states(state) {
            return None;
        }
        let hash = ModuleHash::try_from(name.to_string()).ok()?;
        let stored = self.get(hash).filter(|s| s.size() == state.size)?;
        Some((hash, stored.pages()?))
    }

    /// Notes what a file of the system holds, if it has been so for long enough.
    pub(crate) fn note_down(&self, state: &State, hash: ModuleHash) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let changed = Duration::from_nanos(state.changed);
        if now.checked_sub(changed).is_none_or(|age| age < SETTLED) {
            return;
        }
        let text = format!("{} {hash}\n", states(state));
        // Without it the file is read again the next time.
        let _ = self.whole(&self.note(state), |f| f.write_all(text.as_bytes()));
    }

    fn note(&self, s: &State) -> PathBuf {
        let name = format!("{NOTE}{:x}-{:x}", s.device, s.inode);
        self.folder.join(name)
    }

    /// Makes the file for `info`, whose pieces `pieces` hands over as they are to be stored.
    pub(crate) fn put(
        &self,
        packer: &mut Packer,
        info: &ModuleInfo,
        pages: &[ModuleHash],
        pieces: impl FnOnce(
            &mut Packer,
            &mut dyn FnMut(&ChunkHeader, &[u8]) -> io::Result<()>,
        ) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.folder.join(info.hash.to_string());
        self.whole(&path, |file| {
            let mut out = io::BufWriter::new(file);
            let mut add = |h: &ChunkHeader, stored: &[u8]| {
                out.write_all(&h.to_bytes())?;
                out.write_all(stored)
            };
            let described = serde_json::to_vec(info)?;
            packer.chunk(blank(Kind::Module), &described, |h, b| add(&h, b))?;
            let names: Vec<u8> = pages.iter().flat_map(|p| p.0).collect();
            packer.chunk(blank(Kind::Pages), &names, |h, b| add(&h, b))?;
            pieces(packer, &mut add)?;
            out.flush()
        })
    }

    /// Makes a file whole or not at all.
    fn whole(&self, path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let new = format!("{UNFINISHED}{}-{number}", std::process::id());
        let new = self.folder.join(new);
        // Of a process of the same number that was killed, or in another namespace.
        let mut file = match private::create_new(&new) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let age = fs::metadata(&new)?.modified()?.elapsed();
                if age.unwrap_or_default() < ABANDONED {
                    return Err(e);
                }
                fs::remove_file(&new)?;
                private::create_new(&new)?
            }
            other => other?,
        };
        let done = fill(&mut file).and_then(|()| fs::rename(&new, path));
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done
    }
}

/// What a note about a file of the system says.
fn read_note(path: &Path) -> Option<String> {
    let bytes = regular::read(path, Links::Refuse, LONGEST_NOTE).ok()?;
    String::from_utf8(bytes).ok()
}

/// What has to be the same for a file of the system to be as it was.
fn states(s: &State) -> String {
    format!("{} {} {}", s.size, s.modified, s.changed)
}

/// The files that the trace at `path` refers to, as far as it can be read.
pub fn references(path: &Path) -> Result<HashSet<ModuleHash>, Error> {
    let file = regular::open(path, Links::Follow)?;
    let mut used = HashSet::new();
    for chunk in Walk::new(&file)? {
        let (at, h) = match chunk {
            Ok(c) => c,
            // Made by another version, which may refer to files in another way.
            Err(e @ (Error::Io(_) | Error::Version { .. })) => return Err(e),
            // What comes behind a damaged chunk is not read by anybody.
            Err(_) => break,
        };
        if h.kind == Kind::Module {
            match walk::json::<ModuleInfo>(&file, at, &h) {
                Ok(info) if info.shared => {
                    used.insert(info.hash);
                }
                Ok(_) => {}
                Err(e @ Error::Io(_)) => return Err(e),
                Err(_) => break,
            }
        }
    }
    Ok(used)
}

/// What [`sweep`] has deleted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Swept {
    pub files: u64,
    pub bytes: u64,
}

/// Deletes the files beside the traces of the folder `store` that none of `traces` refers to and that
/// nobody has used for the time `unused`. `None`: nothing was done, since recordings refer to files all the
/// time for as long as `patience`, or nobody ever had files there.
///
/// # Errors
/// A trace cannot be read, so that it is not known what it needs. Nothing is deleted then.
pub fn sweep(
    store: &Path,
    traces: impl FnOnce() -> io::Result<Vec<PathBuf>>,
    unused: Duration,
    patience: Duration,
) -> Result<Option<Swept>, Error> {
    let folder = store.join(FOLDER);
    if !folder.is_dir() {
        return Ok(None);
    }
    let files = Files::open(store)?;
    let since = Instant::now();
    while let Err(e) = files.lock.try_lock() {
        match e {
            TryLockError::WouldBlock if since.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            TryLockError::WouldBlock => return Ok(None),
            TryLockError::Error(e) => return Err(e.into()),
        }
    }
    // Only now: no trace can begin to refer to anything.
    let mut used = HashSet::new();
    for t in traces()? {
        match references(&t) {
            Ok(r) => used.extend(r),
            // Versions before knew no such files; what is no trace refers to nothing.
            Err(Error::Version { found }) if found < FIRST_VERSION => {}
            Err(Error::Io(e)) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    let _ = files.lock.set_modified(SystemTime::now());
    let mut swept = Swept::default();
    let mut notes = Vec::new();
    for e in fs::read_dir(&folder)?.flatten() {
        let (Ok(name), Ok(m)) = (e.file_name().into_string(), e.metadata()) else {
            continue;
        };
        let age = m.modified().ok().and_then(|m| m.elapsed().ok());
        let age = age.unwrap_or_default();
        let hash = ModuleHash::try_from(name.clone());
        let of_nobody = hash.is_ok_and(|h| !used.contains(&h) && age >= unused);
        if of_nobody || name.starts_with(UNFINISHED) && age > ABANDONED {
            fs::remove_file(e.path())?;
            swept.files += of_nobody as u64;
            swept.bytes += if of_nobody { m.len() } else { 0 };
        } else if name.starts_with(NOTE) {
            notes.push(e.path());
        }
    }
    for note in notes {
        let text = read_note(&note).unwrap_or_default();
        let name = text.trim_end().rsplit(' ').next().unwrap_or_default();
        if name.len() != 32 || !folder.join(name).exists() {
            let _ = fs::remove_file(note);
        }
    }
    Ok(Some(swept))
}

/// When [`sweep`] last looked at the files of the traces in `store`; `None` if there are none.
pub fn swept(store: &Path) -> Option<SystemTime> {
    fs::metadata(store.join(FOLDER).join("lock"))
        .ok()?
        .modified()
        .ok()
}

/// Number and bytes of the files beside the traces in `store`.
pub fn total(store: &Path) -> (u64, u64) {
    let Ok(dir) = fs::read_dir(store.join(FOLDER)) else {
        return (0, 0);
    };
    let stored = |e: fs::DirEntry| {
        let name = e.file_name().into_string().ok()?;
        ModuleHash::try_from(name).ok()?;
        Some(e.metadata().ok()?.len())
    };
    let sizes = dir.flatten().filter_map(stored);
    sizes.fold((0, 0), |(n, sum), len| (n + 1, sum + len))
}

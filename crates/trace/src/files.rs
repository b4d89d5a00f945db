//! Files' content that all recordings of a store share, in a folder beside the recordings.
//!
//! - A file of the folder is named after its content ([`ModuleHash`]). Traces refer to it by that name.
//! - It appears whole or not at all, and never changes.
//! - Nobody counts references. To delete unused files, [`sweep`] reads all traces.
//! - A lock keeps [`sweep`] from deleting a file that is just being referred to. Writers share the lock from
//!   their search for the file until their trace refers to it. [`sweep`] holds it alone.
//! - A writer that does not get the lock, or cannot write to the folder, puts the content into its own trace.

use crate::chunk::{ChunkHeader, Kind};
use crate::pack::Packer;
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

/// Name of the folder beside the traces.
const FOLDER: &str = "files";

/// The first version of the trace format that refers to these files.
const FIRST_VERSION: u8 = 5;

/// Unfinished files have names that begin with this.
const UNFINISHED: &str = ".new-";

/// Begins the name of a note about a file of the system. Device and inode follow.
const NOTE: &str = "known-";

/// Longest note in bytes: three numbers and a name.
const LONGEST_NOTE: u64 = 256;

/// An unfinished file of this age has no writer any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A file that has not changed for this long is not going to change unnoticed. A process that has mapped a
/// file can write to it for a while without another change of its times. That lasts until the kernel has
/// written the pages to the disk.
const SETTLED: Duration = Duration::from_secs(3600);

/// Longest wait for a process that deletes files.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of a page.
const PAGE: usize = 4096;

/// The folder with the files to which the trace at `path` may refer.
pub fn beside(path: &Path) -> PathBuf {
    // A link may lead to the recording, and the folder is beside the recording.
    let real = fs::canonicalize(path);
    let folder = real.as_deref().unwrap_or(path).parent();
    folder.unwrap_or(Path::new("")).join(FOLDER)
}

/// The path of a trace's index, which `hindsight_timeline` makes. The extension `hst` becomes `hsx`. A name without it gets `hsx` appended.
pub fn index_path(trace: &Path) -> PathBuf {
    match trace.extension() {
        Some(e) if e == "hst" => trace.with_extension("hsx"),
        _ => trace.with_added_extension("hsx"),
    }
}

/// The names of a content's pages. The last page is filled up with zeros.
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

/// A file of the system in a certain state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Device of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size of the content in bytes.
    pub size: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified: u64,
    /// Time of the last change of anything, in nanoseconds since 1970. Programs cannot set it.
    pub changed: u64,
}

/// A file of the folder, opened.
pub struct Stored {
    file: File,
    info: ModuleInfo,
    /// Where the pieces are in the file, with their headers.
    pieces: Vec<(u64, ChunkHeader)>,
    pages: Option<(u64, ChunkHeader)>,
}

impl Stored {
    /// Opens the file in `folder` that has this content, and checks that it is whole. The error says what is
    /// wrong with it.
    pub fn open(folder: &Path, hash: ModuleHash) -> Result<Stored, String> {
        let file = outside::open(&folder.join(hash.to_string())).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                "it is missing (to move or copy a recording with its files, \
                                        use `hindsight export`)"
                    .into()
            }
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

    /// Size of the content in bytes.
    pub fn size(&self) -> u64 {
        self.info.size
    }

    /// Bytes that the file takes in the folder.
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

    /// Marks the file as used just now.
    fn touch(&self) {
        // This fails for another user's file, and that user has to do it.
        let _ = self.file.set_modified(SystemTime::now());
    }
}

/// The folder, for programs that make recordings.
pub struct Files {
    folder: PathBuf,
    lock: File,
}

/// A share of the lock: while it lives, a trace may begin to refer to files.
pub(crate) struct Shared<'f>(&'f File);

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Files {
    /// Opens the folder for traces in `store`, and makes it if it does not exist.
    ///
    /// # Errors
    /// The folder or its lock cannot be made.
    pub fn open(store: &Path) -> io::Result<Files> {
        let folder = store.join(FOLDER);
        private::create_folder(&folder)?;
        let lock = private::open_or_create(&folder.join("lock"))?;
        Ok(Files { folder, lock })
    }

    /// Opens the folder for traces in `store`, if it exists.
    pub fn existing(store: &Path) -> Option<Files> {
        let is_there = store.join(FOLDER).is_dir();
        is_there.then(|| Files::open(store).ok()).flatten()
    }

    /// Takes a share of the lock. `None` if a process that deletes files takes too long, or the file system
    /// has no locks.
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

    /// The file with this content. It is marked as used.
    pub(crate) fn get(&self, hash: ModuleHash) -> Option<Stored> {
        let stored = Stored::open(&self.folder, hash).ok()?;
        stored.touch();
        Some(stored)
    }

    /// The names of the content and of its pages that a file of the system holds. `None` if that is unknown
    /// or the folder does not have the content.
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

    /// Notes which content a file of the system holds, if the file has not changed for [`SETTLED`].
    pub(crate) fn note_down(&self, state: &State, hash: ModuleHash) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let changed = Duration::from_nanos(state.changed);
        if now.checked_sub(changed).is_none_or(|age| age < SETTLED) {
            return;
        }
        let text = format!("{} {hash}\n", states(state));
        // If this fails, the file is read again the next time.
        let _ = self.whole(&self.note(state), |f| f.write_all(text.as_bytes()));
    }

    fn note(&self, s: &State) -> PathBuf {
        let name = format!("{NOTE}{:x}-{:x}", s.device, s.inode);
        self.folder.join(name)
    }

    /// Makes the file for `info`. `pieces` hands over the pieces in the form in which they are stored.
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
            packer.chunk(ChunkHeader::blank(Kind::Module), &described, |h, b| {
                add(&h, b)
            })?;
            let names: Vec<u8> = pages.iter().flat_map(|p| p.0).collect();
            packer.chunk(ChunkHeader::blank(Kind::Pages), &names, |h, b| add(&h, b))?;
            pieces(packer, &mut add)?;
            out.flush()
        })
    }

    /// Makes a file that appears whole or not at all.
    fn whole(&self, path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let new = format!("{UNFINISHED}{}-{number}", std::process::id());
        let new = self.folder.join(new);
        // The name may be left from a process that was killed, or belong to one in another namespace. Both
        // can have our process id.
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

/// The text of a note about a file of the system.
fn read_note(path: &Path) -> Option<String> {
    let bytes = regular::read(path, Links::Refuse, LONGEST_NOTE).ok()?;
    String::from_utf8(bytes).ok()
}

/// The part of a note that must be the same for the file to be unchanged.
fn states(s: &State) -> String {
    format!("{} {} {}", s.size, s.modified, s.changed)
}

/// The files to which the trace at `path` refers, as far as the trace can be read.
///
/// # Errors
/// The file cannot be read, is not a trace, or has another version of the format.
pub fn references(path: &Path) -> Result<HashSet<ModuleHash>, Error> {
    let file = regular::open(path, Links::Follow)?;
    let mut used = HashSet::new();
    for chunk in Walk::new(&file)? {
        let (at, h) = match chunk {
            Ok(c) => c,
            // Another version made the trace and may refer to files in another way.
            Err(e @ (Error::Io(_) | Error::Version { .. })) => return Err(e),
            // No reader reads behind a damaged chunk.
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

/// What [`sweep`] deleted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Swept {
    /// Number of deleted files.
    pub files: u64,
    /// Size of the deleted files in bytes.
    pub bytes: u64,
}

/// Deletes files beside the traces in `store`. A file is deleted if none of `traces` refers to it and nobody
/// has used it for `unused`.
///
/// `None`: nothing was done. Either other recordings held the lock for as long as `patience`, or there is no
/// such folder.
///
/// # Errors
/// A trace cannot be read, so its needs are unknown. Nothing is deleted then.
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
    // Only with the lock: from now on no trace can begin to refer to a file.
    let mut used = HashSet::new();
    for t in traces()? {
        match references(&t) {
            Ok(r) => used.extend(r),
            // Earlier versions had no such files. A file that is not a trace refers to nothing.
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

/// When [`sweep`] last looked at the files of the traces in `store`. `None` if there are none.
pub fn swept(store: &Path) -> Option<SystemTime> {
    fs::metadata(store.join(FOLDER).join("lock"))
        .ok()?
        .modified()
        .ok()
}

/// Number of the files beside the traces in `store`, and their size in bytes.
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

//! Translated code that is kept between recordings, in the user's cache folder. There is a file for each program and regime.
//! It has what the program's last recordings have put into the [shared cache](hindsight_events::shared_cache).
//!
//! What is in these files is executed. So they are used only if nobody else can have written them.
//! Folder and files must belong to the user, and nobody else may do anything with them. And nothing is kept
//! of a recording in which a process has given up rights that the user has. The rest is a matter of
//! accidents: each block has a checksum, and serves only code that is the same byte by byte. Files
//! can be deleted at any time.

use crate::error::{Error, Result};
use crate::notice::{Notice, Tell};
use crate::{recorder_binary, sys};
use hindsight_collector::Control;
use hindsight_events::config::Config;
use hindsight_guard::private;
use hindsight_isa::xsave::Layout;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: [u8; 8] = *b"HSTRANS\x02";

/// Most bytes of blocks in a file.
const LARGEST: usize = 384 << 20;

/// Bytes above which only those blocks are kept that have served in the last recording.
const LARGE: usize = 48 << 20;

/// Most bytes of all files together; those that were used longest ago go first.
const FOLDER: u64 = 1 << 30;

/// Bytes that can be written in the time in which a block is translated.
const WORTH: u64 = 50_000;

/// What unfinished files are called.
const UNFINISHED: &str = ".new-";

/// Age at which an unfinished file is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Bytes of a [`Head`] before the program's path. Zeros follow the path, up to a multiple of 8 bytes.
const HEAD: usize = 56;

/// The start of a file.
struct Head {
    identity: u128,
    program: PathBuf,
    /// Bytes of the blocks' names, which follow, and of the blocks, which follow these (see
    /// [`hindsight_events::shared_cache::Stock`]).
    lens: [u64; 2],
}

impl Head {
    /// Its length in bytes.
    fn len(&self) -> usize {
        (HEAD + self.program.as_os_str().len()).next_multiple_of(8)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let path = self.program.as_os_str().as_bytes();
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.identity.to_le_bytes());
        for n in [self.lens[0], self.lens[1], path.len() as u64] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&xxh3_64(&[&out[8..], path].concat()).to_le_bytes());
        out.extend_from_slice(path);
        out.resize(self.len(), 0);
        out
    }

    /// Reads the head of a file; `None` if it is not one.
    fn read(file: &mut File) -> Option<Head> {
        let mut head = [0; HEAD];
        file.read_exact(&mut head).ok()?;
        let word = |at: usize| head[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let path_len = word(40).filter(|n| *n <= 4096)? as usize;
        let mut path = vec![0; path_len];
        file.read_exact(&mut path).ok()?;
        let sum = xxh3_64(&[&head[8..48], &path].concat());
        let read = Head {
            identity: word(8).unwrap_or(0) as u128 | (word(16).unwrap_or(0) as u128) << 64,
            program: PathBuf::from(std::ffi::OsString::from_vec(path)),
            lens: [word(24)?, word(32)?],
        };
        let whole = (read.len() as u64).checked_add(read.blocks()?);
        let good = head.starts_with(&MAGIC)
            && word(48)? == sum
            && Some(file.metadata().ok()?.len()) == whole;
        good.then_some(read)
    }

    /// Bytes that follow the head.
    fn blocks(&self) -> Option<u64> {
        self.lens[0].checked_add(self.lens[1])
    }
}

/// The folder, open, and found to be the user's alone.
struct Folder {
    path: PathBuf,
    file: File,
}

/// Whether a file is the user's, and nobody else may do anything with it.
fn is_private(m: &fs::Metadata) -> bool {
    m.uid() == sys::process::user() && m.mode() & 0o077 == 0
}

/// `$XDG_CACHE_HOME/hindsight`, or `~/.cache/hindsight`.
fn folder_path() -> Option<PathBuf> {
    let var = |n: &str| std::env::var_os(n).map(PathBuf::from);
    // The specification says to ignore relative paths.
    let absolute = |p: &PathBuf| p.is_absolute();
    let cache = var("XDG_CACHE_HOME").filter(absolute);
    // A home that is not there is not to be made.
    let home = || var("HOME").filter(|h| h.is_absolute() && h.is_dir());
    let cache = cache.or_else(|| Some(home()?.join(".cache")))?;
    Some(cache.join("hindsight"))
}

impl Folder {
    /// Opens the folder. `Ok(None)`: there is none, and if `make` is set, none can be made.
    fn open(make: bool) -> std::result::Result<Option<Folder>, String> {
        let Some(path) = folder_path() else {
            return Ok(None);
        };
        if make && !path.exists() {
            let _ = private::create_folder(&path);
        }
        let how = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let file = match OpenOptions::new().read(true).custom_flags(how).open(&path) {
            Ok(f) => f,
            Err(_) if path.is_symlink() => {
                return Err(format!("{} is a symbolic link", path.display()));
            }
            Err(_) => return Ok(None),
        };
        match file.metadata() {
            Ok(m) if is_private(&m) => Ok(Some(Folder { path, file })),
            Ok(_) => Err(format!(
                "{} is not yours alone (its owner must be you, its mode 0700)",
                path.display()
            )),
            Err(_) => Ok(None),
        }
    }

    /// A path to a file in this very folder, whatever becomes of the folder's name.
    fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.file.as_raw_fd()))
    }

    /// Opens a file that can be trusted.
    fn file(&self, name: &str) -> std::result::Result<Option<File>, String> {
        let how = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(how)
            .open(self.at(name));
        let file = match file {
            Ok(f) => f,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        match file.metadata() {
            Ok(m) if m.is_file() && m.nlink() <= 1 && is_private(&m) => Ok(Some(file)),
            _ => Err("it is not a file of yours alone".into()),
        }
    }

    /// Names, sizes and times of last use of the files, the oldest first; of all there are, whoever made
    /// them.
    fn list(&self) -> Vec<(String, u64, SystemTime)> {
        let Ok(dir) = fs::read_dir(self.at("")) else {
            return Vec::new();
        };
        let mut list: Vec<_> = dir
            .filter_map(|e| {
                let e = e.ok()?;
                let m = e.metadata().ok().filter(|m| m.is_file())?;
                let name = e.file_name().into_string().ok()?;
                Some((name, m.len(), m.modified().ok()?))
            })
            .collect();
        list.sort_by_key(|(_, _, used)| *used);
        list
    }

    /// Writes a file whole or not at all.
    fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let new = format!("{UNFINISHED}{}-{}", std::process::id(), now.as_nanos());
        let mut file = private::create_new(&self.at(&new))?;
        let written = parts.iter().try_for_each(|p| file.write_all(p));
        let done = written.and_then(|()| fs::rename(self.at(&new), self.at(name)));
        if done.is_err() {
            let _ = fs::remove_file(self.at(&new));
        }
        done
    }

    /// Deletes what is too much, or left over.
    fn tidy(&self) {
        let list = self.list();
        let mut total: u64 = list.iter().map(|(_, len, _)| len).sum();
        for (name, len, used) in list {
            let age = used.elapsed().unwrap_or_default();
            let left_over = name.starts_with(UNFINISHED) && age > ABANDONED;
            if left_over || total > FOLDER {
                let _ = fs::remove_file(self.at(&name));
                total -= len;
            }
        }
    }
}

/// The file that goes with a recording.
pub(crate) struct Translations {
    folder: Folder,
    name: String,
    head: Head,
}

/// What must be the same for translations to be the same: this program, what of the processor and of
/// the configuration shapes translated code.
fn identity(config: &Config) -> u128 {
    let mut h = Xxh3::new();
    h.update(recorder_binary::IMAGE);
    let features = core::arch::x86_64::__cpuid_count(7, 0);
    let model = core::arch::x86_64::__cpuid_count(1, 0);
    let components = Layout::detect().map_or(0, |l| l.mask);
    for word in [
        features.ebx,
        features.ecx,
        features.edx,
        model.eax,
        model.ecx,
        model.edx,
        components as u32,
        config.predictor_bits as u32,
        config.baseline as u32,
        // Plain and checked code of a large program do not fit into one file together.
        config.regime,
    ] {
        h.update(&word.to_le_bytes());
    }
    h.digest128()
}

impl Translations {
    /// Puts what earlier recordings of the program have left in the empty shared cache. `None`: nothing is kept
    /// of this one either; `tell` got to know why if it is something to be mended.
    pub fn restore(
        program: &Path,
        config: &Config,
        control: &Control,
        tell: &Tell,
    ) -> Option<Translations> {
        control.shared_cache()?;
        let refused = |why: String| tell(&Notice::CacheUnusable(&why));
        let folder = Folder::open(true).map_err(refused).ok()??;
        let program = program.canonicalize().unwrap_or_else(|_| program.into());
        let identity = identity(config);
        let mut h = Xxh3::new();
        h.update(&identity.to_le_bytes());
        h.update(program.as_os_str().as_bytes());
        let name = format!("{:032x}", h.digest128());
        let mut head = Head {
            identity,
            program,
            lens: [0; 2],
        };
        match folder.file(&name) {
            Ok(Some(mut file)) => {
                let same = |h: &Head| (h.identity, &h.program) == (head.identity, &head.program);
                let _ = file.set_modified(SystemTime::now());
                if let Some(found) = Head::read(&mut file).filter(same) {
                    let entries = found.len() + found.lens[0] as usize;
                    if control.share_kept(file, found.len()..entries, entries) > 0 {
                        head.lens = found.lens;
                    }
                }
            }
            Ok(None) => {}
            Err(why) => {
                let path = folder.path.join(&name);
                refused(format!("{}: {why}", path.display()));
                return None;
            }
        }
        Some(Translations { folder, name, head })
    }

    /// Saves what is in the shared cache after the recording, if there is so much new that it is worth writing all.
    pub fn save(mut self, control: &Control) {
        let Some(shared) = control.shared_cache() else {
            return;
        };
        if shared.count().made as u64 * WORTH < self.head.lens[1].max(1) {
            return;
        }
        let all = self.head.lens[1] as usize <= LARGE;
        let mut blocks = shared.stock(LARGEST, all);
        if all && blocks.entries.len() > LARGE {
            blocks = shared.stock(LARGEST, false);
        }
        if blocks.entries.is_empty() {
            return;
        }
        self.head.lens = [&blocks.names, &blocks.entries].map(|p| p.len() as u64);
        let parts: [&[u8]; 3] = [&self.head.to_bytes(), &blocks.names, &blocks.entries];
        // Without room on the disk there is nothing to keep, and nothing is lost.
        let _ = self.folder.write(&self.name, &parts);
        self.folder.tidy();
    }
}

/// What is kept of one program for one regime.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Kept {
    /// The file's name in the [folder](Cache::folder).
    pub file: String,
    /// The program. `None`: the file cannot be trusted, or is damaged.
    pub program: Option<PathBuf>,
    /// The file's length in bytes.
    pub bytes: u64,
    /// When a recording last used it.
    pub last_used: SystemTime,
}

/// What is kept between recordings.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cache {
    /// The folder: `$XDG_CACHE_HOME/hindsight`, or `~/.cache/hindsight`. Empty if nobody knows where it would be.
    pub folder: PathBuf,
    /// The files, the one that was used longest ago first.
    pub files: Vec<Kept>,
}

impl Cache {
    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }
}

/// Lists the translations that are kept, and deletes them if `clear` is set. Recordings that run are not disturbed.
///
/// # Errors
/// Others than this user may change the folder, or a file cannot be deleted.
pub fn list(clear: bool) -> Result<Cache> {
    let folder = Folder::open(false).map_err(Error::Cache)?;
    let mut cache = Cache {
        folder: folder_path().unwrap_or_default(),
        files: Vec::new(),
    };
    let Some(folder) = &folder else {
        return Ok(cache);
    };
    let program = |name: &str| {
        let mut file = folder.file(name).ok()??;
        Some(Head::read(&mut file)?.program)
    };
    for (file, bytes, last_used) in folder.list() {
        cache.files.push(Kept {
            program: program(&file),
            file,
            bytes,
            last_used,
        });
    }
    if clear {
        for kept in &cache.files {
            fs::remove_file(folder.at(&kept.file))?;
        }
    }
    Ok(cache)
}

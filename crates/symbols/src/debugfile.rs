//! Finds separate debug files: by build id, by `.gnu_debuglink`, and by `.gnu_debugaltlink`, the supplementary file
//! that several of them may share. A recording says their names, but they are files of this machine. So they are only
//! looked for in folders that hold nothing else.

use hindsight_guard::within;
use object::Object;
use std::path::{Component, Path, PathBuf};

/// The largest debug file, in bytes.
const MOST: u64 = 4 << 30;
/// An environment variable that names further folders, separated by colons.
const VARIABLE: &str = "HINDSIGHT_DEBUG_PATH";

/// Folders with separate debug files, like gdb's `debug-file-directory`.
#[derive(Clone, Debug)]
pub struct DebugPaths(pub Vec<PathBuf>);

impl Default for DebugPaths {
    /// `/usr/lib/debug`, and the absolute paths in `$HINDSIGHT_DEBUG_PATH`, which come first.
    fn default() -> Self {
        let more = std::env::var_os(VARIABLE).unwrap_or_default();
        let more = std::env::split_paths(&more).filter(|p| p.is_absolute());
        DebugPaths(more.chain(["/usr/lib/debug".into()]).collect())
    }
}

impl DebugPaths {
    /// No folders: no separate debug files are found.
    pub fn none() -> Self {
        DebugPaths(Vec::new())
    }

    /// The content of the debug file that belongs to `file`, whose path is `path`. A file with the right name but
    /// another build id or checksum is not taken.
    pub(crate) fn find(&self, path: &str, file: &object::File) -> Option<Vec<u8>> {
        let id = file.build_id().ok().flatten();
        if let Some(id) = id {
            for dir in &self.0 {
                if let Some(data) = read_with_id(dir, &by_id(id), id) {
                    return Some(data);
                }
            }
        }
        let (name, crc) = file.gnu_debuglink().ok().flatten()?;
        let name = std::str::from_utf8(name).ok()?;
        if name.contains('/') {
            return None;
        }
        let below = inner(Path::new(path).parent()?).join(name);
        self.0.iter().find_map(|d| {
            let data = within::read(d, &below, MOST).ok()?;
            (crc32fast::hash(&data) == crc).then_some(data)
        })
    }

    /// The file that `.gnu_debugaltlink` of a debug file names.
    pub(crate) fn supplement(&self, file: &object::File) -> Option<Vec<u8>> {
        let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
        // Names are relative to the place of the debug file, which is below one of the folders.
        let tail = inner(Path::new(std::str::from_utf8(name).ok()?));
        let names = [by_id(id), tail];
        let mut all = names
            .iter()
            .flat_map(|n| self.0.iter().map(move |d| (d, n)));
        all.find_map(|(d, n)| read_with_id(d, n, id))
    }

    /// The content of this machine's file with this name. `None`: it is in none of the folders, or it cannot be read,
    /// or it has more than 4 GiB.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let below = |d: &PathBuf| within::read(d, path.strip_prefix(d).ok()?, MOST).ok();
        self.0.iter().find_map(below)
    }
}

/// The path as one below a folder: without root and `..`.
fn inner(path: &Path) -> PathBuf {
    let names = |c: &Component| matches!(c, Component::Normal(_));
    path.components().filter(names).collect()
}

fn by_id(id: &[u8]) -> PathBuf {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let (first, rest) = hex.split_at(hex.len().min(2));
    Path::new(".build-id")
        .join(first)
        .join(format!("{rest}.debug"))
}

fn read_with_id(folder: &Path, path: &Path, id: &[u8]) -> Option<Vec<u8>> {
    let data = within::read(folder, path, MOST).ok()?;
    let same = object::File::parse(&*data).ok()?.build_id().ok()? == Some(id);
    same.then_some(data)
}

//! Separate debug files: by build id, by `.gnu_debuglink`, and the supplementary file that several
//! of them may share. They are files of this machine whose names a recording says, so they are only looked for in
//! folders that have nothing else.

use hindsight_guard::within;
use object::Object;
use std::path::{Component, Path, PathBuf};

/// Bytes of a debug file at most.
const MOST: u64 = 4 << 30;
/// Names further directories, separated by colons.
const VARIABLE: &str = "HINDSIGHT_DEBUG_PATH";

/// Directories with separate debug files, as gdb's `debug-file-directory`.
#[derive(Clone, Debug)]
pub struct DebugPaths(pub Vec<PathBuf>);

impl Default for DebugPaths {
    /// `/usr/lib/debug`, and those of `$HINDSIGHT_DEBUG_PATH`.
    fn default() -> Self {
        let more = std::env::var_os(VARIABLE).unwrap_or_default();
        let more = std::env::split_paths(&more).filter(|p| p.is_absolute());
        DebugPaths(more.chain(["/usr/lib/debug".into()]).collect())
    }
}

impl DebugPaths {
    /// No separate debug files.
    pub fn none() -> Self {
        DebugPaths(Vec::new())
    }

    /// The content of the debug file that belongs to `file`, whose path is `path`. A file that
    /// has the right name but another build id or checksum is not taken.
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
        // Names are relative to the place of the debug file, which is below one of the directories.
        let tail = inner(Path::new(std::str::from_utf8(name).ok()?));
        let names = [by_id(id), tail];
        let mut all = names
            .iter()
            .flat_map(|n| self.0.iter().map(move |d| (d, n)));
        all.find_map(|(d, n)| read_with_id(d, n, id))
    }

    /// The file of this machine with this name, if it is in one of the directories.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let below = |d: &PathBuf| within::read(d, path.strip_prefix(d).ok()?, MOST).ok();
        self.0.iter().find_map(below)
    }
}

/// A path as one below a folder.
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

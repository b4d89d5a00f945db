//! Separate debug files: by build id, by `.gnu_debuglink`, and the supplementary file that several
//! of them may share.

use object::Object;
use std::path::{Path, PathBuf};

/// Directories with separate debug files, as gdb's `debug-file-directory`.
#[derive(Clone, Debug)]
pub struct DebugPaths(pub Vec<PathBuf>);

impl Default for DebugPaths {
    /// `/usr/lib/debug`.
    fn default() -> Self {
        DebugPaths(vec!["/usr/lib/debug".into()])
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
                if let Some(data) = read_with_id(&dir.join(by_id(id)), id) {
                    return Some(data);
                }
            }
        }
        let (name, crc) = file.gnu_debuglink().ok().flatten()?;
        let name = std::str::from_utf8(name).ok()?;
        if name.contains('/') {
            return None;
        }
        let dir = Path::new(path).parent()?;
        let beside = [dir.join(name), dir.join(".debug").join(name)];
        let global = self
            .0
            .iter()
            .map(|d| d.join(dir.strip_prefix("/").unwrap_or(dir)).join(name));
        beside.into_iter().chain(global).find_map(|p| {
            let data = std::fs::read(p).ok()?;
            (crc32fast::hash(&data) == crc).then_some(data)
        })
    }

    /// The file that `.gnu_debugaltlink` of a debug file names.
    pub(crate) fn supplement(&self, path: &str, file: &object::File) -> Option<Vec<u8>> {
        let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
        let name = Path::new(std::str::from_utf8(name).ok()?);
        let dir = Path::new(path).parent().unwrap_or(Path::new("/"));
        let by_id = self.0.iter().map(|d| d.join(by_id(id)));
        // Names are relative to the place of the debug file, which is below one of the directories.
        let below = self.0.iter().map(|d| {
            let tail: PathBuf = name
                .components()
                .filter(|c| matches!(c, std::path::Component::Normal(_)))
                .collect();
            d.join(tail)
        });
        by_id
            .chain(below)
            .chain([dir.join(name)])
            .find_map(|p| read_with_id(&p, id))
    }
}

fn by_id(id: &[u8]) -> PathBuf {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let (first, rest) = hex.split_at(hex.len().min(2));
    Path::new(".build-id")
        .join(first)
        .join(format!("{rest}.debug"))
}

fn read_with_id(path: &Path, id: &[u8]) -> Option<Vec<u8>> {
    let data = std::fs::read(path).ok()?;
    let same = object::File::parse(&*data).ok()?.build_id().ok()? == Some(id);
    same.then_some(data)
}

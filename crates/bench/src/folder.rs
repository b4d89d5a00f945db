//! What a program left behind: the files of a directory, compared without their times.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Entry {
    File { mode: u32, content: Vec<u8> },
    Directory { mode: u32 },
    Link { target: PathBuf },
    Other { kind: u32 },
}

/// All entries below a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FolderState(BTreeMap<PathBuf, Entry>);

impl FolderState {
    /// Reads everything below `dir`.
    pub fn take(dir: &Path) -> io::Result<FolderState> {
        let mut state = FolderState::default();
        state.add(dir, Path::new(""))?;
        Ok(state)
    }

    fn add(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let name = below.join(entry.file_name());
            let meta = entry.metadata()?;
            let mode = meta.permissions().mode() & 0o7777;
            let kind = if meta.is_dir() {
                self.add(root, &name)?;
                Entry::Directory { mode }
            } else if meta.is_symlink() {
                Entry::Link {
                    target: fs::read_link(entry.path())?,
                }
            } else if meta.is_file() {
                Entry::File {
                    mode,
                    content: fs::read(entry.path())?,
                }
            } else {
                Entry::Other {
                    kind: meta.mode() >> 12,
                }
            };
            self.0.insert(name, kind);
        }
        Ok(())
    }

    /// The first entry that differs in `other`.
    pub fn difference(&self, other: &FolderState) -> Option<PathBuf> {
        let names = self.0.keys().chain(other.0.keys());
        names
            .filter(|n| self.0.get(*n) != other.0.get(*n))
            .min()
            .cloned()
    }
}

/// Whether two files have the same content. Reads them piece by piece, so this process stays small: a child's
/// peak memory begins with its parent's.
pub fn same_content(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (fs::File::open(a)?, fs::File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut x, mut y) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = a.read(&mut x)?;
        if n == 0 {
            return Ok(true);
        }
        if b.read_exact(&mut y[..n]).is_err() || x[..n] != y[..n] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_differs() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for d in [&a, &b] {
            fs::create_dir(d.path().join("d")).unwrap();
            fs::write(d.path().join("d/f"), "same").unwrap();
        }
        let take = || {
            (
                FolderState::take(a.path()).unwrap(),
                FolderState::take(b.path()).unwrap(),
            )
        };
        let (x, y) = take();
        assert_eq!(x.difference(&y), None);
        fs::write(b.path().join("d/f"), "other").unwrap();
        assert!(!same_content(&a.path().join("d/f"), &b.path().join("d/f")).unwrap());
        let (x, y) = take();
        assert_eq!(x.difference(&y), Some("d/f".into()));
        fs::write(a.path().join("c"), "").unwrap();
        let (x, y) = take();
        assert_eq!(x.difference(&y), Some("c".into()));
    }
}

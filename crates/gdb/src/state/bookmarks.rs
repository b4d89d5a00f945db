//! Names that users give to positions. A file beside the trace keeps them.

use crate::{Error, Result};
use hindsight_guard::{outside, private};
use hindsight_timeline::Position;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of the file.
const MOST: u64 = 4 << 20;

/// Bookmarks of one trace.
pub struct Bookmarks {
    path: PathBuf,
    all: BTreeMap<String, String>,
}

impl Bookmarks {
    /// The file with the bookmarks of a trace.
    pub fn path(trace: &Path) -> PathBuf {
        let mut path = trace.as_os_str().to_os_string();
        path.push(".marks");
        path.into()
    }

    /// The bookmarks of `trace`. There are none if their file is missing or unreadable.
    pub fn open(trace: &Path) -> Bookmarks {
        let path = Bookmarks::path(trace);
        let mut text = Vec::new();
        let read = outside::open(&path).and_then(|f| f.take(MOST).read_to_end(&mut text));
        text.truncate(if read.is_ok() { text.len() } else { 0 });
        let all = serde_json::from_slice(&text).unwrap_or_default();
        Bookmarks { path, all }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Position)> {
        self.all
            .iter()
            .filter_map(|(n, p)| Some((n.as_str(), p.parse().ok()?)))
    }

    /// The position of this name.
    pub fn get(&self, name: &str) -> Option<Position> {
        self.all.get(name)?.parse().ok()
    }

    /// A name that is not in use: a number.
    pub fn next_name(&self) -> String {
        let used = self.all.keys().filter_map(|k| k.parse::<u64>().ok()).max();
        let free = |n: &u64| !self.all.contains_key(&n.to_string());
        let next = used.map_or(Some(1), |n| n.checked_add(1));
        next.or_else(|| (1..).find(free)).unwrap_or(0).to_string()
    }

    /// Sets one, and writes the file.
    pub fn set(&mut self, name: &str, position: Position) -> Result<()> {
        let mut all = self.all.clone();
        all.insert(name.into(), position.to_string());
        self.write(all)
    }

    /// Removes one; whether there was one.
    pub fn remove(&mut self, name: &str) -> Result<bool> {
        let mut all = self.all.clone();
        let was = all.remove(name).is_some();
        self.write(all).map(|()| was)
    }

    /// The session keeps the old ones if the file cannot be written.
    fn write(&mut self, all: BTreeMap<String, String>) -> Result<()> {
        let failed = |why: std::io::Error| {
            let to = self.path.display();
            Error::Command(format!("cannot write {to}: {why}"))
        };
        let text = serde_json::to_vec_pretty(&all).map_err(|e| failed(e.into()))?;
        private::write_whole(&self.path, &text).map_err(failed)?;
        self.all = all;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("a.hst");
        let mut b = Bookmarks::open(&trace);
        assert_eq!(b.next_name(), "1");
        b.set("1", Position::new(1, 2)).unwrap();
        b.set("crash", Position::new(0x1a, 0)).unwrap();
        let mut b = Bookmarks::open(&trace);
        assert_eq!(b.get("crash"), Some(Position::new(0x1a, 0)));
        assert_eq!((b.iter().count(), b.next_name().as_str()), (2, "2"));
        assert!(b.remove("1").unwrap());
        assert!(!b.remove("1").unwrap());
        b.set(&u64::MAX.to_string(), Position::new(1, 2)).unwrap();
        assert_eq!(b.next_name(), "1");
        std::fs::write(dir.path().join("a.hst.marks"), "{ no").unwrap();
        assert_eq!(Bookmarks::open(&trace).iter().count(), 0);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("gone/a.hst");
        let mut b = Bookmarks::open(&trace);
        let why = b.set("1", Position::new(1, 2)).unwrap_err().to_string();
        let wanted = format!("cannot write {}.marks: No such file", trace.display());
        assert!(why.starts_with(&wanted), "{why}");
        assert_eq!(b.iter().count(), 0);
    }
}

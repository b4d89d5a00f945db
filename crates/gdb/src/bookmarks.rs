//! Names that users give to positions, kept in a file beside the trace.

use hindsight_timeline::Position;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Bookmarks of one trace.
pub struct Bookmarks {
    path: PathBuf,
    all: BTreeMap<String, String>,
}

impl Bookmarks {
    /// Those that are kept with `trace`; none if there are none, or if their file is unreadable.
    pub fn open(trace: &Path) -> Bookmarks {
        let mut path = trace.as_os_str().to_os_string();
        path.push(".marks");
        let path = PathBuf::from(path);
        let text = std::fs::read(&path).unwrap_or_default();
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
        used.map_or(1, |n| n + 1).to_string()
    }

    /// Sets one, and writes the file.
    pub fn set(&mut self, name: &str, position: Position) -> io::Result<()> {
        self.all.insert(name.into(), position.to_string());
        self.write()
    }

    /// Removes one; whether there was one.
    pub fn remove(&mut self, name: &str) -> io::Result<bool> {
        let was = self.all.remove(name).is_some();
        self.write().map(|()| was)
    }

    fn write(&self) -> io::Result<()> {
        // Whole or not at all.
        let new = self.path.with_extension("marks.new");
        std::fs::write(&new, serde_json::to_vec_pretty(&self.all)?)?;
        std::fs::rename(&new, &self.path)
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
        std::fs::write(dir.path().join("a.hst.marks"), "{ no").unwrap();
        assert_eq!(Bookmarks::open(&trace).iter().count(), 0);
    }
}

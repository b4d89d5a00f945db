//! Coverage as lcov's tracefiles have it (`man geninfo`, "FILES").

use super::read::{Row, each};
use crate::engine::Engine;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

const QUERY: &str =
    "SELECT file, CASE WHEN kind = 'function' THEN function END f, min(line) l, sum(count) n
    FROM coverage WHERE kind IN ('function', 'line') AND file IS NOT NULL AND line > 0
    GROUP BY file, kind, f, CASE WHEN kind = 'line' THEN line END ORDER BY file, kind, l, f";

/// Writes it, of source files below these folders, or else of all with an absolute path: others are not found. Copies of a
/// file, such as those of several processes, are summed up.
///
/// # Errors
/// There is no such file.
pub fn write(engine: &Engine, folders: &[PathBuf], out: &mut dyn Write) -> Result<()> {
    let folders: Vec<PathBuf> = folders.iter().map(|f| normal(f)).collect();
    let mut files: BTreeMap<PathBuf, File> = BTreeMap::new();
    each(engine, QUERY, &mut |row| {
        // Two modules may write the path of a header in two ways.
        let path = normal(Path::new(row.text(0).unwrap_or_default()));
        let wanted = match &folders[..] {
            [] => path.is_absolute(),
            some => some.iter().any(|f| path.starts_with(f)),
        };
        if wanted {
            files.entry(path).or_default().add(&row);
        }
        Ok(())
    })?;
    if files.is_empty() {
        match &folders[..] {
            [] => bail!("the absolute path of no source file is known"),
            some => {
                let all: Vec<String> = some.iter().map(|f| f.display().to_string()).collect();
                bail!("no source file below {}", all.join(" or "))
            }
        }
    }
    (files.iter()).try_for_each(|(path, file)| file.write(path, out))
}

/// A path without `.` and `..`, as its text has them: the folders need not be on this machine.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match (part, out.components().next_back()) {
            (Component::CurDir, _) | (Component::ParentDir, Some(Component::RootDir)) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                out.pop();
            }
            _ => out.push(part),
        }
    }
    out
}

/// What is known of a source file.
#[derive(Default)]
struct File {
    /// The line where each begins, and how often it was called.
    functions: BTreeMap<String, (i64, i64)>,
    /// How often each was executed.
    lines: BTreeMap<i64, i64>,
}

impl File {
    fn add(&mut self, row: &Row) {
        let (at, count) = (row.int(2).unwrap_or(0), row.int(3).unwrap_or(0));
        match row.text(1) {
            Some(function) => {
                let known = self.functions.entry(function.into()).or_insert((at, 0));
                *known = (known.0.min(at), known.1.saturating_add(count));
            }
            None => {
                let known = self.lines.entry(at).or_default();
                *known = known.saturating_add(count);
            }
        }
    }

    fn write(&self, path: &Path, out: &mut dyn Write) -> Result<()> {
        // Without a name of a test.
        writeln!(out, "TN:\nSF:{}", line(&path.to_string_lossy()))?;
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|(_, (at, _))| *at);
        for (name, (at, count)) in functions {
            let name = line(name);
            writeln!(out, "FN:{at},{name}\nFNDA:{count},{name}")?;
        }
        summary(self.functions.values().map(|f| f.1), "FN", out)?;
        for (at, count) in &self.lines {
            writeln!(out, "DA:{at},{count}")?;
        }
        summary(self.lines.values().copied(), "L", out)?;
        Ok(writeln!(out, "end_of_record")?)
    }
}

/// How many there are, and how many of them were executed.
fn summary(
    counts: impl ExactSizeIterator<Item = i64> + Clone,
    of: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let (found, hit) = (counts.len(), counts.filter(|n| *n > 0).count());
    Ok(writeln!(out, "{of}F:{found}\n{of}H:{hit}")?)
}

/// A text in a line of its own.
fn line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_without_dots() {
        for (path, expected) in [
            ("/a/./b/../c.h", "/a/c.h"),
            ("/../a", "/a"),
            ("/a/b/../../..", "/"),
            ("../x/../y", "../y"),
            ("./x", "x"),
        ] {
            assert_eq!(normal(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn functions_stand_in_the_order_of_lines() {
        let mut file = File::default();
        file.functions.insert("g".into(), (3, 0));
        file.functions.insert("f".into(), (7, 2));
        file.lines.insert(3, 1);
        let mut out = Vec::new();
        file.write(Path::new("/a.c"), &mut out).unwrap();
        let expected = "TN:\nSF:/a.c\nFN:3,g\nFNDA:0,g\nFN:7,f\nFNDA:2,f\nFNF:2\nFNH:1\nDA:3,1\nLF:1\nLH:1\nend_of_record\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

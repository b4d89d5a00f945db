//! What recordings are called in answers.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// A name for each path, in the same order: its last parts, as few as tell it from the others, without `.hst`.
pub fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let full: Vec<String> = paths.map(|p| p.to_string_lossy().into_owned()).collect();
    let short: Vec<&str> = (full.iter())
        .map(|p| match p.strip_suffix(".hst") {
            Some(s) if !s.is_empty() && !s.ends_with('/') => s,
            _ => p,
        })
        .collect();
    let mut parts = vec![1; full.len()];
    loop {
        let names: Vec<&str> = (short.iter().zip(&parts))
            .map(|(p, n)| end(p, *n))
            .collect();
        let mut times: HashMap<&str, u32> = HashMap::new();
        names.iter().for_each(|n| *times.entry(n).or_default() += 1);
        let mut grown = false;
        for (i, name) in names.iter().enumerate() {
            if times[name] > 1 && name.len() < short[i].len() {
                parts[i] += 1;
                grown = true;
            }
        }
        if !grown {
            // Where whole paths are the same, only the ending tells them apart.
            let whole = |(i, n): (usize, &&str)| match times[*n] {
                1 => (*n).to_owned(),
                _ => full[i].clone(),
            };
            let names: Vec<String> = names.iter().enumerate().map(whole).collect();
            return match differ(&names) {
                true => names,
                false => numbered(full),
            };
        }
    }
}

fn differ(names: &[String]) -> bool {
    let mut seen = HashSet::new();
    names.iter().all(|n| seen.insert(n))
}

/// Paths that are no UTF-8 may have the same text. Those behind the first one get a number.
fn numbered(mut names: Vec<String>) -> Vec<String> {
    let mut taken: HashSet<String> = names.iter().cloned().collect();
    let mut seen = HashSet::new();
    for name in &mut names {
        if seen.insert(name.clone()) {
            continue;
        }
        let mut numbers = (2..).map(|n| format!("{name}#{n}"));
        if let Some(free) = numbers.find(|n| !taken.contains(n)) {
            taken.insert(free.clone());
            *name = free;
        }
    }
    names
}

/// So many parts of a path from its end, or the whole.
fn end(path: &str, parts: usize) -> &str {
    match path.rmatch_indices('/').nth(parts - 1) {
        Some((at, _)) => &path[at + 1..],
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn names(paths: &[&str]) -> Vec<String> {
        of(paths.iter().map(Path::new))
    }

    #[test]
    fn names_are_short_and_tell_recordings_apart() {
        assert_eq!(names(&["/tmp/a.hst"]), ["a"]);
        assert_eq!(
            names(&["runs/a.hst", "b", "/x/c.core"]),
            ["a", "b", "c.core"]
        );
        assert_eq!(
            names(&["one/a.hst", "two/a.hst", "two/b.hst"]),
            ["one/a", "two/a", "b"]
        );
        assert_eq!(
            names(&["x/one/a.hst", "y/one/a.hst", "a.hst"]),
            ["x/one/a", "y/one/a", "a"]
        );
        assert_eq!(names(&["/a.hst", "a.hst"]), ["/a", "a"]);
        assert_eq!(names(&["a", "a.hst"]), ["a", "a.hst"]);
        assert_eq!(names(&["x/.hst", "x/a.hst"]), [".hst", "a"]);
    }

    #[test]
    fn no_two_names_are_the_same() {
        let three = ["x", "x.hst", "x.hst.hst"];
        assert_eq!(names(&three), three);
        let lossy = |bytes: &'static [u8]| Path::new(OsStr::from_bytes(bytes));
        let paths = [
            lossy(b"d/\xfe.hst"),
            lossy(b"d/\xff.hst"),
            lossy("d/\u{fffd}.hst#2".as_bytes()),
        ];
        let said = ["d/\u{fffd}.hst", "d/\u{fffd}.hst#3", "d/\u{fffd}.hst#2"];
        assert_eq!(of(paths.into_iter()), said);
    }
}

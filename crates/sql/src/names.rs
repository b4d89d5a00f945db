//! What recordings are called in answers.

use std::collections::HashMap;
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
            return names.iter().enumerate().map(whole).collect();
        }
    }
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
}

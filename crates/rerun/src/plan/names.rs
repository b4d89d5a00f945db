//! Names that the program makes up, as those of temporary files. They stand for the recorded ones.

use std::collections::HashMap;

/// Names that are made up differ in so many letters at least. Six letters that are drawn by lot nearly always do.
const OTHERS: usize = 3;

/// Whether two paths of new files or folders are so alike that their names were made up: only letters, digits and the like differ,
/// behind the last slash. A program that counts its files, or that was changed to make another one, differs in fewer or in more.
pub fn is_made_up(now: &[u8], recorded: &[u8]) -> bool {
    let name = |p: &[u8]| p.iter().rposition(|b| *b == b'/').map_or(0, |n| n + 1);
    let at = name(now);
    if now.len() != recorded.len() || at != name(recorded) || now[..at] != recorded[..at] {
        return false;
    }
    let others = now.iter().zip(recorded).filter(|(a, b)| a != b);
    let is_letter = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    others.clone().count() >= OTHERS
        && others
            .into_iter()
            .all(|(a, b)| is_letter(a) && is_letter(b))
}

/// Names of now, and the recorded ones.
#[derive(Debug, Default)]
pub struct Names {
    all: HashMap<Vec<u8>, Vec<u8>>,
    /// The name that came first.
    first: Vec<u8>,
}

impl Names {
    /// A name stands for a recorded one from here on.
    pub fn insert(&mut self, now: Vec<u8>, recorded: Vec<u8>) {
        if self.all.is_empty() {
            self.first.clone_from(&now);
        }
        self.all.insert(now, recorded);
    }

    /// How many there are, with the one that came first and what it stands for. Nobody knows for certain that a name was made up.
    pub fn first(&self) -> Option<(usize, &[u8], &[u8])> {
        let recorded = self.all.get(&self.first)?;
        Some((self.all.len(), &self.first, recorded))
    }

    /// The recorded path that a path stands for. It is such a name, or begins with one: what lies in a folder with that name, or what
    /// has something put behind it. `None`: it stands for itself.
    pub fn recorded(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.all.is_empty() {
            return None;
        }
        let ends = |n: &usize| path.get(*n).is_none_or(|b| !b.is_ascii_alphanumeric());
        // The longest one comes first.
        let mut lengths = (1..=path.len()).rev().filter(ends);
        lengths.find_map(|n| {
            let (name, rest) = path.split_at(n);
            Some([self.all.get(name)?, rest].concat())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_made_up_name_stands_for_what_begins_with_the_recorded_one() {
        let mut names = Names::default();
        names.insert(b"/tmp/aXb".to_vec(), b"/tmp/aYc".to_vec());
        names.insert(b"/tmp/aXb.c/d1".to_vec(), b"/tmp/aYc.c/d2".to_vec());
        let of = |path: &str| {
            names
                .recorded(path.as_bytes())
                .map(|p| String::from_utf8(p).unwrap())
        };
        assert_eq!(of("/tmp/aXb").unwrap(), "/tmp/aYc");
        assert_eq!(of("/tmp/aXb.cache").unwrap(), "/tmp/aYc.cache");
        assert_eq!(of("/tmp/aXb/file").unwrap(), "/tmp/aYc/file");
        assert_eq!(of("/tmp/aXb.c/d1/e").unwrap(), "/tmp/aYc.c/d2/e");
        for other in ["/tmp/aXbc", "/tmp/aX", "/tmp", "", "tmp/aXb", "/tmp/zzz"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(Names::default().recorded(b"/tmp/aXb"), None);
        assert_eq!(names.first(), Some((2, &b"/tmp/aXb"[..], &b"/tmp/aYc"[..])));
        assert_eq!(Names::default().first(), None);
    }

    #[test]
    fn names_that_were_made_up_differ_in_some_letters() {
        let is = |a: &str, b: &str| is_made_up(a.as_bytes(), b.as_bytes());
        assert!(is("/tmp/ccAb3xYz.s", "/tmp/ccQw9eRt.s"));
        assert!(is("sortZZZZZZ", "sortABCDEF"));
        for (a, b) in [
            ("/tmp/log-1", "/tmp/log-2"),
            ("part09", "part10"),
            ("/tmp/ccAb3xYz.s", "/tmp/ccQw9eRt.o.s"),
            ("/tmp/ccAb3xYz.s", "/var/ccQw9eRt.s"),
            ("/tmp/aaaa/x", "/tmp/bbbb/x"),
            ("/tmp/a/bcd", "/tmp/abcde"),
            ("one two.x", "one.two_y"),
            ("same", "same"),
        ] {
            assert!(!is(a, b), "{a} {b}");
        }
    }
}

//! Names that the program makes up, as those of temporary files. They stand for the recorded ones.

use std::collections::HashMap;

/// Names of now, and the recorded ones.
#[derive(Debug, Default)]
pub struct Names {
    all: HashMap<Vec<u8>, Vec<u8>>,
}

impl Names {
    /// A name stands for a recorded one from here on.
    pub fn insert(&mut self, now: Vec<u8>, recorded: Vec<u8>) {
        self.all.insert(now, recorded);
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
    }
}

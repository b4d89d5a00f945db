//! Finds names that are similar to one that does not exist.

use hindsight_text::line;
use strsim::osa_distance;

/// At most this many names are offered.
const MOST: usize = 3;
/// Longer names are not compared. Names in a recording may have any length.
const LONGEST: usize = 200;

/// The names that differ least from `wanted`, the nearest first. Names that differ much are left out.
pub fn similar<S: AsRef<str>>(wanted: &str, names: impl IntoIterator<Item = S>) -> Vec<String> {
    let most = (wanted.len() / 3).clamp(1, 4);
    if wanted.is_empty() || wanted.len() > LONGEST {
        return Vec::new();
    }
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in names {
        let name = name.as_ref();
        if name.len().abs_diff(wanted.len()) > most {
            continue;
        }
        let distance = osa_distance(&wanted.to_lowercase(), &name.to_lowercase());
        if distance <= most && found.iter().all(|f| f.1 != name) {
            found.push((distance, name.to_owned()));
            found.sort();
            found.truncate(MOST);
        }
    }
    found.into_iter().map(|f| f.1).collect()
}

/// The end of a message that offers similar names: `; did you mean a or b?`. Empty if there are none.
pub fn did_you_mean<S: AsRef<str>>(wanted: &str, names: impl IntoIterator<Item = S>) -> String {
    let found = similar(wanted, names);
    // The names may come from a recording, so they are escaped.
    let found: Vec<String> = found.iter().map(|n| line(n).to_string()).collect();
    match found.split_last() {
        None => String::new(),
        Some((last, [])) => format!("; did you mean {last}?"),
        Some((last, rest)) => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered() {
        let names = ["open", "openat", "openat2", "close", "close_range", "read"];
        let said = |wanted| did_you_mean(wanted, names);
        assert_eq!(said("opneat"), "; did you mean openat or openat2?");
        assert_eq!(said("clsoe"), "; did you mean close?");
        assert_eq!(said("Close"), "; did you mean close?");
        for nothing in ["", "x", "munmap", &"open".repeat(100)] {
            assert_eq!(said(nothing), "", "{nothing}");
        }
        // A name that is there twice is offered once.
        assert_eq!(similar("raed", ["read", "read"]), ["read"]);
    }
}

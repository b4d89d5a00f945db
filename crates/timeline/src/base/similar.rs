//! What may have been meant by a name that nothing has.

use hindsight_text::line;
use strsim::osa_distance;

/// Names that are offered at most.
const MOST: usize = 3;
/// Longer names are not compared: names of a recording may have any length.
const LONGEST: usize = 200;

/// Those of `names` that differ least from `wanted`, if they differ by little, the nearest first.
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

/// The same as the end of a message: `; did you mean a or b?`, or nothing.
pub fn did_you_mean<S: AsRef<str>>(wanted: &str, names: impl IntoIterator<Item = S>) -> String {
    let found = similar(wanted, names);
    // They may come from a recording.
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
        // Twice the same name is one.
        assert_eq!(similar("raed", ["read", "read"]), ["read"]);
    }
}

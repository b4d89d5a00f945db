//! The example of docs/diff.md, made again.

use super::{compile, diff, record};
use hindsight_lab::Scene;
use std::fs;
use std::path::Path;

/// A line without what depends on the machine: addresses, positions, and what lies below `main`.
fn plain(line: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let trimmed = word.trim_matches(|c: char| ",;:()[]".contains(c));
        let hex = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_hexdigit());
        let position = trimmed
            .split_once(':')
            .is_some_and(|(a, b)| hex(a) && hex(b));
        let address = trimmed.strip_prefix("0x").is_some_and(|d| d.len() > 6);
        let path = trimmed.contains('/');
        out.push(match (position, address, path) {
            (true, ..) => "POSITION".into(),
            (_, true, _) => "ADDRESS".into(),
            (_, _, true) => Path::new(word)
                .file_name()
                .map_or(String::new(), |f| f.to_string_lossy().into_owned()),
            _ => word.into(),
        });
    }
    out.join(" ")
}

/// The lines that any compiler makes: what differs, which value it is, where it came from.
fn kept(text: &str) -> Vec<String> {
    const ABOUT: [&str; 9] = [
        "Before that",
        "read(3",
        "byte 91",
        "They part",
        "last in common",
        "then",
        "the value that decides",
        "where it came from",
        "call stack of",
    ];
    let lines = text.lines().filter(|l| ABOUT.iter().any(|a| l.contains(a)));
    lines.map(plain).collect()
}

#[test]
fn the_example_of_the_book_is_true() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diff.md");
    let text = fs::read_to_string(&docs).unwrap();
    let shown = text.split("```text\nfirst").nth(1).expect("the example");
    let shown = shown.split("```").next().unwrap();
    // Each line of the program in the book stands in the program of the test.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diff/c/check.c");
    let source = fs::read_to_string(source).unwrap();
    let book = text.split("```c\n").nth(1).unwrap();
    let book = book.split("```").next().unwrap();
    for line in book.lines() {
        assert!(source.lines().any(|l| l == line), "{line}");
    }
    let s = Scene::new();
    let program = compile(&s, "check.c", "check", &[]);
    let argv = [program.as_os_str(), "input".as_ref()];
    let mut input = b"abcdefgh".repeat(20);
    fs::write(s.path("input"), &input).unwrap();
    let good = record(&s, "good.hst", &argv);
    input[91] = b'x';
    fs::write(s.path("input"), &input).unwrap();
    let bad = record(&s, "bad.hst", &argv);
    let done = diff(&s, &good, &bad, &[]);
    assert_eq!(done.status.code(), Some(1), "{}", done.messages());
    assert_eq!(kept(&done.text()), kept(shown), "{}", done.text());
}

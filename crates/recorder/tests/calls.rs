//! The table of system calls says what the recorder does with each. These tests compare it with the code.

use hindsight_syscalls::{
    DESCRIPTOR, DIRECT, MAPS, OWN, PATH, PINS, RIGHTS, Traits, WATCHED, has, names, number,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file without its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|l| l.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}

/// The part of a file behind `from`, up to `to`.
fn part(name: &str, from: &str, to: &str) -> String {
    let code = code(&source(name));
    let begin = code
        .find(from)
        .unwrap_or_else(|| panic!("{name} has no {from}"));
    let rest = &code[begin..];
    rest[..rest.find(to).unwrap()].to_string()
}

/// The calls that are named in code, each with what stands before it.
fn named(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("__NR_") {
        let name: String = code[at + 5..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        found.push((name, code[..at].trim_end().to_string()));
    }
    found
}

fn calls_in(code: &str) -> BTreeSet<String> {
    named(code).into_iter().map(|(name, _)| name).collect()
}

fn with(traits: Traits) -> BTreeSet<String> {
    let has = |n: &&str| has(number(n).unwrap() as u32, traits);
    names().filter(has).map(String::from).collect()
}

#[test]
fn calls_with_code_of_their_own_are_told_so() {
    let arms = part(
        "calls/perform.rs",
        "let ret = match nr {",
        "_ => match mappings",
    );
    assert_eq!(
        calls_in(&arms),
        with(OWN),
        "perform.rs, and those that the table calls OWN"
    );
}

#[test]
fn calls_that_change_mappings_are_told_so() {
    let arms = part(
        "calls/mappings.rs",
        "let done = match nr {",
        "_ => return None",
    );
    assert_eq!(
        calls_in(&arms),
        with(MAPS),
        "mappings.rs, and those that the table calls MAPS"
    );
}

#[test]
fn calls_that_name_files_are_told_so() {
    let arms = part("calls/paths.rs", "fn named(", "\n}\n");
    assert_eq!(
        calls_in(&arms),
        with(PATH),
        "paths.rs, and those that the table calls PATH"
    );
}

#[test]
fn calls_that_take_rights_away_are_told_so() {
    let arms = part("code/rights.rs", "let gives_up = match nr {", "_ => false");
    assert_eq!(
        calls_in(&arms),
        with(RIGHTS),
        "rights.rs, and those that the table calls RIGHTS"
    );
}

/// All Rust files below a folder.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_call_is_looked_at_that_the_table_says_is_only_passed_on() {
    // What the recorder makes itself, here or by these functions.
    let own = ["sys", "vsyscall.rs", "image.rs"];
    let makes = [
        "pass(t,",
        "call(",
        "raw(",
        "raw_clone(",
        "replace(t,",
        "const",
    ];
    let any = DIRECT | OWN | MAPS | PATH | DESCRIPTOR | PINS | RIGHTS | WATCHED;
    let mut seen = 0;
    for file in sources(&source("")) {
        let name = file.strip_prefix(source("")).unwrap();
        let parts = name.to_str().unwrap().trim_end_matches(".rs").to_string();
        if parts.starts_with("sys") || own.iter().any(|o| name.ends_with(o)) {
            continue;
        }
        for (call, before) in named(&code(&file)) {
            let imported = before.ends_with("general::") || before.ends_with("general::{");
            if imported || makes.iter().any(|m| before.ends_with(m)) {
                continue;
            }
            let nr = number(&call).unwrap_or_else(|| panic!("{call}: not in the table")) as u32;
            seen += 1;
            assert!(
                has(nr, any),
                "{} looks at {call}, of which the table of system calls does not tell",
                name.display()
            );
        }
    }
    assert!(seen > 100, "the test sees next to nothing");
}

#[test]
fn the_commonest_calls_need_no_further_look() {
    let looked_at = OWN | MAPS | PATH | PINS | RIGHTS | WATCHED;
    for call in with(DIRECT) {
        let nr = number(&call).unwrap() as u32;
        assert!(
            !has(nr, looked_at),
            "{call} goes to the kernel at once, but is looked at"
        );
    }
}

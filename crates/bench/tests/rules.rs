//! Rules of the project that a machine can check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lines of the dependency tables of each crate.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap();
        let Ok(manifest) = fs::read_to_string(dir.path().join("Cargo.toml")) else {
            continue;
        };
        let mut wanted = false;
        let mut lines = Vec::new();
        for line in manifest.lines().map(str::trim) {
            if line.starts_with('[') {
                wanted = line.ends_with("dependencies]");
            } else if wanted && line.contains('=') && !line.starts_with('#') {
                lines.push(line.to_owned());
            }
        }
        found.insert(dir.file_name().into_string().unwrap(), lines);
    }
    found
}

fn name(line: &str) -> &str {
    line.split(['=', '.', ' ']).next().unwrap()
}

#[test]
fn lower_crates_never_import_higher_ones() {
    // Each may use those to the left of it in its rows.
    let order = [
        "text",
        "guard",
        "isa",
        "confine",
        "events",
        "glue",
        "syscalls",
        "translate",
        "recorder",
        "image",
        "trace",
        "collector",
        "replay",
        "sample",
        "verify",
        "difftest",
        "symbols",
        "mark",
        "timeline",
        "inspect",
        "gdb",
        "cli",
        "bench",
    ];
    let rank = |c: &str| order.iter().position(|o| *o == c);
    let recorder_may = ["isa", "confine", "events", "glue", "syscalls", "translate"];
    let replay_may = [
        "text",
        "guard",
        "isa",
        "confine",
        "events",
        "glue",
        "syscalls",
        "translate",
        "trace",
        "sample",
    ];
    for (of, lines) in dependencies() {
        for used in lines
            .iter()
            .filter_map(|l| name(l).strip_prefix("hindsight-"))
        {
            let allowed = match of.as_str() {
                "recorder" => recorder_may.contains(&used),
                "image" => ["events", "recorder"].contains(&used),
                "replay" => replay_may.contains(&used),
                "trace" => ["text", "guard", "isa", "events"].contains(&used),
                _ => {
                    rank(used)
                        < Some(
                            rank(&of).unwrap_or_else(|| panic!("new crate {of}: give it a place")),
                        )
                }
            };
            assert!(allowed, "{of} must not use {used}");
        }
    }
}

#[test]
fn dependencies_are_pinned_and_justified() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let document = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    for (of, lines) in dependencies() {
        for line in lines.iter().filter(|l| !l.starts_with("hindsight-")) {
            let name = name(line);
            let pinned = if line.contains("workspace") {
                let shared = workspace
                    .lines()
                    .find(|l| l.starts_with(&format!("{name} =")));
                shared
                    .unwrap_or_else(|| panic!("{of}: {name} is not in the workspace"))
                    .contains("\"=")
            } else {
                line.contains("\"=")
            };
            assert!(pinned, "{of}: {name} is not pinned to an exact version");
            assert!(
                document.contains(&format!("`{name}`")),
                "{of}: docs/dependencies.md does not speak of {name}"
            );
        }
    }
}

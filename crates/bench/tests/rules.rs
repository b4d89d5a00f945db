//! Rules of the project that a machine can check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of each crate's dependency tables.
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
    // A crate may use the crates to its left in its rows.
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

/// Folders of `crates/recorder/src`. Each may use the ones before it.
const RECORDER: [&str; 10] = [
    "sys", "stream", "thread", "memory", "code", "signals", "process", "calls", "run", "boot",
];

/// The folder or file of the crate's first level to which `path` belongs.
fn room(path: &Path, src: &Path) -> String {
    let first = path.strip_prefix(src).unwrap().components().next().unwrap();
    let name = first.as_os_str().to_str().unwrap();
    name.trim_end_matches(".rs").to_string()
}

/// All Rust files below a folder.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// The paths behind `crate::` in the code, without comments.
fn own_paths(text: &str) -> Vec<&str> {
    let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    code.flat_map(|l| l.split("crate::").skip(1))
        .map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap()
        })
        .collect()
}

#[test]
fn folders_of_the_recorder_depend_one_way() {
    let src = root().join("crates/recorder/src");
    let rank = |room: &str| RECORDER.iter().position(|r| *r == room);
    let mut seen = std::collections::BTreeSet::new();
    for file in sources(&src) {
        let of = room(&file, &src);
        if of == "lib" {
            continue;
        }
        let own =
            rank(&of).unwrap_or_else(|| panic!("new folder {of}: give it a place in RECORDER"));
        for used in own_paths(&fs::read_to_string(&file).unwrap()) {
            if let Some(r) = rank(used) {
                assert!(r <= own, "{}: {of} must not use {used}", file.display());
                seen.insert((own, r));
            }
        }
    }
    assert!(seen.len() > RECORDER.len(), "the test sees next to nothing");
}

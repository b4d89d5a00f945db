//! Rules of the project that a machine can check. `sizes.rs` has those about sizes and cycles of files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crates that only tests use. Those of any crate may, since no library comes to depend on them.
const FOR_TESTS: [&str; 4] = ["random", "sample", "oracle", "lab"];

/// The lines of each crate's dependency tables. Where tests use a crate that is only for them, that line is left out.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap();
        let Ok(manifest) = fs::read_to_string(dir.path().join("Cargo.toml")) else {
            continue;
        };
        let (mut wanted, mut tests) = (false, false);
        let mut lines = Vec::new();
        for line in manifest.lines().map(str::trim) {
            if line.starts_with('[') {
                wanted = line.ends_with("dependencies]");
                tests = line.ends_with("dev-dependencies]");
            } else if wanted && line.contains('=') && !line.starts_with('#') {
                let used = name(line).strip_prefix("hindsight-");
                if !(tests && used.is_some_and(|used| FOR_TESTS.contains(&used))) {
                    lines.push(line.to_owned());
                }
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
        "random",
        "compress",
        "guard",
        "isa",
        "interp",
        "confine",
        "events",
        "glue",
        "syscalls",
        "remote",
        "translate",
        "recorder",
        "image",
        "trace",
        "store",
        "collector",
        "replay",
        "sample",
        "symbols",
        "verify",
        "difftest",
        "mark",
        "timeline",
        "oracle",
        "inspect",
        "headers",
        "origin",
        "compare",
        "rerun",
        "resume",
        "packets",
        "gdb",
        "fuzz",
        "web",
        "launch",
        "cli",
        "sql",
        "lab",
        "bench",
    ];
    let rank = |c: &str| order.iter().position(|o| *o == c);
    let recorder_may = ["isa", "confine", "events", "glue", "syscalls", "translate"];
    let replay_may = [
        "text",
        "guard",
        "isa",
        "interp",
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
                "trace" => ["text", "compress", "guard", "isa", "events"].contains(&used),
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

/// What a line of a dependency table asks for, or the workspace's line that it names.
fn wanted<'a>(of: &str, line: &'a str, workspace: &'a str) -> &'a str {
    if !line.contains("workspace") {
        return line;
    }
    let name = name(line);
    let mut shared = workspace.lines();
    shared
        .find(|l| l.starts_with(&format!("{name} =")))
        .unwrap_or_else(|| panic!("{of}: {name} is not in the workspace"))
}

/// The version in a line of a dependency table.
fn version(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('=')?;
    let rest = match rest.trim_start().starts_with('{') {
        true => rest.split_once("version = ")?.1,
        false => rest,
    };
    rest.split('"').nth(1)
}

/// Who uses a library of this project must be able to use another version of the same library. The lock files say which
/// versions the programs are built with.
#[test]
fn dependencies_are_ranges_and_justified() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let document = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    for (of, lines) in dependencies() {
        for line in lines.iter().filter(|l| !l.starts_with("hindsight-")) {
            let name = name(line);
            let version = version(wanted(&of, line, &workspace));
            let parts = version.map(|v| v.split('.').map(str::parse::<u32>));
            assert!(
                parts.is_some_and(|mut p| p.clone().count() == 3 && p.all(|n| n.is_ok())),
                "{of}: {name} = {version:?} is not the least version that will do, as 1.2.3"
            );
            assert!(
                document.contains(&format!("`{name}`")),
                "{of}: docs/dependencies.md does not speak of {name}"
            );
        }
    }
}

/// A crate that can be published names the versions of those that it needs. Crates that only tests use have none, and are
/// left out of what is published.
#[test]
fn crates_that_can_be_published_name_versions_of_each_other() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let own = workspace.lines().find_map(|l| l.strip_prefix("version = "));
    let own = own.unwrap().trim_matches('"');
    for (of, lines) in dependencies() {
        let manifest = fs::read_to_string(root().join(format!("crates/{of}/Cargo.toml"))).unwrap();
        if manifest.contains("publish = false") {
            continue;
        }
        for line in lines.iter().filter(|l| l.starts_with("hindsight-")) {
            let found = version(wanted(&of, line, &workspace));
            let tests = &manifest[manifest
                .find("[dev-dependencies]")
                .unwrap_or(manifest.len())..];
            let only_tests = found.is_none() && tests.contains(line.as_str());
            assert!(found == Some(own) || only_tests, "{of}: {line}");
        }
    }
}

/// The packages of a lock file: names, versions and sources.
fn locked(file: &Path) -> Vec<(String, String, Option<String>)> {
    let text = fs::read_to_string(file).unwrap();
    let packages = text.split("[[package]]\n").skip(1).map(|package| {
        let of = |key: &str| {
            let start = format!("{key} = \"");
            let line = package.lines().find_map(|l| l.strip_prefix(&start));
            line.map(|l| l.trim_end_matches('"').to_string())
        };
        (of("name").unwrap(), of("version").unwrap(), of("source"))
    });
    packages.collect()
}

/// A part of what `scripts/deny` checks, which needs no tool and no network.
#[test]
fn packages_come_from_one_registry_and_in_one_version() {
    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let rules = fs::read_to_string(root().join("deny.toml")).unwrap();
    for lock in ["Cargo.lock", "crates/image/Cargo.lock"] {
        let packages = locked(&root().join(lock));
        assert!(packages.len() > 10, "{lock}");
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, version, source) in &packages {
            match source {
                Some(source) => assert_eq!(source, REGISTRY, "{lock}: {name}"),
                None => assert!(name.starts_with("hindsight-"), "{lock}: {name}"),
            }
            versions.entry(name).or_default().push(version);
        }
        for (name, versions) in versions.iter().filter(|v| v.1.len() > 1) {
            assert!(
                rules.contains(&format!("crate = \"{name}\"")),
                "{lock}: {name} comes in the versions {versions:?}, and deny.toml gives no reason"
            );
        }
    }
}

/// The disassembler is the largest dependency. Were it built with other features for one crate than for all,
/// `cargo test -p` and `cargo run -p` would compile it again, and each crate above it.
#[test]
fn all_crates_test_with_the_same_disassembler() {
    for (of, lines) in dependencies() {
        let mut wanted = lines.iter().filter(|l| name(l) == "iced-x86").peekable();
        // What the image is made of stays small.
        assert!(
            wanted.peek().is_none() || wanted.any(|l| l.contains("\"intel\"")),
            "{of}: give iced-x86 the feature `intel` (among the dev-dependencies if the crate does not need it)"
        );
    }
}

/// Crates whose folders (and files) of the first level depend one way: each may use those before it.
const ROOMS: [(&str, &[&str]); 4] = [
    (
        "recorder",
        &[
            "sys", "stream", "thread", "memory", "code", "signals", "process", "calls", "run",
            "boot",
        ],
    ),
    (
        "timeline",
        &[
            "base",
            "breakpath",
            "expression",
            "model",
            "scan",
            "recording",
            "index",
            "engine",
            "play",
            "access",
            "value",
            "search",
            "calls",
            "travel",
            "extras",
        ],
    ),
    (
        "gdb",
        &[
            "program", "state", "process", "run", "monitor", "answers", "server",
        ],
    ),
    (
        "launch",
        &[
            "selection",
            "outcome",
            "sys",
            "program",
            "recorder_log",
            "error",
            "notice",
            "recorder_binary",
            "explain",
            "retention",
            "destination",
            "translations",
            "shared",
            "detach",
            "mark",
            "dump",
            "front",
            "recording",
            "record",
            "attach",
        ],
    ),
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

/// The code of a file, comments left out.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The first names of a path that stands before this: of `a::b` `a`, and of `{a::b, c::{d, e}}` `a` and `c`.
fn first_names(rest: &str) -> Vec<&str> {
    let word = |s: &'_ str| {
        s.len()
            - s.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
                .len()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![&rest[..word(rest)]];
    };
    let (mut out, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let item = group[begin..i].trim_start();
                out.push(&item[..word(item)]);
                begin = i + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    out
}

/// What `lib.rs` exports, by name, and the folder it comes from.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for export in lib.split("pub use ").skip(1) {
        let export = export.split(';').next().unwrap();
        let Some((room, rest)) = export.split_once("::") else {
            continue;
        };
        let last = rest.rsplit_once("::").map_or(rest, |(_, names)| names);
        for name in last.trim_matches(['{', '}', '\n', ' ']).split(',') {
            let name = name.rsplit(" as ").next().unwrap().trim();
            out.insert(name.to_string(), room.to_string());
        }
    }
    out
}

#[test]
fn registers_have_their_numbers_in_one_place() {
    // The tables, and an oracle that must not rest on them.
    let apart = ["isa/src/regs.rs", "difftest/"];
    let names = [
        "AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI", "8", "9", "10", "11", "12", "13", "14",
        "15",
    ];
    let crates = root().join("crates");
    let mut seen = 0;
    for file in sources(&crates) {
        let name = file.strip_prefix(&crates).unwrap().to_str().unwrap();
        if !name.contains("/src/") || apart.iter().any(|a| name.starts_with(a)) {
            continue;
        }
        let code = code_of(&file);
        seen += code.contains("regs::") as usize;
        let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let numbered = |rest: &str| {
            rest.split_once(']')
                .is_some_and(|(n, _)| n.parse::<u8>().is_ok())
        };
        let told = names.iter().any(|n| {
            let number = |size: &str| {
                let told = format!("const R{n}: {size} = ");
                code.split(&told).skip(1).any(digit)
            };
            number("usize") || number("u8")
        });
        assert!(
            !told,
            "{name} says what number a register has: take it from hindsight_isa::regs"
        );
        assert!(
            !code.split("gpr[").skip(1).any(numbered),
            "{name} names a register by a number: hindsight_isa::regs has constants"
        );
        let list = ["\"rax\", \"rcx\"", "\"rax\", \"rbx\"", "\"rdi\", \"rsi\""];
        assert!(
            !list.iter().any(|l| code.contains(l)),
            "{name} lists registers by name: hindsight_isa::regs has the names in each order"
        );
    }
    assert!(seen > 10, "the test sees next to nothing");
}

#[test]
fn folders_of_a_crate_depend_one_way() {
    for (of, rooms) in ROOMS {
        let src = root().join("crates").join(of).join("src");
        let exports = exports(&code_of(&src.join("lib.rs")));
        let rank = |room: &str| rooms.iter().position(|r| *r == room);
        let mut seen = std::collections::BTreeSet::new();
        for file in sources(&src) {
            let room = room(&file, &src);
            if room == "lib" {
                continue;
            }
            let own = rank(&room)
                .unwrap_or_else(|| panic!("new folder {room} of {of}: give it a place in ROOMS"));
            let code = code_of(&file);
            for used in code.split("crate::").skip(1).flat_map(first_names) {
                let from = exports.get(used).map_or(used, |r| r.as_str());
                if let Some(r) = rank(from) {
                    assert!(
                        r <= own,
                        "{}: {room} must not use {from} ({used})",
                        file.display()
                    );
                    seen.insert((own, r));
                }
            }
        }
        assert!(
            seen.len() > rooms.len(),
            "of {of} the test sees next to nothing"
        );
    }
}

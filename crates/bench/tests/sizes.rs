//! Rules about the length of functions and files, and about cycles of files that import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Rust files below a folder, by their paths from there.
fn sources(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap();
                found.insert(name.to_string(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Most lines of a function that needs no reason, and of a file.
const FUNCTION: usize = 100;
const FILE: usize = 600;

/// Functions that are longer, each with its reason: a table that splitting would tear apart, or a loop whose state is
/// in local variables. There should be no more than ten.
const LONG: [(&str, &str, &str); 8] = [
    (
        "events/src/encode.rs",
        "encode",
        "one arm for each kind of event",
    ),
    (
        "events/src/decode.rs",
        "decode",
        "one arm for each kind of event",
    ),
    (
        "replay/src/apply.rs",
        "event",
        "one arm for each kind of event",
    ),
    (
        "replay/src/native.rs",
        "spin",
        "the loop around translated code keeps its state in registers",
    ),
    (
        "timeline/src/extras/system/names.rs",
        "names",
        "a table of names",
    ),
    (
        "oracle/src/plain.rs",
        "play",
        "a loop whose state is in local variables",
    ),
    (
        "bench/src/main.rs",
        "bench",
        "one measurement after the other",
    ),
    (
        "timeline/tests/travel/index.rs",
        "cut_foreign_stale_and_damaged_ones_are_not_used_and_made_anew",
        "one case after the other, on one recording",
    ),
];

/// The name of the function that begins in a line.
fn begins(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(more) = rest.strip_prefix("pub") {
        rest = match more.strip_prefix('(') {
            Some(more) => more.split_once(')')?.1,
            None => more,
        }
        .trim_start();
    }
    loop {
        let words = ["const ", "unsafe ", "async ", "extern \"C\" "];
        let Some(more) = words.iter().find_map(|w| rest.strip_prefix(w)) else {
            break;
        };
        rest = more.trim_start();
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// The functions of a file, with their lines. A function ends where a brace stands alone below its beginning.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = begins(line).filter(|_| !line.ends_with([';', '}'])) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        if let Some(n) = lines[i..].iter().position(|l| **l == end) {
            found.push((name, n + 1));
        }
    }
    found
}

#[test]
fn functions_are_short_or_have_a_reason() {
    let mut long = BTreeMap::new();
    let mut seen = 0;
    for (file, text) in sources(&crates()) {
        for (name, lines) in functions(&text) {
            seen += 1;
            if lines > FUNCTION {
                long.insert((file.clone(), name.to_string()), lines);
            }
        }
    }
    assert!(seen > 5000, "the test sees next to nothing");
    let excused = LONG.map(|(file, name, _)| (file.to_string(), name.to_string()));
    for (which, lines) in &long {
        assert!(
            excused.contains(which),
            "{which:?} has {lines} lines: split it, or give a reason in LONG"
        );
    }
    for which in excused {
        assert!(
            long.contains_key(&which),
            "{which:?} is short: take it out of LONG"
        );
    }
}

#[test]
fn no_file_is_long() {
    for (file, text) in sources(&crates()) {
        let lines = text.lines().count();
        assert!(lines <= FILE, "{file} has {lines} lines, more than {FILE}");
    }
}

/// Folders in which files may form larger cycles, and why.
const CYCLES: [(&str, &str, &str); 2] = [
    (
        "recorder",
        "run/",
        "the main loop, and what it does at each exit, call each other",
    ),
    (
        "recorder",
        "thread/",
        "a thread and its parts know each other",
    ),
];

/// The modules that the text of a module names, by paths that begin with `crate`, `super` or `self`.
fn named(module: &str, text: &str) -> Vec<Vec<String>> {
    let code: String = text
        .lines()
        .map(|l| l.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let own: Vec<String> = match module {
        "" => Vec::new(),
        _ => module.split('/').map(String::from).collect(),
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for root in ["crate", "super", "self"] {
        for (at, _) in code.match_indices(root) {
            let rest = &code[at + root.len()..];
            if code[..at].ends_with(|c: char| is_word(c) || c == ':') || !rest.starts_with("::") {
                continue;
            }
            let base = match root {
                "crate" => Vec::new(),
                "self" => own.clone(),
                _ => own[..own.len().saturating_sub(1)].to_vec(),
            };
            paths(&rest[2..], base, &mut found);
        }
    }
    found
}

/// The paths of a use tree that stands at the start of `rest`, behind `base`. Returns the rest behind it.
fn paths<'a>(rest: &'a str, mut base: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = rest.trim_start();
    if let Some(group) = rest.strip_prefix('{') {
        rest = group;
        loop {
            rest = paths(rest, base.clone(), found).trim_start();
            // What stands behind a name: `as other`, `*`.
            rest = rest.trim_start_matches(|c: char| !matches!(c, ',' | '}'));
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest.strip_prefix('}').unwrap_or(""),
            }
        }
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (word, more) = rest.split_at(end.unwrap_or(rest.len()));
    match word {
        "super" => drop(base.pop()),
        "self" => {}
        _ => base.push(word.to_string()),
    }
    match more.strip_prefix("::") {
        Some(more) => paths(more, base, found),
        None => {
            found.push(base);
            more
        }
    }
}

/// Which modules each module of a crate imports. The root is the empty name.
fn imports(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files = sources(src);
    let module = |file: &str| match file.trim_end_matches(".rs") {
        "lib" | "main" => String::new(),
        name => name.trim_end_matches("/mod").to_string(),
    };
    let modules: BTreeSet<String> = files.keys().map(|f| module(f)).collect();
    let mut out = BTreeMap::new();
    for (file, text) in &files {
        let from = module(file);
        let mut to = BTreeSet::new();
        for path in named(&from, text) {
            // The module is the longest beginning of the path that is one. The root only gathers.
            let ends = (0..=path.len()).rev().map(|n| path[..n].join("/"));
            if let Some(m) = { ends }.find(|m| modules.contains(m))
                && m != from
                && !m.is_empty()
            {
                to.insert(m);
            }
        }
        out.insert(from, to);
    }
    out
}

/// All modules that a module leads to.
fn reached(from: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from.to_string()];
    while let Some(m) = todo.pop() {
        for next in imports.get(&m).into_iter().flatten() {
            if seen.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn at_most_three_files_import_each_other() {
    let mut seen = 0;
    for entry in fs::read_dir(crates()).unwrap() {
        let of = entry.unwrap().file_name().into_string().unwrap();
        let src = crates().join(&of).join("src");
        if !src.is_dir() {
            continue;
        }
        let imports = imports(&src);
        let reached: BTreeMap<&String, BTreeSet<String>> =
            imports.keys().map(|m| (m, reached(m, &imports))).collect();
        seen += imports.values().map(BTreeSet::len).sum::<usize>();
        for (m, to) in &reached {
            let cycle: Vec<&String> = to.iter().filter(|o| reached[o].contains(*m)).collect();
            let excused = |(crate_name, folder, _): &(&str, &str, &str)| {
                let within = |m: &String| format!("{m}/").starts_with(folder);
                *crate_name == of && cycle.iter().all(|m| within(m))
            };
            assert!(
                cycle.len() <= 3 || CYCLES.iter().any(excused),
                "files of {of} import each other: {cycle:?}"
            );
        }
    }
    assert!(seen > 500, "the test sees next to nothing");
}

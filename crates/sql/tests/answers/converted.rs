//! Formats of other tools, read by lcov, and by strict readers.

use super::ask::*;
use hindsight_lab::{Done, Scene, words};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

fn convert(scene: &Scene, trace: &Path, args: &[&str]) -> Done {
    let mut command = scene.command(env!("CARGO_BIN_EXE_hindsight-sql"));
    scene.run(command.arg("convert").arg(trace).args(args))
}

fn text(scene: &Scene, trace: &Path, args: &[&str]) -> String {
    let done = convert(scene, trace, args);
    assert!(done.status.success(), "{args:?}: {}", done.messages());
    done.text()
}

/// A source file in a tracefile: how often functions and lines were executed.
#[derive(Default)]
struct Covered {
    functions: BTreeMap<String, (u64, u64)>,
    lines: BTreeMap<u64, u64>,
}

/// Reads a tracefile of lcov, and fails for all that the format does not have.
fn lcov(text: &str) -> BTreeMap<String, Covered> {
    let mut all: BTreeMap<String, Covered> = BTreeMap::new();
    let mut file: Option<(String, Covered, BTreeMap<String, u64>)> = None;
    let mut named = false;
    for line in text.lines() {
        if line == "end_of_record" {
            let (path, covered, sums) = file.take().expect("a record");
            let hit = |mut n: Box<dyn Iterator<Item = u64> + '_>| {
                n.by_ref().filter(|n| *n > 0).count() as u64
            };
            assert_eq!(sums["FNF"], covered.functions.len() as u64, "{path}");
            assert_eq!(
                sums["FNH"],
                hit(Box::new(covered.functions.values().map(|f| f.1))),
                "{path}"
            );
            assert_eq!(sums["LF"], covered.lines.len() as u64, "{path}");
            assert_eq!(
                sums["LH"],
                hit(Box::new(covered.lines.values().copied())),
                "{path}"
            );
            assert!(all.insert(path, covered).is_none());
            named = false;
            continue;
        }
        let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
        if key == "TN" {
            assert!(file.is_none() && value.is_empty());
            named = true;
            continue;
        }
        if key == "SF" {
            assert!(named && file.is_none() && !value.is_empty());
            file = Some((value.into(), Covered::default(), BTreeMap::new()));
            continue;
        }
        let (_, covered, sums) = file.as_mut().expect("SF before others");
        let number = |n: &str| n.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        match key {
            "FN" => {
                let (at, name) = value.split_once(',').unwrap();
                assert!(
                    number(at) > 0
                        && covered
                            .functions
                            .insert(name.into(), (number(at), u64::MAX))
                            .is_none(),
                    "{line}"
                );
            }
            "FNDA" => {
                let (count, name) = value.split_once(',').unwrap();
                covered.functions.get_mut(name).expect("FN before FNDA").1 = number(count);
            }
            "DA" => {
                let (at, count) = value.split_once(',').unwrap();
                assert!(
                    covered.lines.insert(number(at), number(count)).is_none(),
                    "{line}"
                );
            }
            "FNF" | "FNH" | "LF" | "LH" => {
                assert!(sums.insert(key.into(), number(value)).is_none(), "{line}")
            }
            _ => panic!("{line}"),
        }
    }
    assert!(file.is_none());
    all
}

#[test]
fn coverage_is_written_as_a_tracefile() {
    let a = accounts();
    let text = text(&a.scene, &a.trace, &["--to", "lcov"]);
    let all = lcov(&text);
    let (_, ours) = all
        .iter()
        .find(|(path, _)| path.ends_with("/accounts.c"))
        .expect("accounts.c");
    assert_eq!(ours.functions["pay"].1, 200);
    assert_eq!(ours.functions["note"].1, 20);
    assert!(ours.functions["main"].1 == 1 && ours.functions["main"].0 > ours.functions["pay"].0);
    let lines = a.rows("select line, sum(count) n from coverage where kind = 'line' and file like '%/accounts.c' and line > 0 group by line");
    assert!(lines.len() > 20);
    assert_eq!(lines.len(), ours.lines.len());
    for l in lines {
        assert_eq!(ours.lines[&l["line"].as_u64().unwrap()], l["n"], "{l}");
    }
    // Files that cannot be found are not in it.
    assert!(all.keys().all(|path| path.starts_with('/')));
    // So do the tools, which show the sources.
    let file = a.scene.path("cov.info");
    let programs = hindsight_lab::programs();
    let ours = ["--to", "lcov", "--source", programs.to_str().unwrap()];
    let ours = self::text(&a.scene, &a.trace, &ours);
    assert_eq!(lcov(&ours).len(), 1);
    std::fs::write(&file, &ours).unwrap();
    let whole = ours;
    let done = a
        .scene
        .run(a.scene.command("lcov").arg("--list").arg(&file));
    assert!(done.status.success(), "{}", done.messages());
    assert!(done.text().contains("accounts.c"), "{}", done.text());
    let html = a.scene.path("html");
    let mut genhtml = a.scene.command("genhtml");
    let done = a.scene.run(genhtml.arg(&file).arg("-o").arg(&html));
    assert!(done.status.success(), "{}", done.messages());
    assert!(html.join("index.html").exists());
    // Folders may be written in several ways.
    let around = programs.join("../programs/./");
    assert!(around.exists(), "{}", around.display());
    let around = ["--to", "lcov", "--source", around.to_str().unwrap()];
    assert_eq!(self::text(&a.scene, &a.trace, &around), whole);
    let elsewhere = ["--to", "lcov", "--source", "no/such/folder"];
    let done = convert(&a.scene, &a.trace, &elsewhere);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("no source file below /"),
        "{}",
        done.messages()
    );
}

#[test]
fn a_profile_is_written_as_folded_stacks() {
    let a = accounts();
    let folded = text(&a.scene, &a.trace, &["--to", "folded"]);
    let mut sum = 0;
    let mut pay = 0;
    for line in folded.lines() {
        let (stack, n) = line.rsplit_once(' ').unwrap();
        let n: u64 = n.parse().unwrap();
        let parts: Vec<&str> = stack.split(';').collect();
        assert!(
            n > 0 && parts.len() > 1 && parts.iter().all(|p| !p.is_empty()),
            "{line}"
        );
        assert_eq!(parts[0], "accounts", "{line}");
        sum += n;
        pay += if parts.last() == Some(&"pay") { n } else { 0 };
    }
    let all = a.row("select sum(instructions) n, sum(case when function = 'pay' then instructions end) p from profile");
    assert!(all["n"] == sum && all["p"] == pay, "{all} {sum} {pay}");
}

/// The columns of a table of the Firefox profiler's format. All have the length that it says.
fn columns<'a>(of: &'a Value, wanted: &[&str]) -> HashMap<&'a str, &'a Vec<Value>> {
    let length = of["length"].as_u64().unwrap() as usize;
    let found: HashMap<&str, &Vec<Value>> = (of.as_object().unwrap().iter())
        .filter_map(|(k, v)| Some((k.as_str(), v.as_array()?)))
        .collect();
    for column in wanted {
        assert_eq!(found[column].len(), length, "{column}");
    }
    found
}

/// Fails if something has no value under one of these names.
fn has(of: &Value, keys: &[&str]) {
    for key in keys {
        assert!(!of[*key].is_null(), "{key}");
    }
}

fn index(v: &Value) -> usize {
    v.as_u64().unwrap() as usize
}

/// What a thread of a profile says: paths of functions, and how many instructions.
fn paths(t: &Value, libs: usize) -> Vec<(String, u64)> {
    has(
        t,
        &[
            "processType",
            "processStartupTime",
            "registerTime",
            "pausedRanges",
            "name",
            "tid",
        ],
    );
    assert!(t["pid"].is_string());
    let strings = t["stringArray"].as_array().unwrap();
    let samples = columns(&t["samples"], &["stack", "time", "weight"]);
    assert_eq!(t["samples"]["weightType"], "samples");
    let wanted = ["frame", "prefix", "category", "subcategory"];
    let stacks = columns(&t["stackTable"], &wanted);
    let of_code = [
        "address",
        "inlineDepth",
        "func",
        "nativeSymbol",
        "innerWindowID",
    ];
    columns(&t["frameTable"], &of_code);
    let of_source = [
        "category",
        "subcategory",
        "implementation",
        "line",
        "column",
    ];
    let frames = columns(&t["frameTable"], &of_source);
    columns(
        &t["funcTable"],
        &[
            "isJS",
            "relevantForJS",
            "fileName",
            "lineNumber",
            "columnNumber",
        ],
    );
    let funcs = columns(&t["funcTable"], &["name", "resource"]);
    let resources = columns(&t["resourceTable"], &["lib", "name", "host", "type"]);
    columns(
        &t["markers"],
        &["data", "name", "startTime", "endTime", "phase", "category"],
    );
    columns(
        &t["nativeSymbols"],
        &["libIndex", "address", "name", "functionSize"],
    );
    for f in funcs["resource"] {
        let n = f.as_i64().unwrap();
        assert!(n == -1 || index(&resources["lib"][n as usize]) < libs);
    }
    assert!(samples["time"].is_sorted_by_key(|t| t.as_f64().unwrap()));
    let path = |stack: &Value| {
        let mut names = Vec::new();
        let mut at = Some(index(stack));
        while let Some(stack) = at {
            let func = index(&frames["func"][index(&stacks["frame"][stack])]);
            names.push(strings[index(&funcs["name"][func])].as_str().unwrap());
            let next = stacks["prefix"][stack].as_u64().map(|n| n as usize);
            assert!(next.is_none_or(|n| n < stack));
            at = next;
        }
        names.reverse();
        names.join(";")
    };
    let all = samples["stack"].iter().zip(samples["weight"]);
    all.map(|(s, weight)| (path(s), weight.as_u64().unwrap()))
        .collect()
}

#[test]
fn a_profile_is_written_for_the_firefox_profiler() {
    let scene = Scene::new();
    let program = scene.compile("values.c", &["-g", "-O0", "-pthread"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.status.success());
    let text = text(&scene, &trace, &["--to", "firefox"]);
    let profile: Value = serde_json::from_str(&text).unwrap();
    // What `ProfileMeta`, `Lib` and `RawThread` do not mark as optional.
    let meta = &profile["meta"];
    has(
        meta,
        &[
            "interval",
            "startTime",
            "processType",
            "product",
            "stackwalk",
            "version",
        ],
    );
    has(meta, &["preprocessedProfileVersion", "markerSchema"]);
    let grey = |c: &Value| c["color"] == "grey" && c["subcategories"][0] == "Other";
    assert!(meta["categories"].as_array().unwrap().iter().any(grey));
    let libs = profile["libs"].as_array().unwrap();
    for lib in libs {
        has(
            lib,
            &[
                "arch",
                "name",
                "path",
                "debugName",
                "debugPath",
                "breakpadId",
            ],
        );
    }
    let threads = profile["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 3);
    assert_eq!(
        threads.iter().filter(|t| t["isMainThread"] == true).count(),
        1
    );
    // Per thread and path of functions: instructions.
    let mut found: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for t in threads {
        for (path, n) in paths(t, libs.len()) {
            *found.entry((t["tid"].as_u64().unwrap(), path)).or_default() += n;
        }
    }
    let mut expected: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for r in rows(
        &scene,
        &trace,
        "select tid, stack, p.instructions n from profile p join threads t on p.thread = t.thread where p.instructions > 0",
    ) {
        let key = (
            r["tid"].as_u64().unwrap(),
            r["stack"].as_str().unwrap().to_owned(),
        );
        *expected.entry(key).or_default() += r["n"].as_u64().unwrap();
    }
    assert!(expected.len() > 10);
    assert_eq!(found, expected);
}

#[test]
fn time_is_written_for_perfetto() {
    let a = accounts();
    // What is named twice is there once.
    let args = [
        "--to", "perfetto", "--calls", "pay", "--calls", "main", "--calls", "note", "--calls",
        "malloc", "--calls", "pay",
    ];
    let trace: Value = serde_json::from_str(&text(&a.scene, &a.trace, &args)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str, category: &str| -> Vec<&Value> {
        let all = events
            .iter()
            .filter(|e| e["ph"] == phase && e["cat"] == category);
        all.collect()
    };
    let calls = of("B", "call");
    let count = |name: &str| calls.iter().filter(|c| c["name"] == name).count();
    assert_eq!((count("pay"), count("main"), count("note")), (200, 1, 20));
    assert!(count("malloc") >= 20);
    assert_eq!(
        calls.iter().find(|c| c["name"] == "pay").unwrap()["args"]["arguments"],
        "who=0, amount=0"
    );
    for (category, question) in [
        ("syscall", "select count(*) n from syscalls"),
        ("signal", "select count(*) n from signals"),
    ] {
        assert_eq!(a.row(question)["n"], of("i", category).len(), "{category}");
    }
    // Slices lie in each other, and times of a thread do not go back.
    let mut open: HashMap<u64, Vec<(&Value, f64)>> = HashMap::new();
    let mut deepest = 0;
    let mut last: HashMap<u64, f64> = HashMap::new();
    for e in events.iter().filter(|e| e["ph"] == "B" || e["ph"] == "E") {
        let (tid, at) = (e["tid"].as_u64().unwrap(), e["ts"].as_f64().unwrap());
        assert!(
            e["pid"].is_u64() && last.insert(tid, at).is_none_or(|before| before <= at),
            "{e}"
        );
        let stack = open.entry(tid).or_default();
        match e["ph"] == "B" {
            true => stack.push((e, at)),
            false => {
                stack.pop().expect("a slice that begins");
            }
        }
        deepest = deepest.max(stack.len());
    }
    assert!(open.values().all(Vec::is_empty));
    // The thread, main, note, malloc.
    assert!(deepest >= 4, "{deepest}");
    let names: Vec<&str> = events
        .iter()
        .filter(|e| e["ph"] == "M")
        .map(|e| e["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["process_name", "thread_name"]);
    // The recording says when calls were made.
    assert_eq!(trace["otherData"]["times"], "the recording's clock");
    let seconds = a.row("select max(seconds) s from syscalls")["s"]
        .as_f64()
        .unwrap();
    let end = events
        .iter()
        .filter_map(|e| e["ts"].as_f64())
        .fold(0.0, f64::max);
    assert!((end / 1e6 - seconds).abs() < 0.5, "{end} {seconds}");
}

#[test]
fn a_file_is_made_whole_or_not_at_all() {
    let a = accounts();
    let to = a.scene.path("out");
    let path = to.to_str().unwrap();
    let done = convert(&a.scene, &a.trace, &["--to", "folded", "-o", path]);
    assert!(
        done.status.success() && done.text().is_empty(),
        "{}",
        done.messages()
    );
    let whole = std::fs::read_to_string(&to).unwrap();
    assert_eq!(whole, text(&a.scene, &a.trace, &["--to", "folded"]));
    let none = a.scene.path("none");
    for (args, word) in [
        (&["--to", "folded", "-o", path][..], "exists"),
        (&["--to", "folded", "--calls", "pay"], "--to perfetto"),
        (&["--to", "folded", "--source", "/"], "--to lcov"),
        (
            &[
                "--to",
                "perfetto",
                "--calls",
                "no_such_function",
                "-o",
                none.to_str().unwrap(),
            ],
            "no_such_function",
        ),
    ] {
        let done = convert(&a.scene, &a.trace, args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(
            done.messages().contains(word),
            "{args:?}: {}",
            done.messages()
        );
    }
    assert!(!none.exists());
    let done = convert(&a.scene, &PathBuf::from("/no/such.hst"), &["--to", "lcov"]);
    assert_eq!(done.status.code(), Some(2));
}

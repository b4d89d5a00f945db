//! How often code was executed, and what calls cost, against other tools.

use super::ask::*;
use hindsight_lab::{Scene, words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// `covered.c`, compiled with debug information.
fn covered(scene: &Scene) -> (PathBuf, PathBuf) {
    let program = scene.compile("covered.c", &["-g", "-O0"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    (program, trace)
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is no number"))
}

#[test]
fn lines_are_executed_as_often_as_gcov_says() {
    let scene = Scene::new();
    let (_, trace) = covered(&scene);
    let counting = scene.compile("covered.c", &["-g", "-O0", "--coverage"]);
    let run = scene.run(&mut scene.command(&counting));
    assert!(run.status.success());
    let folder = counting.parent().unwrap();
    let notes = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let notes = notes.filter(|p| p.extension().is_some_and(|e| e == "gcno"));
    let notes: Vec<PathBuf> = notes.collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let mut gcov = scene.command("gcov");
    let done = scene.run(gcov.current_dir(folder).arg(&notes[0]));
    assert!(done.status.success(), "{}", done.messages());
    let mut expected = BTreeMap::new();
    for text in fs::read_to_string(folder.join("covered.c.gcov"))
        .unwrap()
        .lines()
    {
        let mut fields = text.split(':').map(str::trim);
        let (Some(count), Some(line)) = (fields.next(), fields.next()) else {
            continue;
        };
        let count = match count {
            "-" => continue,
            "#####" => 0,
            n => n.trim_end_matches('*').parse().unwrap(),
        };
        expected.insert(line.parse::<u64>().unwrap(), count);
    }
    assert!(expected.len() > 20, "{expected:?}");
    let mut found = BTreeMap::new();
    for r in rows(
        &scene,
        &trace,
        "select line, count from coverage where kind = 'line' and file like '%/covered.c'",
    ) {
        found.insert(number(&r["line"]), number(&r["count"]));
    }
    // The compiler's counters leave out lines that only end a function.
    found.retain(|line, _| expected.contains_key(line));
    assert_eq!(found, expected);
}

/// What callgrind says of functions: their own instructions, or with those of what they call.
fn callgrind(scene: &Scene, program: &Path, inclusive: bool) -> BTreeMap<String, u64> {
    let out = scene.path("callgrind.out");
    if !out.exists() {
        let mut command = scene.command("valgrind");
        command.args(["--tool=callgrind", "--separate-recs=2", "-q"]);
        command.arg(format!("--callgrind-out-file={}", out.display()));
        let done = scene.run(command.arg(program));
        assert!(done.status.success(), "{}", done.messages());
    }
    let mut list = scene.command("callgrind_annotate");
    list.args(["--threshold=100", "--auto=no"]);
    list.arg(format!(
        "--inclusive={}",
        if inclusive { "yes" } else { "no" }
    ));
    let done = scene.run(list.arg(&out));
    let mut found = BTreeMap::new();
    for line in done.text().lines() {
        let Some((cost, rest)) = line.trim().split_once(' ') else {
            continue;
        };
        let Some((_, name)) = rest.rsplit_once("covered.c:") else {
            continue;
        };
        // What a function that calls itself costs is told apart: `fib`, called by others, and `fib'2`.
        let name = name.split(' ').next().unwrap();
        let (name, again) = name.split_once('\'').map_or((name, false), |n| (n.0, true));
        if let Ok(cost) = cost.replace(',', "").parse::<u64>()
            && !(inclusive && again)
        {
            *found.entry(name.into()).or_default() += cost;
        }
    }
    found
}

#[test]
fn instructions_and_profiles_are_those_of_callgrind() {
    let scene = Scene::new();
    let (program, trace) = covered(&scene);
    let mut own = callgrind(&scene, &program, false);
    // It counts the linker's stubs as instructions of the functions that call by them.
    own.remove("main");
    assert_eq!(own.len(), 3, "{own:?}");
    for table in [
        "select function, count(*) n from instructions group by function",
        "select function, sum(instructions) n from profile group by function",
        "select function, sum(instructions) n from coverage where kind = 'block' group by function",
        "select function, instructions n from coverage where kind = 'function' and instructions > 0",
    ] {
        let mut found = BTreeMap::new();
        for r in rows(&scene, &trace, table) {
            if let Some(name) = r["function"].as_str().filter(|n| own.contains_key(*n)) {
                found.insert(name.to_owned(), number(&r["n"]));
            }
        }
        assert_eq!(found, own, "{table}");
    }
    let inclusive = callgrind(&scene, &program, true);
    let mut found = BTreeMap::new();
    for r in rows(
        &scene,
        &trace,
        "select function, sum(inclusive) n from profile where function in ('fib', 'leaf', 'order')
            and stack not like '%fib;fib' group by function",
    ) {
        found.insert(r["function"].as_str().unwrap().to_owned(), number(&r["n"]));
    }
    assert_eq!(found.len(), 3);
    for (name, n) in found {
        assert_eq!(inclusive.get(&name), Some(&n), "{name}");
    }
}

#[test]
fn ways_out_of_functions() {
    let scene = Scene::new();
    let program = scene.compile("paths.c", &["-g", "-O2", "-pthread"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.text().ends_with(" 1 1000\n"), "{}", done.messages());
    let found = rows(
        &scene,
        &trace,
        "select split_part(stack, ';main', 2) path, sum(calls) calls from profile where stack like '%;main%'
            and function in ('small', 'after', 'last', 'tail', 'handler', 'raises', 'deep') group by 1",
    );
    let calls: BTreeMap<&str, u64> = (found.iter())
        .map(|r| (r["path"].as_str().unwrap(), number(&r["calls"])))
        .collect();
    let of = |path: &str| calls.get(path).copied();
    // `longjmp` leaves all of the calls, and the handler's call is one of the function that was interrupted.
    assert_eq!(of(";after"), Some(2), "{calls:?}");
    assert_eq!(of(";after;small"), Some(2), "{calls:?}");
    assert_eq!(of(";raises"), Some(1), "{calls:?}");
    assert_eq!(of(";deep;small"), Some(1), "{calls:?}");
    // A tail call stands where its caller stood.
    assert_eq!((of(";tail"), of(";last")), (Some(1), Some(1)), "{calls:?}");
    assert_eq!(of(";last;small"), Some(4), "{calls:?}");
    let handler: Vec<_> = calls.iter().filter(|c| c.0.ends_with(";handler")).collect();
    assert_eq!(handler.len(), 1, "{calls:?}");
    assert!(handler[0].0.starts_with(";raises;"), "{calls:?}");
    assert_eq!(of(&format!("{};small", handler[0].0)), Some(1), "{calls:?}");
    assert_eq!(of(";raises;small"), Some(1), "{calls:?}");
    // The other thread, whose functions `main` does not call.
    let thread = rows(
        &scene,
        &trace,
        "select thread, sum(calls) n from profile where function = 'after' group by thread order by thread",
    );
    let counts: Vec<u64> = thread.iter().map(|r| number(&r["n"])).collect();
    assert_eq!(counts, [2, 5]);
}

#[test]
fn all_sums_are_of_the_same_instructions() {
    let scene = Scene::new();
    for argv in [
        words(
            Path::new("/bin/sh"),
            &["-c", "echo a; ls / | wc -l; (echo b)"],
        ),
        words(&scene.compile("jit.c", &["-O2"]), &[]),
        words(&scene.compile("handlers.c", &[]), &[]),
        words(&scene.compile("paths.c", &["-O0", "-pthread"]), &[]),
    ] {
        let (_, trace) = scene.record(&argv);
        let by = |question: &str| -> BTreeMap<(u64, u64), u64> {
            let all = rows(&scene, &trace, question).into_iter();
            all.map(|r| ((number(&r["p"]), number(&r["t"])), number(&r["n"])))
                .collect()
        };
        let each = by("select process p, thread t, count(*) n from instructions group by 1, 2");
        let profile =
            by("select process p, thread t, sum(instructions) n from profile group by 1, 2");
        assert_eq!(profile, each, "{argv:?}");
        let mut whole: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for ((process, _), n) in each {
            *whole.entry((process, 0)).or_default() += n;
        }
        for kind in ["block", "function"] {
            // Not all code belongs to a function.
            let sums = by(&format!(
                "select process p, 0 t, sum(instructions) n from coverage where kind = '{kind}' group by 1"
            ));
            for (key, n) in &whole {
                let sum = sums.get(key).copied().unwrap_or(0);
                assert!(
                    sum == *n || kind == "function" && sum <= *n,
                    "{argv:?}: {sum} of {n}"
                );
            }
        }
        // A part of them.
        let one = whole.keys().next().unwrap().0;
        let some = by(&format!(
            "select process p, 0 t, sum(instructions) n from profile where process = {one} group by 1"
        ));
        assert_eq!(some, BTreeMap::from([((one, 0), whole[&(one, 0)])]));
    }
}

/// Each instruction belongs to the function that has it, whatever signals come in between.
#[test]
fn profiles_book_instructions_on_their_functions() {
    let scene = Scene::new();
    let timer = scene.compile("values.c", &["-g", "-O1", "-pthread"]);
    let paths = scene.compile("paths.c", &["-g", "-O0", "-pthread"]);
    for argv in [words(&timer, &["timer"]), words(&paths, &[])] {
        let (done, trace) = scene.record(&argv);
        assert!(done.status.success(), "{}", done.messages());
        let by = |question: &str| -> BTreeMap<String, u64> {
            let all = rows(&scene, &trace, question).into_iter();
            all.map(|r| (r["f"].as_str().unwrap().to_owned(), number(&r["n"])))
                .collect()
        };
        let name = argv[0].to_str().unwrap();
        let own = "('main', 'first', 'second', 'third', 'tick', 'small', 'thread', 'look', 'deep', 'after', 'last', 'tail', 'handler', 'raises', 'nested')";
        let each = by(&format!(
            "select function f, count(*) n from instructions where function in {own} group by 1"
        ));
        assert!(each.len() >= 6, "{each:?}");
        let profile = by(&format!(
            "select function f, sum(instructions) n from profile where module = '{name}' and function in {own} group by 1"
        ));
        assert_eq!(profile, each, "{name}");
        let coverage = by(&format!(
            "select function f, sum(instructions) n from coverage where kind = 'function' and function in {own}
                and instructions > 0 group by 1"
        ));
        assert_eq!(coverage, each, "{name}");
    }
    // The calls are those that the program makes, signals or not.
    let (done, trace) = scene.record(&words(&timer, &["timer"]));
    let ticks: u64 = done.text().trim().parse().unwrap();
    assert!(ticks >= 40, "{ticks}");
    let calls = rows(
        &scene,
        &trace,
        "select function f, sum(calls) n from profile where function in ('first', 'second', 'third', 'tick', 'small') group by 1",
    );
    let calls: BTreeMap<&str, u64> = (calls.iter())
        .map(|r| (r["f"].as_str().unwrap(), number(&r["n"])))
        .collect();
    assert_eq!(
        (calls["tick"], calls["small"]),
        (ticks / 2, ticks),
        "{calls:?}"
    );
    assert_eq!(calls["second"], 2 * calls["first"], "{calls:?}");
    assert_eq!(calls["third"], 2 * calls["second"], "{calls:?}");
}

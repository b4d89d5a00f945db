//! All calls, against those of each function, which are found in another way, and against profiles.

use super::ask::*;
use hindsight_lab::{Scene, words};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// `paths.c`: calls that are left by returns, by `longjmp` and by tail calls, in two threads and in a handler.
fn paths(scene: &Scene, options: &[&str]) -> PathBuf {
    let all = [options, &["-g", "-pthread"]].concat();
    let program = scene.compile("paths.c", &all);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.text().ends_with(" 1 1000\n"), "{}", done.messages());
    trace
}

const SAME: &str = "position, time, thread, process, count, function, address, arguments, a0, a1, a2, end_position, end_time,
    instructions, result, returned, handler";

#[test]
fn all_calls_are_those_of_each_function() {
    let scene = Scene::new();
    let trace = paths(&scene, &["-O2"]);
    let every = rows(
        &scene,
        &trace,
        "select function, count(*) n from calls group by 1",
    );
    let counts: BTreeMap<&str, u64> = (every.iter())
        .filter_map(|r| Some((r["function"].as_str()?, r["n"].as_u64().unwrap())))
        .collect();
    let own = [
        "small", "deep", "after", "last", "tail", "handler", "raises", "nested", "thread", "main",
    ];
    let of_library = [
        "printf",
        "raise",
        "malloc",
        "pthread_create",
        "exit",
        "_setjmp",
    ];
    for function in own.iter().chain(&of_library) {
        let found = |from: &str| {
            let order = "order by thread, count";
            rows(
                &scene,
                &trace,
                &format!("select {SAME} from {from} {order}"),
            )
        };
        let one = found(&format!("calls('{function}')"));
        if one.iter().any(|r| r["function"] != *function) {
            // A function with several names is called by another one of them.
            continue;
        }
        let all = found(&format!("calls where function = '{function}'"));
        assert_eq!(all, one, "{function}");
        assert_eq!(counts.get(function).copied().unwrap_or(0), one.len() as u64);
    }
    for function in own {
        assert!(counts.contains_key(function), "{function} in {counts:?}");
    }
}

#[test]
fn calls_are_nested_as_they_were() {
    let scene = Scene::new();
    let trace = paths(&scene, &["-O1"]);
    let nested = rows(
        &scene,
        &trace,
        "select depth, instructions, caller, tail from calls where function = 'nested' order by count",
    );
    assert_eq!(nested.len(), 1001);
    let depth = |r: &Value| r["depth"].as_u64().unwrap();
    for pair in nested.windows(2) {
        assert_eq!(depth(&pair[1]), depth(&pair[0]) + 1);
        assert!(pair[1]["instructions"].as_u64() < pair[0]["instructions"].as_u64());
        let caller = pair[1]["caller"].as_str().unwrap();
        assert!(caller.starts_with("paths!nested+"), "{caller}");
    }
    let trace = paths(&scene, &["-O2"]);
    // A tail call is as deep as the call that it goes on for, and returns with it.
    let pair = rows(
        &scene,
        &trace,
        "select l.tail and not t.tail as ok, l.depth - t.depth as d, l.end_position = t.end_position e
            from calls l, calls t where l.function = 'last' and t.function = 'tail'",
    );
    assert_eq!(pair.len(), 1);
    assert_eq!(
        (&pair[0]["ok"], &pair[0]["e"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    assert_eq!(pair[0]["d"], 0);
    // `longjmp` leaves these. What comes behind is as deep as if they had returned.
    let depths = |function: &str, which: &str| -> BTreeSet<(u64, bool)> {
        let q = format!(
            "select depth, end_time is null open from calls where function = '{function}' and {which}"
        );
        let all = rows(&scene, &trace, &q).into_iter();
        all.map(|r| (depth(&r), r["open"].as_bool().unwrap()))
            .collect()
    };
    let main = depths("main", "true");
    let of_main = main.first().unwrap().0;
    let left: Vec<_> = depths("deep", "true").into_iter().collect();
    assert_eq!(
        left,
        (1..=7).map(|n| (of_main + n, true)).collect::<Vec<_>>()
    );
    assert_eq!(
        depths("after", "caller like '%!main%'"),
        BTreeSet::from([(of_main + 1, false)])
    );
}

#[test]
fn calls_are_counted_as_profiles_count_them() {
    let scene = Scene::new();
    for trace in [
        paths(&scene, &["-O0"]),
        scene
            .record(&words(Path::new("/bin/sh"), &["-c", "echo a; (echo b)"]))
            .1,
        scene
            .record(&words(&scene.compile("handlers.c", &["-g"]), &[]))
            .1,
    ] {
        let by = |question: &str| -> BTreeMap<(u64, String), u64> {
            let all = rows(&scene, &trace, question).into_iter();
            let key = |r: &Value| {
                (
                    r["p"].as_u64().unwrap(),
                    r["f"].as_str().unwrap().to_owned(),
                )
            };
            all.map(|r| (key(&r), r["n"].as_u64().unwrap())).collect()
        };
        let every = by(
            "select process p, function f, count(*) n from calls where function is not null and depth < 250 group by 1, 2",
        );
        let profile = by(
            "select process p, function f, sum(calls) n from profile where function not like '[%' group by 1, 2",
        );
        assert!(every.len() > 20, "{every:?}");
        // A profile also counts functions that are entered in their middle, and none deeper than 256.
        let less: Vec<_> = (every.iter())
            .filter(|(k, n)| profile.get(k).is_none_or(|p| p < n))
            .collect();
        assert!(less.is_empty(), "{less:?}");
        let same = every
            .iter()
            .filter(|(k, n)| profile.get(*k) == Some(n))
            .count();
        assert!(
            same * 10 >= profile.len() * 9,
            "{same} of {}",
            profile.len()
        );
    }
}

#[test]
fn conditions_that_reach_the_replay_change_no_call() {
    let scene = Scene::new();
    let trace = paths(&scene, &["-O1"]);
    let all = rows(&scene, &trace, "select max(time) hi, count(*) n from calls");
    let number = |name: &str| all[0][name].as_i64().unwrap();
    let hi = number("hi");
    assert!(number("n") > 1500);
    let mut some = 0;
    for i in 0..12 {
        let from = hi * i / 12;
        let until = from + hi / if i % 2 == 0 { 7 } else { 1000 };
        // Arithmetic keeps a condition from the replay.
        let of = |time: &str, count: &str| {
            let q = format!(
                "select time, count, thread, depth, function, caller, call_site, address, tail, handler, end_time, instructions
                    from calls where {time} between {from} and {until} and {count} >= 1000 order by thread, count, time"
            );
            rows(&scene, &trace, &q)
        };
        let (pushed, kept) = (of("time", "count"), of("time + 0", "count + 0"));
        assert_eq!(pushed, kept, "{from} to {until}");
        some += pushed.len();
    }
    assert!(some > 100, "{some}");
}

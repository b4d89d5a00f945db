//! The memory that a program asked for, and where values came from.

use super::ask::*;
use hindsight_lab::{Scene, words};
use std::path::{Path, PathBuf};

fn recorded() -> (Scene, PathBuf, PathBuf) {
    let scene = Scene::new();
    let program = scene.compile("heaps.cpp", &["-g", "-O1", "-pthread"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    (scene, program, trace)
}

/// How much memory valgrind says that the program asked for: times, times given back, bytes.
fn valgrind(scene: &Scene, program: &Path) -> [i64; 3] {
    let mut c = scene.command("valgrind");
    // Libraries are not asked to give back what they keep.
    c.args(["--run-libc-freeres=no", "--run-cxx-freeres=no"]);
    let done = scene.run(c.arg(program));
    assert!(done.status.success(), "{}", done.messages());
    let messages = done.messages();
    let line = messages.lines().find(|l| l.contains("total heap usage"));
    let line = line
        .unwrap_or_else(|| panic!("{messages}"))
        .replace(',', "");
    let numbers = line.split_whitespace().filter_map(|w| w.parse().ok());
    numbers.collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn the_heap_is_that_of_valgrind() {
    let (scene, program, trace) = recorded();
    let all = &rows(
        &scene,
        &trace,
        "select count(*) n, count(freed_time) freed, sum(size) bytes from heap where function not in ('mmap', 'mremap')",
    )[0];
    let told = ["n", "freed", "bytes"].map(|c| all[c].as_i64().unwrap());
    assert_eq!(told, valgrind(&scene, &program));

    // What operators new and delete do is not counted again.
    let kinds = rows(
        &scene,
        &trace,
        "select function, freed_by, count(*) n from heap where freed_time is not null group by 1, 2",
    );
    let has = |function: &str, by: &str| {
        let is = |r: &&serde_json::Value| {
            r["function"].as_str().unwrap().starts_with(function)
                && r["freed_by"].as_str().unwrap().starts_with(by)
        };
        kinds.iter().any(|r| is(&r))
    };
    for (function, by) in [
        ("operator new(", "operator delete("),
        ("operator new[]", "operator delete[]"),
        ("malloc", "free"),
        ("realloc", "realloc"),
        ("realloc", "free"),
        ("posix_memalign", "free"),
        ("calloc", "free"),
        ("mmap", "munmap"),
    ] {
        assert!(has(function, by), "{function} {by}: {kinds:#?}");
    }
    // Both may be one function.
    let either = ["aligned_alloc", "memalign"];
    assert!(either.iter().any(|f| has(f, "free")), "{kinds:#?}");
}

#[test]
fn what_was_not_given_back_is_told_by_who_asked_for_it() {
    let (scene, _, trace) = recorded();
    let leaks = rows(
        &scene,
        &trace,
        "select caller, stack, count(*) n, sum(size) bytes from heap
            where freed_time is null and function = 'malloc' group by 1, 2 order by n desc",
    );
    let first = &leaks[0];
    assert_eq!((&first["n"], &first["bytes"]), (&7.into(), &168.into()));
    assert!(
        first["caller"].as_str().unwrap().contains("leak"),
        "{first}"
    );
    let stack = first["stack"].as_str().unwrap();
    assert!(stack.ends_with("main;leak"), "{stack}");
    let other = &rows(
        &scene,
        &trace,
        "select thread, freed_thread, lifetime, freed_time - time as l from heap where size = 77",
    )[0];
    assert_ne!(other["thread"], other["freed_thread"]);
    assert!(other["lifetime"].as_i64().unwrap() > 0);
    assert_eq!(other["lifetime"], other["l"]);
    // Blocks that live at the same time do not overlap.
    let overlaps = &rows(
        &scene,
        &trace,
        "with h as (select * from heap where function not in ('mmap', 'mremap') and size > 0)
            select count(*) n from h a join h b on a.time < b.time and (a.freed_time is null or b.time < a.freed_time)
            where a.address < b.address + b.size and b.address < a.address + a.size",
    )[0];
    assert_eq!(overlaps["n"], 0);
}

#[test]
fn origins_are_those_that_the_command_tells() {
    let a = accounts();
    let all = a.rows(&format!(
        "select * from origin({}, 8) order by first, step",
        a.address
    ));
    let last = all.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["function"]),
        (&"computed".into(), &"pay".into())
    );
    assert_eq!(last["value"], a.total);
    assert!(last["origin"].as_str().unwrap().starts_with("computed at"));
    assert!(last["line"].as_str().unwrap().contains("accounts.c:"));
    // The addition may be a store itself, or its result is stored.
    for hop in &all[..all.len() - 1] {
        assert_eq!(
            (&hop["kind"], &hop["origin"]),
            (&"copy".into(), &serde_json::Value::Null)
        );
    }
    let wrote = a.row(&format!(
        "select position from last_write({}, 8)",
        a.address
    ));
    assert_eq!(wrote["position"], all[0]["position"]);
    assert!(
        a.wrong("select * from origin(0x1000, 100000)")
            .contains("1 to 4096 bytes")
    );
}

#[test]
fn bytes_are_found_in_memory() {
    let (scene, program, trace) = recorded();
    let text = rows(
        &scene,
        &trace,
        "select address, path, bytes from grep_memory('a text that does not fit')",
    );
    let name = program.file_name().unwrap().to_str().unwrap();
    let constant = text.iter().find(|r| {
        let path = r["path"].as_str();
        path.is_some_and(|p| p.ends_with(name))
    });
    assert!(constant.is_some(), "{text:#?}");
    let hex: String = b"a text that does not fit"
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let same = rows(
        &scene,
        &trace,
        &format!("select address, path, bytes from grep_memory(X'{hex}', 'end')"),
    );
    assert_eq!(text, same);
    let none = rows(
        &scene,
        &trace,
        "select * from grep_memory('nobody has this text')",
    );
    assert!(none.is_empty(), "{none:#?}");
    // A variable that is known to have a value.
    let a = accounts();
    let value: String = a
        .total
        .to_le_bytes()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let found = a.rows(&format!(
        "select hex(address) as address from grep_memory(X'{value}')"
    ));
    assert!(
        found.iter().any(|r| r["address"] == a.address),
        "{found:#?}"
    );
    // At the beginning it had another one.
    let before = a.rows(&format!(
        "select hex(address) as address from grep_memory(X'{value}', 'begin')"
    ));
    assert!(
        before.iter().all(|r| r["address"] != a.address),
        "{before:#?}"
    );
    assert!(
        a.wrong("select * from grep_memory('')")
            .contains("expected grep_memory(")
    );
}

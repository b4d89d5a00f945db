//! Questions in SQL are answered on 64-bit ARM as they are here.

use super::{machine, must, record};
use hindsight_lab::{Scene, words};
use std::path::Path;

/// The files of a folder, with what they hold.
fn files(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let all = std::fs::read_dir(folder).unwrap();
    let mut all: Vec<_> = all
        .map(|f| f.unwrap())
        .map(|f| (f.file_name(), std::fs::read(f.path()).unwrap()))
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

#[test]
#[ignore = "it takes long to build: scripts/elsewhere --sql"]
fn tables_are_the_same_as_here() {
    let scene = Scene::new();
    let program = scene.compile("travel.c", &["-g", "-O1"]);
    let trace = record(&scene, &words(&program, &["3"]));
    for query in [
        "SHOW TABLES",
        "SELECT name, count(*) AS n, max(result) AS most FROM syscalls GROUP BY name ORDER BY n DESC, name",
        "SELECT * FROM threads",
        "SELECT * FROM modules",
        "SELECT function, count(*) AS n FROM calls GROUP BY function ORDER BY n DESC, function",
        "SELECT kind, sum(count), sum(instructions) FROM coverage WHERE kind <> 'block' GROUP BY kind ORDER BY kind",
    ] {
        let ask = |mut command: std::process::Command| {
            must(scene.run(command.arg(&trace).arg(query)), query)
        };
        let there = ask(machine::sql(&scene, &["sql"]));
        assert_eq!(there, ask(scene.hindsight(&["sql"])), "{query}");
    }
    let [there, here] = ["there", "here"].map(|name| scene.path(name));
    let write = |mut command: std::process::Command, to: &Path| {
        must(scene.run(command.arg(&trace).arg("--to").arg(to)), "tables")
    };
    write(machine::sql(&scene, &["tables"]), &there);
    write(scene.hindsight(&["tables"]), &here);
    assert_eq!(files(&there), files(&here));
}

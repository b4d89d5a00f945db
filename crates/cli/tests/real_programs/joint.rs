//! Memory that is only read for a long time shares pages with its cells. The program does not notice.

use crate::faults::{core, has_cores, recorded_with};
use hindsight_lab::{Scene, end};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

const CHECKED: [&str; 3] = ["--regime", "checked", "--joint=true"];

fn argv(program: &Path, what: &str, seen: &Path) -> Vec<OsString> {
    vec![program.into(), what.into(), seen.into()]
}

/// The number of mappings that share pages with cells, as the program's child saw it.
fn shared(seen: &Path) -> u32 {
    fs::read_to_string(seen).unwrap().trim().parse().unwrap()
}

#[test]
fn memory_that_shares_pages_with_its_cells_is_as_any() {
    let scene = Scene::new();
    let program = scene.compile("joint.c", &["-O1", "-pthread"]);
    let (seen, trace) = (scene.path("seen"), scene.path("joint.hst"));
    let all = [
        "used",
        "resized",
        "discarded",
        "unaligned",
        "threads",
        "special",
        "inherited",
    ];
    for what in all {
        let argv = argv(&program, what, &seen);
        let native = scene.native(&argv);
        assert_eq!(
            (native.status.code(), shared(&seen)),
            (Some(0), 0),
            "{what}"
        );
        let mut command = scene.hindsight(&["record", "--quiet", "-o"]);
        command.arg(&trace).args(CHECKED).arg("--").args(&argv);
        let recorded = scene.run(&mut command);
        assert_eq!(
            recorded.text(),
            native.text(),
            "{what}: {}",
            recorded.messages()
        );
        assert_eq!(end(recorded.status), end(native.status), "{what}");
        // Otherwise nothing was tested.
        assert!(shared(&seen) >= 2, "{what}");
        scene.must_verify(&trace);
    }
}

#[test]
fn core_dumps_have_memory_that_shares_pages_with_its_cells() {
    let scene = Scene::new();
    if !has_cores(&scene) {
        return;
    }
    let program = scene.compile("joint.c", &["-O1", "-pthread"]);
    let (seen, trace) = (scene.path("seen"), scene.path("joint.hst"));
    let argv = argv(&program, "dies", &seen);
    let asked = [
        "info registers rbx",
        "print *(long *)(*(long *)&block + 8000)",
        "print *(long *)(*(long *)&block + 4000000)",
    ];
    let values = |text: String| {
        let values = text.lines().filter(|l| l.starts_with('$'));
        values.map(String::from).collect::<Vec<_>>()
    };
    let native = values(core(&scene, &program, &argv, &asked));
    let command = recorded_with(&scene, &trace, &CHECKED, &argv);
    let recorded = values(core(&scene, &program, &command, &asked));
    assert!(shared(&seen) >= 2);
    scene.must_verify(&trace);
    assert_eq!(native, ["$1 = 1000000", "$2 = 250000000000"]);
    assert_eq!(recorded, native);
}

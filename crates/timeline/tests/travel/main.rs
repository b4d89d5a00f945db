//! Travel in recordings, compared with a plain forward replay that logs everything.

mod ahead;
mod anew;
mod asked;
mod attached;
mod borders;
mod calls;
mod changes;
mod cheap;
mod cold;
mod conditions;
mod full;
mod grounds;
mod growing;
mod harmed;
mod index;
mod interrupted;
mod known;
mod levels;
mod lists;
mod memory;
mod out;
mod places;
mod questions;
mod races;
mod restated;
mod routes;
mod runs;
mod saved;
mod sequences;
#[path = "../../examples/tour.rs"]
#[allow(dead_code)]
mod tour;
mod truth;
mod walk;

use hindsight_lab::{Scene, words};
use hindsight_timeline::{Options, Timeline};
use std::path::Path;

/// Opens a recording. Its index has intervals of `interval` instructions; 0: the usual ones. Nothing is saved.
fn open(trace: &Path, interval: u64) -> Timeline {
    let options = Options {
        interval,
        unsaved: true,
        ..Options::default()
    };
    Timeline::open(trace, options).unwrap()
}

/// The library's example, on a program with several processes and threads.
#[test]
fn the_examples_tour() {
    let scene = Scene::new();
    for argv in [
        vec!["/bin/sh", "-c", "echo 1; ls / | wc -l"],
        vec!["pigz", "-p2", "-c", "/bin/bash"],
    ] {
        let (_, trace) = scene.record(&words(argv[0].as_ref(), &argv[1..]));
        let mut out = Vec::new();
        tour::whole(&trace, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "process ",
            "libc.so.6",
            " system calls, 0 exceptions, 0 gaps",
            "rsp 0x",
            "the same place is true",
            "next system call: ",
            "written at ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

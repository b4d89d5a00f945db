//! Threads that go through the same memory: what is filled ahead, and the cells that they have in common.

use hindsight_lab::Scene;
use std::ffi::OsString;
use std::fs;

const MIB: u64 = 1 << 20;

#[test]
fn threads_that_read_the_same_memory_take_it_once() {
    let scene = Scene::new();
    let program = scene.compile("readers.c", &["-O1", "-pthread"]);
    let seen = scene.path("seen");
    let argv: [OsString; 3] = [program.into(), "same".into(), (&seen).into()];
    let share = || -> u64 {
        let kib: u64 = fs::read_to_string(&seen).unwrap().trim().parse().unwrap();
        kib << 10
    };
    let native = scene.native(&argv);
    // The kernel may have no such file.
    let natively = share();
    let (recorded, trace) = scene.record(&argv);
    assert_eq!(recorded.text(), native.text(), "{}", recorded.messages());
    assert!(native.text().starts_with("1 "), "{}", native.text());
    scene.must_verify(&trace);
    // 24 MiB of the program's, and as many of common cells. With cells of its own for each thread it would be 120 MiB.
    // Where the kernel gives large pages to everybody, the cells of a block are all there before they can be common.
    let large = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let is_usual = !large.is_ok_and(|l| l.contains("[always]"));
    if is_usual && natively >= 24 * MIB {
        let added = share() - natively;
        assert!((24 * MIB..64 * MIB).contains(&added), "{} MiB", added / MIB);
    }
    // A ring has 64 bytes for each page of common cells. With their content, the rings together would carry 96 MiB.
    if is_usual {
        let info = scene.info(&trace);
        let streams = info["streams"].as_array().unwrap().iter();
        let carried: u64 = streams.map(|s| s["ring_bytes"].as_u64().unwrap()).sum();
        assert!(carried < 8 * MIB, "{} MiB", carried / MIB);
    }
    // Each thread comes to the recorder about once for each block of 64 KiB. Each has 393,216 lines.
    let unpredicted = scene.info(&trace)["images"][0]["unpredicted_reads"]
        .as_u64()
        .unwrap();
    assert!(unpredicted < 20_000, "{unpredicted}");
    // The words are in the file once. They do not pack.
    let size = fs::metadata(&trace).unwrap().len();
    assert!((20..32).contains(&(size / MIB)), "{} MiB", size / MIB);
}

#[test]
fn memory_that_changes_while_it_is_read_replays() {
    let scene = Scene::new();
    let program = scene.compile("readers.c", &["-O1", "-pthread"]);
    for what in ["changing", "queue", "killed"] {
        scene.same(&[program.as_os_str(), what.as_ref()]);
    }
    // Nobody changes what is read here, so it is filled ahead: in each, more than 196,608 lines are read.
    for what in ["moving", "edges", "apart"] {
        let argv = [program.as_os_str(), what.as_ref()];
        let native = scene.native(&argv);
        let (recorded, trace) = scene.record(&argv);
        assert_eq!(
            recorded.text(),
            native.text(),
            "{what}: {}",
            recorded.messages()
        );
        scene.must_verify(&trace);
        let unpredicted = scene.info(&trace)["images"][0]["unpredicted_reads"]
            .as_u64()
            .unwrap();
        assert!(unpredicted < 20_000, "{what}: {unpredicted}");
    }
}

#[test]
fn a_child_that_is_not_recorded_leaves_common_cells_alone() {
    let scene = Scene::new();
    let program = scene.compile("readers.c", &["-O1", "-pthread"]);
    let trace = scene.path("apart.hst");
    let mut command = scene.hindsight(&["record", "--children", "only-matching=nothing*", "-o"]);
    command.arg(&trace).arg("--").arg(&program).arg("apart");
    let recorded = scene.run(&mut command);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.messages());
    scene.must_verify(&trace);
}

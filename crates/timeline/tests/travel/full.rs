//! The index of a recording on a disk that becomes full.

use crate::index::answer;
use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Depth, Options, Timeline, index_path};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

const TRACE: &str = "HINDSIGHT_TEST_FULL_TRACE";
const INDEX_SIZE: &str = "HINDSIGHT_TEST_FULL_INDEX_SIZE";
const ROOM: &str = "HINDSIGHT_TEST_FULL_ROOM";

/// Files of this process may have so many bytes from now on. Writing more fails.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel reads the structure. Nothing else in this process needs the signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

/// Runs in a process of its own, since the limit is the process's. A limit of a file's size is what can be made full without
/// rights. The replay makes files in memory in the beginning, so the limit holds from then on.
#[test]
#[ignore = "the other test here runs it"]
fn child() {
    let trace = PathBuf::from(std::env::var_os(TRACE).unwrap());
    let [index_size, room] = [INDEX_SIZE, ROOM].map(|v| std::env::var(v).unwrap().parse().unwrap());
    let t = Timeline::open(&trace, options(index_size)).unwrap();
    let full = Once::new();
    let progress = |_, _| full.call_once(|| limit_files(room));
    let built = t.build_index(Depth::Full, &progress, &Cancel::new());
    let e = built.unwrap_err().to_string();
    assert!(e.contains("File too large"), "{e}");
    assert!(full.is_completed());
    limit_files(libc::RLIM_INFINITY);
    assert_eq!(t.index_status().present, 0);
    let there = fs::metadata(index_path(&trace)).map_or(0, |m| m.len());
    assert!(there <= 32, "{there} bytes stay");
    let files = fs::read_dir(trace.parent().unwrap()).unwrap();
    let mut names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
    assert!(names.all(|n| !n.ends_with(".new")));
    println!("answer {:?}", answer(&t));
}

fn options(index_size: u64) -> Options {
    Options {
        interval: 1000,
        index_size,
        jobs: 1,
        ..Options::default()
    }
}

#[test]
fn a_full_disk_is_told_and_changes_no_answer() {
    let s = Scene::new();
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "40".as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    let want = answer(&crate::open(&trace, 0));
    let index = index_path(&trace);
    let t = Timeline::open(&trace, options(0)).unwrap();
    t.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
        .unwrap();
    let whole = fs::metadata(&index).unwrap().len();
    // Before the first section, among the sections, in the directory behind them, and where intervals are joined.
    for (index_size, room) in [
        (0, 16),
        (0, whole / 2),
        (0, whole - 16),
        (whole / 3, whole / 16),
    ] {
        fs::remove_file(&index).unwrap();
        let mut me = Command::new(std::env::current_exe().unwrap());
        me.args(["--exact", "full::child", "--ignored", "--nocapture"]);
        me.env(TRACE, &trace).env(ROOM, room.to_string());
        me.env(INDEX_SIZE, index_size.to_string());
        let done = me.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{room}: {said}");
        assert!(
            said.contains(&format!("answer {want:?}")),
            "{room}: {said} {want}"
        );
        // The answers have saved it.
        let t = Timeline::open(&trace, options(index_size)).unwrap();
        let status = t.index_status();
        assert_eq!((status.present, status.problem), (1, None), "{room}");
        assert_eq!(answer(&t), want, "{room}");
    }
}

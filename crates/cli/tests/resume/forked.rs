//! What parents, and others beside the process, did meanwhile.

use super::certain::{recorded, refused};
use super::{NONE, continues, resume};
use hindsight_lab::Scene;
use std::fs;
use std::io::Write;
use std::time::Duration;

/// What a parent chooses for itself behind the fork is none of the child's business, however late the child begins.
#[test]
fn a_parent_that_goes_on_chooses_for_itself() {
    for (what, want) in [
        ("parent-goes-on", "handler 10\numask 22\n"),
        ("starter-goes-on", "alive\n"),
    ] {
        let s = Scene::new();
        let (recorded, trace, place) = recorded(&s, what);
        assert_eq!(recorded.text(), want);
        continues(&recorded, "", &resume(&s, &trace, &place, &NONE));
    }
}

#[test]
fn a_child_without_its_parents_handlers_is_refused() {
    refused(
        &Scene::new(),
        "without-handlers",
        &[],
        "CLONE_CLEAR_SIGHAND",
    );
}

/// A file that others have made longer is as long as the program has read it.
#[test]
fn a_file_that_grew_is_whole() {
    let s = Scene::new();
    fs::write(s.path("data"), "hello").unwrap();
    let (ready, go, data) = (s.path("ready"), s.path("go"), s.path("data"));
    let grows = std::thread::spawn(move || {
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut file = fs::File::options().append(true).open(data).unwrap();
        file.write_all(b"WORLD").unwrap();
        fs::create_dir(go).unwrap();
    });
    let (recorded, trace, place) = recorded(&s, "grown");
    grows.join().unwrap();
    assert_eq!(recorded.text(), "10 helloWORLD\n");
    fs::write(s.path("data"), "other").unwrap();
    let done = resume(&s, &trace, &place, &["--files", "recorded"]);
    continues(&recorded, "", &done);
}

/// Writes that no model of the program sees.
#[test]
fn hidden_writes_are_refused() {
    let s = Scene::new();
    fs::write(s.path("data"), "OLDOLD").unwrap();
    let why = "other files were written to";
    refused(&s, "device-path", &["--files", "recorded"], why);
    refused(&Scene::new(), "memory-file", &[], "/proc/PID/mem");
}

#[test]
fn a_lock_of_standard_input_is_lost() {
    let s = Scene::new();
    let (_, trace, place) = recorded(&s, "locked-input");
    let told = resume(&s, &trace, &place, &NONE).messages();
    assert!(
        told.contains("lost: of descriptor 0: a lock of `flock`"),
        "{told}"
    );
}

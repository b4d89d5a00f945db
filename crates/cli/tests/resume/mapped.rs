//! Files that are mapped to be read: of most of them the program has not read all.

use super::certain::recorded;
use super::{NONE, call, continues, copies, resume};
use hindsight_lab::Scene;
use std::fs;

fn content() -> Vec<u8> {
    (0..3 * 4096 - 100u32)
        .map(|i| (i * 7 % 251) as u8)
        .collect()
}

/// A file that nobody has changed is mapped again, and takes no descriptor.
#[test]
fn a_mapped_file_is_mapped_again() {
    let s = Scene::new();
    fs::write(s.path("data"), content()).unwrap();
    let (recorded, trace, place) = recorded(&s, "cached");
    assert!(
        recorded.text().ends_with(", next 3\n"),
        "{}",
        recorded.text()
    );
    let done = resume(&s, &trace, &place, &NONE);
    continues(&recorded, "", &done);
    let told = done.messages();
    assert!(told.contains("/data is mapped again at "), "{told}");

    // The same content in another file: nobody knows whether it is the same, and not all of it was read.
    fs::rename(s.path("data"), s.path("old")).unwrap();
    fs::write(s.path("data"), content()).unwrap();
    let done = resume(&s, &trace, &place, &NONE);
    let told = done.messages();
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(
        told.contains("/data, which is another file now, or was changed"),
        "{told}"
    );
    fs::remove_file(s.path("data")).unwrap();
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("No such file"),
        "{}",
        done.messages()
    );
}

/// What is written to a file shows in its mapping, or nothing goes on.
#[test]
fn a_mapped_file_that_is_written() {
    let s = Scene::new();
    fs::write(s.path("data"), "older text").unwrap();
    let (recorded, trace, place) = recorded(&s, "cached-and-written");
    assert_eq!(recorded.text(), "newer\n");
    // The recorded program has changed the file.
    for options in [&NONE[..], &["--files", "recorded"]] {
        let done = resume(&s, &trace, &place, options);
        assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    }
    assert!(copies(&s).is_empty());
}

/// Programs in a locale of UTF-8 map a cache of libc's, of which they read little.
#[test]
fn programs_in_a_utf8_locale_go_on() {
    let script = "import os
print('gr\\xfc\\xdfe'.encode().decode('utf-8'), os.getppid() > 0, flush=True)
print('\\xe4'.encode('iso8859-15'), flush=True)
";
    let programs: [&[&str]; 2] = [
        &["/usr/bin/python3", "-c", script],
        &[
            "bash",
            "-c",
            "x=\u{e4}\u{f6}; echo ${#x}; y=$(echo $x); printf '%s %s\\n' $y ${#y}",
        ],
    ];
    for (program, name) in programs.into_iter().zip(["getppid", "write"]) {
        let s = Scene::new();
        let trace = s.path("trace.hst");
        let recorded = s.run(s.recording(&trace, program).env("LC_ALL", "C.UTF-8"));
        let place = call(&s, &trace, name, 0);
        let done = resume(&s, &trace, &place, &NONE);
        continues(&recorded, "", &done);
    }
}

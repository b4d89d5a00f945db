//! What does not go on, and says why.

use super::{call, resume};
use hindsight_lab::Scene;
use std::fs;
use std::os::unix::fs::symlink;

const NONE: [&str; 0] = [];

/// Without a terminal to ask on, nothing runs.
#[test]
fn nothing_runs_unasked() {
    let s = Scene::new();
    let (_, trace) = s.record(&["bash", "-c", "echo x > made; echo y > made2"]);
    fs::remove_file(s.path("made2")).unwrap();
    let mut command = s.hindsight(&["resume"]);
    let done = s.run(command.arg(&trace).arg("50%"));
    assert_eq!(done.status.code(), Some(2));
    assert!(done.messages().contains("--yes"), "{}", done.messages());
    let mut command = s.hindsight(&["resume", "--dry-run"]);
    let done = s.run(command.arg(&trace).arg("50%"));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    assert!(
        done.messages().contains("goes on as a live process"),
        "{}",
        done.messages()
    );
    assert!(!s.path("made2").exists());
}

/// A file that is read and was changed, one that is gone, and one that became a link: the link's target is named, and it is
/// compared.
#[test]
fn changed_files_are_named() {
    let s = Scene::new();
    fs::write(s.path("data"), "first\nsecond\n").unwrap();
    let script =
        "import os\nf = open('data', 'r+')\nf.readline()\nos.getppid()\nprint(f.readline())\n";
    let (_, trace) = s.record(&["/usr/bin/python3", "-c", script]);
    let place = call(&s, &trace, "getppid", 0);
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!(done.text(), "second\n\n", "{}", done.messages());
    let told = done.messages();
    assert!(
        told.contains("opened for writing: ") && told.contains("/data\n"),
        "{told}"
    );

    fs::rename(s.path("data"), s.path("elsewhere")).unwrap();
    symlink("elsewhere", s.path("data")).unwrap();
    let told = resume(&s, &trace, &place, &NONE).messages();
    assert!(
        told.contains("opened for writing: ") && told.contains("/elsewhere\n"),
        "{told}"
    );

    fs::write(s.path("elsewhere"), "first\nanother\n").unwrap();
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(
        done.messages()
            .contains("had 13 bytes then, and has 14 now"),
        "{}",
        done.messages()
    );
    fs::write(s.path("elsewhere"), "first\nsecund\n").unwrap();
    let told = resume(&s, &trace, &place, &NONE).messages();
    assert!(
        told.contains("has other content now, at offset 9"),
        "{told}"
    );
    fs::remove_file(s.path("elsewhere")).unwrap();
    let told = resume(&s, &trace, &place, &NONE).messages();
    assert!(told.contains("is not there"), "{told}");
    // The recording has all of it, since it was read as a whole.
    let done = resume(&s, &trace, &place, &["--files", "recorded"]);
    assert_eq!(done.text(), "second\n\n", "{}", done.messages());
}

/// Memory that the program never looked at is not known where others may change it.
#[test]
fn unknown_memory_is_refused() {
    let s = Scene::new();
    let source = "#include <sys/mman.h>\n#include <unistd.h>\n#include <fcntl.h>\nint main() {\n\
        int fd = open(\"shared\", O_RDWR);\n\
        char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);\n\
        getppid();\n return p[1]; }\n";
    fs::write(s.path("a.c"), source).unwrap();
    fs::write(s.path("shared"), [7; 8192]).unwrap();
    let gcc = s.native(&["gcc", "-o", "a", "a.c"]);
    assert!(gcc.status.success(), "{}", gcc.messages());
    let (_, trace) = s.record(&["./a"]);
    let done = resume(&s, &trace, &call(&s, &trace, "getppid", 0), &NONE);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("bytes of memory are not known"),
        "{}",
        done.messages()
    );
    assert!(done.messages().contains("/shared"), "{}", done.messages());
}

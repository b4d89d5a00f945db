//! What does not go on, and says why.

use super::{NONE, call, copies, record, resume, resumed};
use hindsight_lab::Scene;
use std::fs;
use std::os::unix::fs::symlink;

/// Without a terminal to ask on, nothing runs.
#[test]
fn nothing_runs_unasked() {
    let s = Scene::new();
    let (_, trace) = record(&s, &["bash", "-c", "echo x > made; echo y > made2"]);
    fs::remove_file(s.path("made2")).unwrap();
    let mut command = s.hindsight(&["resume"]);
    let done = s.run(command.arg(&trace).arg("50%"));
    assert_eq!(done.status.code(), Some(2));
    assert!(done.messages().contains("--yes"), "{}", done.messages());
    let mut command = s.hindsight(&["resume", "--dry-run"]);
    let done = s.run(command.arg(&trace).arg("50%"));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    assert!(
        done.messages().contains("a live process will go on"),
        "{}",
        done.messages()
    );
    assert!(!s.path("made2").exists());
}

/// A file of which not all is known is refused unless nobody has changed it. There are no mixtures, and nothing is left behind.
#[test]
fn files_are_the_same_or_refused() {
    let s = Scene::new();
    fs::write(s.path("data"), "AAold-rest").unwrap();
    let (_, trace) = s.record(&[resumed(&s), "rewritten".into()]);
    let place = call(&s, &trace, "getppid", 0);
    for content in ["BBnew-REST", "AAold-rest", ""] {
        fs::write(s.path("data"), content).unwrap();
        for options in [&NONE[..], &["--files", "recorded"]] {
            let done = resume(&s, &trace, &place, options);
            assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
            let told = done.messages();
            assert!(
                told.contains("/data ") && !told.contains("goes on"),
                "{content}: {told}"
            );
        }
    }
    let done = resume(&s, &trace, &place, &["--files", "recorded"]);
    assert!(
        done.messages().contains("8 of its 10 bytes are not known"),
        "{}",
        done.messages()
    );
    assert!(copies(&s).is_empty());
}

/// What nobody has changed since before the recording is the same, whatever the program has read of it. A working directory
/// that is gone is refused.
#[test]
fn old_files_are_the_same() {
    let s = Scene::new();
    fs::create_dir(s.path("in")).unwrap();
    fs::write(s.path("in/data"), "0123456789").unwrap();
    let script = "import os\nos.chdir('in')\nf = open('data', 'rb', buffering=0)\nf.read(2)\nos.getppid()\n\
        print(f.read(3), open('data').read())\n";
    let (_, trace) = record(&s, &["/usr/bin/python3", "-c", script]);
    let place = call(&s, &trace, "getppid", 0);
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!(done.text(), "b'234' 0123456789\n", "{}", done.messages());
    let told = done.messages();
    assert!(
        told.contains("not changed since the recording began"),
        "{told}"
    );
    assert!(
        told.contains("working directory: ") && told.contains("/in\n"),
        "{told}"
    );
    fs::rename(s.path("in"), s.path("out")).unwrap();
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!(done.status.code(), Some(2));
    assert!(done.messages().contains("/in: "), "{}", done.messages());
}

/// Memory that is mapped twice would come apart, and what is not known is refused.
#[test]
fn the_same_memory_twice_is_refused() {
    let s = Scene::new();
    let (_, trace) = s.record(&[resumed(&s), "twice".into()]);
    let done = resume(&s, &trace, &call(&s, &trace, "getppid", 0), &NONE);
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(
        done.messages().contains("memfd:twice"),
        "{}",
        done.messages()
    );
}

/// A file that is read and was changed, one that is gone, and one that became a link: the link's target is named, and it is
/// compared.
#[test]
fn changed_files_are_named() {
    let s = Scene::new();
    fs::write(s.path("data"), "first\nsecond\n").unwrap();
    let script =
        "import os\nf = open('data', 'r+')\nf.readline()\nos.getppid()\nprint(f.readline())\n";
    let (_, trace) = record(&s, &["/usr/bin/python3", "-c", script]);
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

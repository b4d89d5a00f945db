//! Programs that go on: the lab's, and real ones.

use super::{NONE, call, continues, copies, record, resume, resumed};
use hindsight_lab::{Done, Scene};
use std::fs;

/// Records the program and goes on from its place.
fn from_place(s: &Scene, what: &str) -> (Done, Done) {
    let (recorded, trace) = s.record(&[resumed(s), what.into()]);
    let done = resume(s, &trace, &call(s, &trace, "getppid", 0), &NONE);
    (recorded, done)
}

/// Memory, the heap, signal handlers, masks, the clock of the vDSO.
#[test]
fn memory_and_signals_are_what_they_were() {
    let s = Scene::new();
    let (recorded, done) = from_place(&s, "memory");
    continues(&recorded, "before\n", &done);
}

/// Nobody but the process has the ends of its pipes.
#[test]
fn pipes_end() {
    let s = Scene::new();
    let (recorded, done) = from_place(&s, "pipes");
    continues(&recorded, "", &done);
    assert!(
        done.text().contains("read 2 to the end\n"),
        "{}",
        done.text()
    );
}

/// Handlers, ignored signals and the stack for handlers come from the parent; its locks and its children do not.
#[test]
fn a_child_has_what_its_parent_chose() {
    let s = Scene::new();
    let (recorded, done) = from_place(&s, "forked");
    continues(&recorded, "", &done);
    assert!(done.text().contains("on its stack: 1\n"), "{}", done.text());
}

/// A signal that waited is not there, which is said.
#[test]
fn waiting_signals_are_lost() {
    let s = Scene::new();
    let (recorded, done) = from_place(&s, "pending");
    assert!(
        recorded.text().starts_with("handler 10"),
        "{}",
        recorded.text()
    );
    assert_eq!(done.text(), "end\n", "{}", done.messages());
    let told = done.messages();
    assert!(
        told.contains("lost: signals that waited because they are blocked (SIGUSR1)"),
        "{told}"
    );
}

/// A file with another name is not taken for one that is gone.
#[test]
fn a_link_is_no_deleted_file() {
    let s = Scene::new();
    let (_, done) = from_place(&s, "linked");
    let told = done.messages();
    assert_eq!(done.status.code(), Some(9), "{told}");
    assert!(
        told.contains("lost: descriptor 3") && told.contains("a file got a second name"),
        "{told}"
    );
}

/// What happens to a file behind the place says nothing of what it was there.
#[test]
fn files_that_are_rewritten_later_are_what_they_were() {
    let s = Scene::new();
    fs::write(s.path("data"), "12345678").unwrap();
    let (recorded, trace) = s.record(&[resumed(&s), "rewritten-wholly".into()]);
    let place = call(&s, &trace, "getppid", 0);
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!((done.status.code(), done.text()), (Some(2), String::new()));
    assert!(
        done.messages().contains("had 8 bytes then, and has 0 now"),
        "{}",
        done.messages()
    );
    let done = resume(&s, &trace, &place, &["--files", "recorded"]);
    continues(&recorded, "", &done);
    assert_eq!(done.text(), "rest 6\n");
    let copies = copies(&s);
    assert_eq!(copies.len(), 1, "{}", done.messages());
    assert_eq!(
        fs::read_to_string(s.path(&copies[0]).join("data")).unwrap(),
        "12345678"
    );
    // The same content again is the same file, as long as it is only read.
    fs::write(s.path("data"), "12345678").unwrap();
    let done = resume(&s, &trace, &place, &NONE);
    continues(&recorded, "", &done);
    assert!(
        done.messages().contains("all its 8 bytes are the same"),
        "{}",
        done.messages()
    );
}

/// Each kind of descriptor is as it was or tells an error, and what is lost is said before.
#[test]
fn descriptors_are_what_they_were() {
    let s = Scene::new();
    fs::write(s.path("input"), "some input\n").unwrap();
    let (recorded, trace) = s.record(&[resumed(&s), "descriptors".into()]);
    let place = call(&s, &trace, "getppid", 0);
    // The program has written more to a file since.
    let done = resume(&s, &trace, &place, &NONE);
    assert_eq!(done.status.code(), Some(2), "{}", done.messages());
    assert!(
        done.messages().contains("had 4 bytes then, and has 8 now"),
        "{}",
        done.messages()
    );
    let options = ["--files", "recorded"];
    let done = resume(&s, &trace, &place, &options);
    // Standard output and standard error were exchanged before.
    let (was, told) = (recorded.messages(), done.messages());
    let (_, rest) = told.split_once("goes on\n").unwrap();
    let rest: Vec<&str> = rest.lines().collect();
    let want: Vec<&str> = was.lines().collect();
    assert_eq!(rest, want, "{told}");
    assert_eq!(done.text(), "socket: Bad file descriptor\nto the other\n");
    assert_eq!(recorded.text(), "before\nto the other\n");
    assert_eq!(done.status.code(), Some(4));
    let lost = told
        .lines()
        .filter(|l| l.contains("lost: descriptor ") && l.contains(": socket"));
    assert_eq!(lost.count(), 2, "{told}");
    // Whoever opens the file again does not get the lock.
    assert!(
        told.contains("lock: Resource temporarily unavailable"),
        "{told}"
    );
    // The copy was written to, and not the file.
    assert_eq!(fs::read_to_string(s.path("log")).unwrap(), "one\ntwo\n");
}

/// Anywhere in a run.
#[test]
fn python_goes_on_from_anywhere() {
    let s = Scene::new();
    let script = "import os, json, hashlib
for i in range(6):
    print(i, hashlib.md5(str(i).encode()).hexdigest(), json.dumps({'i': [i, 1.5 ** i]}), flush=True)
    os.getppid()
";
    fs::write(s.path("count.py"), script).unwrap();
    let (recorded, trace) = record(&s, &["/usr/bin/python3", "count.py"]);
    let all = recorded.text();
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 6);
    for n in [0, 3, 5] {
        let done = resume(&s, &trace, &call(&s, &trace, "getppid", n), &NONE);
        continues(&recorded, &lines[..=n].concat(), &done);
    }
}

/// With its database open, which it changes later: the process gets a copy of what it was.
#[test]
fn sqlite_goes_on_with_an_open_database() {
    let s = Scene::new();
    let statements = "create table t(n, x);
with recursive c(n) as (select 1 union all select n+1 from c where n < 500) insert into t select n, hex(n) from c;
select count(*), sum(n) from t;
insert into t select n + 500, x from t;
select count(*), sum(n), max(x) from t;
";
    fs::write(s.path("statements"), statements).unwrap();
    let mut record = s.recording(&s.path("trace.hst"), &["sqlite3", "a.db"]);
    record.stdin(fs::File::open(s.path("statements")).unwrap());
    let recorded = s.run(&mut record);
    assert_eq!(
        recorded.text(),
        "500|125250\n1000|500500|3939\n",
        "{}",
        recorded.messages()
    );
    let trace = s.path("trace.hst");
    // Where it begins to print the first result. It has read all of its input by then.
    let place = call(&s, &trace, "write", 0);
    let done = resume(&s, &trace, &place, &["--files", "recorded"]);
    continues(&recorded, "", &done);
    assert!(done.messages().contains("a copy of"), "{}", done.messages());
    assert!(
        done.messages().contains("a lock of `fcntl`"),
        "{}",
        done.messages()
    );
}

#[test]
fn bash_goes_on_in_its_script() {
    let s = Scene::new();
    let script = "for i in 1 2 3 4; do echo \"line $i\"; done\nx=$((6 * 7))\nread -r first < other\necho \"$x $first\"\n";
    fs::write(s.path("run.sh"), script).unwrap();
    fs::write(s.path("other"), "the first line\n").unwrap();
    let (recorded, trace) = record(&s, &["bash", "run.sh"]);
    let done = resume(&s, &trace, &call(&s, &trace, "write", 2), &NONE);
    continues(&recorded, "line 1\nline 2\n", &done);
}

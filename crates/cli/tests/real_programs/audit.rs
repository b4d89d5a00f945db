//! `hindsight audit`: the files that a program used, compared with those of the machine.

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char text[100];
    int in = open("input", O_RDONLY), out = open("made", O_WRONLY | O_CREAT, 0600);
    write(out, text, read(in, text, sizeof text));
    open(".", O_RDONLY | O_DIRECTORY);
    open("nowhere", O_RDONLY);
    mkdir("sub", 0700);
    chdir("sub");
    int temporary = open("gone", O_RDWR | O_CREAT, 0600);
    unlink("gone");
    return !dlopen(argv[1], RTLD_NOW);
}
"#;

/// A recording of the program, the program, and the library that it loads.
fn record(s: &Scene) -> (PathBuf, PathBuf, PathBuf) {
    fs::write(s.path("used.c"), PROGRAM).unwrap();
    fs::write(s.path("input"), "some input").unwrap();
    fs::write(s.path("plugin.c"), "int plugged = 7;\n").unwrap();
    let (program, plugin) = (s.path("used"), s.path("plugin.so"));
    for args in [
        &["-w", "-o", "used", "used.c", "-ldl"][..],
        &["-shared", "-fPIC", "-o", "plugin.so", "plugin.c"],
    ] {
        let done = s.run(s.command("gcc").args(args));
        assert!(done.status.success(), "{}", done.messages());
    }
    let (done, trace) = s.record(&[&program, &plugin]);
    assert!(done.status.success(), "{}", done.messages());
    (trace, program, plugin)
}

fn ask(s: &Scene, trace: &Path, words: &[&str]) -> Done {
    s.run(s.hindsight(&["audit"]).arg(trace).args(words))
}

/// The entries, and the exit status.
fn list(s: &Scene, trace: &Path, words: &[&str]) -> (Vec<Value>, Option<i32>) {
    let done = ask(s, trace, &[&["--json"], words].concat());
    let list = serde_json::from_slice(&done.stdout);
    let list = list.unwrap_or_else(|e| panic!("{e}: {}", done.messages()));
    (list, done.status.code())
}

fn entry<'a>(list: &'a [Value], path: &Path) -> &'a Value {
    let mut of = list.iter().filter(|e| e["path"] == path.to_str().unwrap());
    let found = of.next();
    let found = found.unwrap_or_else(|| panic!("{} is not in {list:?}", path.display()));
    assert!(of.next().is_none(), "{found} comes twice");
    found
}

#[test]
fn files_are_the_same_until_somebody_changes_them() {
    let s = Scene::new();
    let (trace, program, plugin) = record(&s);
    let (all, status) = list(&s, &trace, &[]);
    assert_eq!(status, Some(0), "{all:?}");
    for (path, uses) in [
        (&program, &["program", "mapped"][..]),
        (&plugin, &["mapped", "read"]),
    ] {
        let e = entry(&all, path);
        assert_eq!(e["state"], "same");
        assert_eq!(e["uses"], serde_json::json!(uses));
        assert_eq!(e["size"], fs::metadata(path).unwrap().len());
        assert_eq!(e["hash"].as_str().unwrap().len(), 32);
    }
    let libc = |e: &&Value| e["path"].as_str().is_some_and(|p| p.contains("/libc.so"));
    assert!(all.iter().filter(libc).any(|e| e["state"] == "same"));
    // The recording has no content of these.
    for (name, uses) in [
        ("input", "read"),
        ("made", "written"),
        ("sub/gone", "written"),
    ] {
        let e = entry(&all, &s.path(name));
        assert_eq!(e["state"], "unknown");
        assert_eq!(e["uses"], serde_json::json!([uses]));
        assert!(e["hash"].is_null() && e["size"].is_null());
    }
    let ends = |name: &str| {
        let mut paths = all.iter().map(|e| e["path"].as_str().unwrap());
        paths.any(|p| p.ends_with(name))
    };
    // Neither what was not there, nor a folder.
    assert!(!ends("/nowhere") && !ends("/."), "{all:?}");

    let states = |of: &Path| {
        let (all, status) = list(&s, &trace, &[]);
        (entry(&all, of)["state"].clone(), status)
    };
    // Another byte, with the same size; a longer file; none; a folder.
    let before = fs::read(&plugin).unwrap();
    let mut other = before.clone();
    *other.last_mut().unwrap() ^= 1;
    fs::write(&plugin, &other).unwrap();
    assert_eq!(states(&plugin), ("changed".into(), Some(1)));
    fs::write(&plugin, [&before[..], b"!"].concat()).unwrap();
    assert_eq!(states(&plugin), ("changed".into(), Some(1)));
    fs::remove_file(&plugin).unwrap();
    assert_eq!(states(&plugin), ("missing".into(), Some(1)));
    fs::create_dir(&plugin).unwrap();
    assert_eq!(states(&plugin), ("unknown".into(), Some(0)));
    fs::remove_dir(&plugin).unwrap();
    fs::write(&plugin, before).unwrap();
    assert_eq!(states(&plugin), ("same".into(), Some(0)));
    // What the program wrote may go. What it read may not.
    fs::remove_file(s.path("made")).unwrap();
    assert_eq!(states(&plugin), ("same".into(), Some(0)));
    fs::remove_file(s.path("input")).unwrap();
    assert_eq!(states(&s.path("input")), ("missing".into(), Some(1)));
    let text = ask(&s, &trace, &[]).text();
    let row = text.lines().find(|l| l.ends_with("/input")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..4], ["missing", "read", "?", "?"], "{row}");
}

#[test]
fn what_the_recording_has_is_taken_out() {
    let s = Scene::new();
    let (trace, program, plugin) = record(&s);
    let wanted = [&program, &plugin].map(|p| fs::read(p).unwrap());
    // Whatever is here now.
    fs::write(&program, "rebuilt").unwrap();
    fs::remove_file(&plugin).unwrap();
    let (all, status) = list(&s, &trace, &["--extract", "a/out"]);
    assert_eq!(status, Some(1));
    for (path, wanted) in [&program, &plugin].into_iter().zip(wanted) {
        let copy = s.path("a/out").join(path.strip_prefix("/").unwrap());
        assert_eq!(fs::read(&copy).unwrap(), wanted);
        let mode = fs::metadata(&copy).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let told = entry(&all, path)["extracted"].as_str().unwrap();
        assert_eq!(s.path(told), copy);
    }
    assert!(entry(&all, &s.path("input"))["extracted"].is_null());
    // Nothing is overwritten.
    let copy = s.path("a/out").join(program.strip_prefix("/").unwrap());
    fs::write(&copy, "mine").unwrap();
    let again = ask(&s, &trace, &["--extract", "a/out"]);
    assert_eq!(again.status.code(), Some(2));
    let said = again.messages();
    assert!(said.contains("something with its name already"), "{said}");
    assert_eq!(fs::read(&copy).unwrap(), b"mine");
}

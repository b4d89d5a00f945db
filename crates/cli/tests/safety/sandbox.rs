//! Commands that play a recording do so in a sandbox, and work as usual.

use hindsight_lab::{Scene, kill};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

/// Whether this kernel filters system calls, and lets the test ask. Not every container does.
fn filters() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    // SAFETY: asks whether a filter would be taken; there is none at address 0.
    let asked = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, 0) };
    let e = std::io::Error::last_os_error().raw_os_error();
    status.contains("Seccomp:") && asked == -1 && e == Some(libc::EFAULT)
}

fn all_commands(s: &Scene, file: &Path) {
    let file = file.to_str().unwrap();
    for c in [
        &["replay", "--verify", file][..],
        &["replay", "--verify", "--check-order", "--count", file],
        &["replay", "--verify=digests", "--jobs", "2", file],
        &["info", file],
        &["events", file],
        &["index", file],
        &["index", "--range", "10%..20%", "--interval", "2000", file],
        &["at", file, "50%"],
        &["backtrace", "--threads", file, "90%"],
        &["mem", file, "90%", "0x1000", "8"],
        &["output", file],
        &["data", file],
        &["data", "--raw", "--in", "--fd", "libc.so.6", file],
        &["audit", file],
        &["rerun", "--quiet", file],
        // Amid its run the program may have a file open whose length it has not asked for: that is refused.
        &["resume", "--dry-run", file, "end"],
        &["maps", file, "90%"],
        &["symbol", &format!("{file}@90%"), "libc!malloc"],
        &["writes", file, "0x1000", "8"],
        &["origin", file, "90%", "$rsp", "8"],
        &["calls", file, "0x1000"],
        &["breakpath", file, "1%"],
        &["serve", file],
        &["diff", file, file],
    ] {
        let done = s.run(&mut s.hindsight(c));
        assert_eq!(done.status.code(), Some(0), "{c:?}: {}", done.messages());
        assert!(
            !done.messages().contains("not permitted"),
            "{c:?}: {}",
            done.messages()
        );
    }
    assert!(
        Path::new(file).with_extension("hsx").exists(),
        "{file}: no index"
    );
    let done = s.run(&mut s.hindsight(&["replay", "--verify", "--json", file]));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["sandbox"]["system_calls"], filters(), "{json}");
    assert!(json["sandbox"]["landlock"].is_u64(), "{json}");
}

#[test]
fn commands_work_on_recordings_in_the_store_and_elsewhere() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/sh", "-c", "ls / | wc -l"]);
    all_commands(&s, &trace);
    let stored = s.run(&mut s.hindsight(&["record", "-q", "--", "/bin/sh", "-c", "ls /"]));
    assert_eq!(stored.status.code(), Some(0));
    let latest = s.run(&mut s.hindsight(&["replay", "--verify"]));
    assert_eq!(latest.status.code(), Some(0), "{}", latest.messages());
    let list = s.run(&mut s.hindsight(&["ls", "--json"]));
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let file = list[0]["file"].as_str().unwrap();
    all_commands(&s, Path::new(file));
    // By its name. And through a link from elsewhere: the index is then beside the link.
    let name = list[0]["name"].as_str().unwrap();
    let done = s.run(&mut s.hindsight(&["at", name, "50%"]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let link = s.path("link.hst");
    symlink(file, &link).unwrap();
    all_commands(&s, &link);
    // By a relative path. The shared files must still be found.
    let mut relative = s.hindsight(&["replay", "--verify", &format!("{name}.hst")]);
    let relative = s.run(relative.current_dir(s.path("store")));
    assert_eq!(relative.status.code(), Some(0), "{}", relative.messages());
    let done = s.run(&mut s.hindsight(&["index", "./trace.hst"]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let done = s.run(&mut s.hindsight(&["index", "trace.hst"]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
}

#[test]
fn what_goes_wrong_is_said_as_ever() {
    let s = Scene::new();
    let missing = s.run(&mut s.hindsight(&["info", "./none.hst"]));
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        missing.messages().contains("No such file"),
        "{}",
        missing.messages()
    );
    fs::write(s.path("text.hst"), "no recording").unwrap();
    let other = s.run(&mut s.hindsight(&["events", "./text.hst"]));
    assert_eq!(other.status.code(), Some(2));
    assert_eq!(other.messages().lines().count(), 1, "{}", other.messages());
}

/// The sandbox has a filter. The broker has none. Both end together.
#[test]
fn the_process_that_plays_is_locked_up() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/true"]);
    let start = || {
        s.hindsight(&["gdbserver", "--stdio"])
            .arg(&trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = |pid: u32| -> Vec<i32> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace()
            .map(|p| p.parse().unwrap())
            .collect()
    };
    for ends_with in ["its client", "a signal", "its parent"] {
        let mut server = start();
        let mut input = server.stdin.take().unwrap();
        input.write_all(b"$?#3f").unwrap();
        let mut first = [0];
        server
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut first)
            .unwrap();
        let [player] = children(server.id())[..] else {
            panic!("not one process plays");
        };
        let status = fs::read_to_string(format!("/proc/{player}/status")).unwrap();
        if filters() {
            assert!(status.contains("Seccomp:\t2\n"), "{status}");
            assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        }
        match ends_with {
            "its client" => drop(input),
            "a signal" => assert!(kill(server.id() as i32, libc::SIGTERM)),
            _ => server.kill().unwrap(),
        }
        server.wait().unwrap();
        hindsight_lab::await_end(player);
    }
}

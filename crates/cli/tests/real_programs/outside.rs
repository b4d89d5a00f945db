//! What is not recorded, beside what is: other processes that write the same memory, and programs with other rights.

use hindsight_lab::{Scene, words};
use serde_json::Value;
use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

/// `beside.c` reads, recorded, what it writes at the same time in another process, natively.
fn written_beside(kind: &[&str]) {
    let scene = Scene::new();
    let program = scene.compile("beside.c", &[]);
    let board = scene.path("board");
    let role = |role: &str| {
        let mut args = vec![role];
        args.extend(kind);
        args.push(board.to_str().unwrap());
        words(&program, &args)
    };
    let trace = scene.path("trace.hst");
    let mut told = Vec::new();
    for regime in [None, Some("quiet"), Some("checked")] {
        fs::write(&board, "").unwrap();
        let writer = role("write");
        let writer = scene.start(scene.command(&writer[0]).args(&writer[1..]));
        writer.first_line();
        let reader = role("read");
        let done = match regime {
            None => scene.native(&reader),
            Some(r) => {
                let _ = fs::remove_file(&trace);
                let mut command = scene.hindsight(&["record", "--quiet", "--regime", r, "-o"]);
                scene.run(command.arg(&trace).arg("--").args(&reader))
            }
        };
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        assert_eq!(writer.finish().status.code(), Some(0));
        told.push(done.text());
        if regime.is_some() {
            scene.must_verify(&trace);
        }
    }
    assert!(told[0].ends_with(" 4002000\n"), "{}", told[0]);
    assert!(told.iter().all(|t| *t == told[0]), "{told:?}");
}

#[test]
fn a_mapped_file_is_written_beside() {
    written_beside(&[]);
}

#[test]
fn shared_memory_is_written_beside() {
    written_beside(&["shm"]);
}

#[test]
fn programs_with_other_rights_run_unrecorded_and_are_marked() {
    let scene = Scene::new();
    set_permissions(scene.path(""), Permissions::from_mode(0o755)).unwrap();
    let script = "id -u; su --version > /dev/null; echo $?; id -u";
    // root gains no rights from `su`, so the test then runs as another user.
    // SAFETY: it only asks.
    let argv: Vec<&str> = match unsafe { libc::geteuid() } {
        0 => "setpriv --reuid=65534 --regid=65534 --clear-groups sh -c"
            .split(' ')
            .chain([script])
            .collect(),
        _ => vec!["sh", "-c", script],
    };
    let done = scene.same(&argv);
    assert!(done.text().contains("\n0\n"), "{}", done.text());
    let info = scene.info(&scene.path("trace.hst"));
    let images = info["images"].as_array().unwrap();
    let marked = |i: &&Value| {
        let message = i["message"].as_str().unwrap_or_default();
        message.contains("su runs unrecorded: it runs with the rights of another user")
    };
    assert_eq!(images.iter().filter(marked).count(), 1, "{images:#?}");
    // What its shell does next is recorded.
    let last = images.iter().filter(|i| i["command"] == "id -u").count();
    assert_eq!(last, 2, "{images:#?}");
}

#[test]
fn other_personalities_users_and_namespaces() {
    let scene = Scene::new();
    scene.same(&["setarch", "-R", "sh", "-c", "cat /proc/self/personality"]);
    // Where it is not allowed, it fails in the same way.
    scene.same(&["unshare", "-r", "sh", "-c", "id -u; ls -d /"]);
}

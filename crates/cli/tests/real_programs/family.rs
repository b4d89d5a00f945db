//! The quiet regime of processes with children. They stay quiet unless a child can change their memory.

use hindsight_lab::{Scene, words};
use std::fs;

/// Whether the first process is quiet at the end, and the reason if not.
fn regime(scene: &Scene) -> (bool, String) {
    let info = scene.info(&scene.path("trace.hst"));
    let streams = info["streams"].as_array().unwrap();
    let r = streams.iter().map(|s| &s["regime"]).find(|r| !r.is_null());
    let r = r.unwrap();
    (
        r["quiet"].as_bool().unwrap(),
        r["reason"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn copies_of_a_process_leave_it_quiet() {
    let scene = Scene::new();
    let program = scene.compile("family.c", &[]);
    let done = scene.same(&words(&program, &["copies"]));
    assert!(done.status.success());
    let (quiet, why) = regime(&scene);
    assert!(quiet, "{why}");
    let script = "for i in 1 2 3; do x=$(ls / | wc -l); (x=$x$i; echo $x); done; echo $x | cat";
    for shell in ["/bin/dash", "/bin/bash"] {
        scene.same(&[shell, "-c", script]);
        let (quiet, why) = regime(&scene);
        assert!(quiet, "{shell}: {why}");
    }
    let script = "import os, sys\nwords = [str(i) for i in range(1000)]\nfor i in range(4):\n    \
        sys.stdout.flush()\n    p = os.fork()\n    if p == 0:\n        words[i] = 'child'\n        \
        print(len(''.join(words)), flush=True)\n        os._exit(i)\n    words[i] += '!'\n    \
        print(os.waitpid(p, 0)[1], len(''.join(words)))";
    scene.same(&["/usr/bin/python3", "-c", script]);
    let (quiet, why) = regime(&scene);
    assert!(quiet, "python: {why}");
}

#[test]
fn children_that_can_change_it_end_it() {
    let scene = Scene::new();
    let program = scene.compile("family.c", &[]);
    let path = scene.path("mapped");
    fs::write(&path, "0123456789abcdef".repeat(600)).unwrap();
    for (part, word) in [
        ("common", "others can share"),
        ("vm", "may write to this one's memory"),
        ("file", "may write to this one's memory"),
        ("replaced", "a file changed"),
    ] {
        let done = scene.same(&words(&program, &[part, path.to_str().unwrap()]));
        assert!(done.status.success(), "{part}");
        let (quiet, why) = regime(&scene);
        assert!(!quiet && why.contains(word), "{part}: {why}");
        fs::write(&path, "0123456789abcdef".repeat(600)).unwrap();
    }
    // A process to which a child attaches is not recorded further.
    let done = scene.same(&words(&program, &["ptrace", path.to_str().unwrap()]));
    assert!(done.status.success());
    let info = scene.info(&scene.path("trace.hst"));
    let first = &info["images"][0];
    let why = first["message"].as_str().unwrap();
    assert!(
        why.contains("another recorded process traces it"),
        "{first}"
    );
}

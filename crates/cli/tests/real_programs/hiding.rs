//! What the recorder keeps open and counts, and under which restrictions programs are still recorded.

use hindsight_lab::{Scene, words};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

#[test]
fn descriptors_and_limits_are_the_programs() {
    let scene = Scene::new();
    let program = scene.compile("fds.c", &["-D_GNU_SOURCE"]);
    scene.same(&words(&program, &[]));
    let info = scene.info(&scene.path("trace.hst"));
    // Seven children, and the programs that they executed.
    assert_eq!(info["images"].as_array().unwrap().len(), 15);
}

#[test]
fn programs_are_recorded_wherever_they_run() {
    let scene = Scene::new();
    set_permissions(scene.path(""), Permissions::from_mode(0o755)).unwrap();
    let program = scene.compile("cell.c", &["-static"]);
    let jail = scene.path("");
    // Not dumpable, in other namespaces, with another root without `/proc`, as another user, and combinations. What is
    // not allowed fails natively, too.
    for how in ["d", "n", "c", "u", "dc", "nc", "dcu", "ncu"] {
        let args = [how, program.to_str().unwrap(), jail.to_str().unwrap()];
        let done = scene.same(&words(&program, &args));
        let info = scene.info(&scene.path("trace.hst"));
        let executed = done.text().contains("inside 16843009");
        let images = info["images"].as_array().unwrap().len();
        assert_eq!(
            images,
            if executed { 3 } else { 2 },
            "{how}: {}",
            done.text()
        );
    }
}

#[test]
fn address_space_may_be_limited_from_outside() {
    let scene = Scene::new();
    let script = "ulimit -S -v 400000; ulimit -v; exec \"$@\"";
    let trace = scene.path("trace.hst");
    let mut command = scene.command("/bin/sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_hindsight")]);
    command.args(["record", "--quiet", "-o"]).arg(&trace);
    command.args(["/bin/sh", "-c", "ulimit -v; ls -d /"]);
    let done = scene.run(&mut command);
    assert_eq!(done.text(), "400000\n400000\n/\n", "{}", done.messages());
    scene.must_verify(&trace);
}

//! Code that is generated or changed at run time.

use crate::harness::{Scene, words};

#[test]
fn generated_and_patched_code() {
    let scene = Scene::new();
    for options in [&["-O2"][..], &["-O0", "-static"]] {
        let program = scene.compile("jit.c", options);
        let done = scene.same(&words(&program, &[]));
        assert_eq!(done.text().lines().last(), Some("9965131"));
    }
}

/// Runs `argv` natively and recorded with the smallest predictor, and compares.
fn same_with_few_cells(scene: &Scene, argv: &[std::ffi::OsString]) {
    let trace = scene.path("small.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--predictor=cache:4k", "-o"]);
    let done = scene.run(command.arg(&trace).arg("--").args(argv));
    let native = scene.native(argv);
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    scene.must_verify(&trace);
}

#[test]
fn rare_instructions() {
    let scene = Scene::new();
    let program = scene.compile("rare.c", &[]);
    scene.same(&words(&program, &[]));
    same_with_few_cells(&scene, &words(&program, &["flat"]));
}

#[test]
fn gathers_and_scatters() {
    let scene = Scene::new();
    let program = scene.compile("gather.c", &[]);
    scene.same(&words(&program, &[]));
    same_with_few_cells(&scene, &words(&program, &[]));
}

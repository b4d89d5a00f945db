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

#[test]
fn rare_instructions() {
    let scene = Scene::new();
    let program = scene.compile("rare.c", &[]);
    scene.same(&words(&program, &[]));
    let trace = scene.path("small.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--predictor=cache:4k", "-o"]);
    let done = scene.run(command.arg(&trace).arg("--").arg(&program).arg("flat"));
    assert_eq!(
        done.text(),
        scene.native(&words(&program, &["flat"])).text()
    );
    scene.must_verify(&trace);
}

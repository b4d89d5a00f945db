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

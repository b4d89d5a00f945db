//! The build script.

/// A copy of the tree, with what was built in it, must look at its own recorder.
#[test]
fn the_recorder_is_looked_for_beside_this_crate() {
    let output = include_str!(concat!(env!("OUT_DIR"), "/../output"));
    let prefix = "cargo:rerun-if-changed=";
    let watched: Vec<&str> = output
        .lines()
        .filter_map(|l| l.strip_prefix(prefix))
        .collect();
    for name in ["image", "recorder", "events", "translate"] {
        let sources = format!("../{name}/src");
        assert!(watched.contains(&sources.as_str()), "{watched:?}");
    }
    for path in watched {
        assert!(path.starts_with("../") || path == "build.rs", "{path}");
    }
    // No other file is named by a path, and so nothing that lies elsewhere is built in.
    assert!(!output.contains("cargo:rustc-env"), "{output}");
}

//! Builds the recorder, which is freestanding and has its own profile, so that the library can carry it in itself.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What the recorder is made of.
const CRATES: [&str; 8] = [
    "image",
    "recorder",
    "isa",
    "events",
    "glue",
    "syscalls",
    "translate",
    "confine",
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let cargo = env::var_os("CARGO").expect("cargo sets it");
    for name in CRATES {
        for part in ["src", "Cargo.toml", "build.rs", "Cargo.lock"] {
            // Relative to this crate: a copy of the tree, with what was built in it, looks at its own files.
            let path = format!("../{name}/{part}");
            if here.join(&path).exists() {
                println!("cargo:rerun-if-changed={path}");
            }
        }
    }
    println!("cargo:rerun-if-changed=build.rs");

    // Checks and builds run this script apart from each other. What it builds is the same.
    let profile = out.ancestors().nth(3).expect("cargo has its folders");
    let target = profile.join("recorder-target");
    let mut build = Command::new(cargo);
    build
        .arg("build")
        .arg("--release")
        .arg("--manifest-path")
        .arg(here.join("../image/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    // What the outer build was told (flags, wrappers, another target folder) is not meant for a
    // freestanding program. What says where packages come from is.
    for (name, _) in env::vars_os() {
        let n = name.to_string_lossy();
        let packages = [
            "CARGO_HOME",
            "CARGO_NET_",
            "CARGO_HTTP_",
            "CARGO_REGISTR",
            "CARGO_SOURCE_",
        ];
        let inherited = n.starts_with("CARGO") && !packages.iter().any(|p| n.starts_with(p));
        if inherited
            || [
                "RUSTFLAGS",
                "RUSTC_WRAPPER",
                "RUSTC_WORKSPACE_WRAPPER",
                "RUSTC",
                "RUSTDOC",
            ]
            .contains(&&*n)
        {
            build.env_remove(&name);
        }
    }
    // Whether a hot function begins at a line of the cache is worth a tenth of a system call, and would change
    // with what is linked before it.
    build.env("RUSTFLAGS", "-Cllvm-args=-align-all-functions=6");
    // The image is copied at each start.
    build.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    let status = build.status().expect("cargo runs");
    assert!(status.success(), "the recorder could not be built");
    let built = target.join("release/hindsight-recorder");
    fs::copy(built, out.join("hindsight-recorder")).expect("the recorder is copied");
}

//! Links the recorder as a static image at an address of its own. It has no start files and no C
//! library. The process has those of the recorded program, and must have no others.

#[path = "../events/src/arena.rs"]
#[expect(dead_code, reason = "the recorder has use for the rest")]
mod arena;

fn main() {
    let base = format!("-Wl,--image-base={:#x}", arena::ARENA.start);
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        &base,
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../events/src/arena.rs");
}

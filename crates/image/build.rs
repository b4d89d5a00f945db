//! Links the recorder as a static image at an address of its own, without start files or a C
//! library: the recorded program's are to be the only ones in the process.
fn main() {
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--image-base=0x680000000000",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}

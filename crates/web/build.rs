//! Says how much memory the module may have.

/// Bytes of the stack. Machines and their pages lie on it in part.
const STACK: u64 = 4 << 20;
/// Bytes of all memory, the stack included.
const MEMORY: u64 = 2 << 30;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_FAMILY").as_deref() == Ok("wasm") {
        println!("cargo:rustc-cdylib-link-arg=-zstack-size={STACK}");
        println!("cargo:rustc-cdylib-link-arg=--max-memory={MEMORY}");
        // What debuggers would need is most of the module, and Node reads all of it.
        println!("cargo:rustc-cdylib-link-arg=--strip-debug");
    }
}

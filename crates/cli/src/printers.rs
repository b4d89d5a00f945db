//! Pretty printers for gdb where it reads the program's files from the recording. By itself it loads none for such
//! files. Those of this machine's C++ library and Rust compiler are taken; nothing that the recording names is executed.

use anyhow::Result;
use hindsight_timeline::Timeline;
use serde_json::json;
use std::process::{Command, Stdio};

/// Where compilers of Debian and others have the printers of their C++ library.
const CPP: [&str; 2] = ["/usr/share/gcc/python", "/usr/share/gcc-*/python"];
/// What programs have in them that Rust's compiler has made.
const BY_RUST: &[u8] = b"rustc version ";

/// What gdb's Python is to do; gdb without Python does without.
const SCRIPT: &str = r#"
import glob, os, sys
def hindsight_printers(cpp, rust):
    for folder in sorted(f for pattern in cpp for f in glob.glob(pattern)):
        if os.path.isdir(os.path.join(folder, "libstdcxx")):
            sys.path.insert(0, folder)
            try:
                from libstdcxx.v6 import register_libstdcxx_printers
                register_libstdcxx_printers(None)
                break
            except Exception:
                sys.path.remove(folder)
    if rust:
        sys.path.append(rust)
        try:
            import gdb_lookup
            gdb_lookup.register_printers(gdb.current_progspace())
        except Exception:
            sys.path.remove(rust)
"#;

/// What is to be executed by gdb's Python.
pub fn script(of_rust: bool) -> String {
    let rust = if of_rust { rust_folder() } else { None };
    // Lists and texts in JSON are such in Python.
    let rust = rust.map_or("None".into(), |f| json!(f).to_string());
    let call = format!("hindsight_printers({}, {rust})\n", json!(CPP));
    SCRIPT.to_string() + &call
}

/// Whether Rust's compiler has made the program that a recording begins with.
pub fn has_rust(timeline: &Timeline) -> Result<bool> {
    let Some(first) = timeline.processes()?.first().map(|p| p.image) else {
        return Ok(false);
    };
    let program = timeline.modules(first)?.into_iter().find_map(|m| m.hash);
    let Some(hash) = program else {
        return Ok(false);
    };
    let bytes = timeline.module_bytes(hash)?;
    Ok(bytes.windows(BY_RUST.len()).any(|w| w == BY_RUST))
}

/// Where the compiler that is installed here has its printers, as `rust-gdb` finds them. In the root folder, since other
/// folders may say which compiler is meant.
fn rust_folder() -> Option<String> {
    let done = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let root = String::from_utf8(done.stdout).ok()?;
    let folder = format!("{}/lib/rustlib/etc", root.trim_end());
    (done.status.success()
        && std::path::Path::new(&folder)
            .join("gdb_lookup.py")
            .is_file())
    .then_some(folder)
}

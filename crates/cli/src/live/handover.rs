//! A process that stands still is handed over to gdb.

use anyhow::{Result, bail};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Fails if gdb cannot be started.
pub fn needs_gdb() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |m: std::fs::Metadata| m.is_file() && m.mode() & 0o111 != 0;
    match std::env::split_paths(&path).any(|f| f.join("gdb").metadata().is_ok_and(is_program)) {
        true => Ok(()),
        false => bail!("there is no gdb in PATH"),
    }
}

/// Becomes gdb, which so is the process's parent and may trace it. Returns why that failed.
pub fn become_gdb(pid: i32) -> io::Error {
    // `exec` gives the signals that are handled here their usual actions.
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-p", &pid.to_string()]);
    gdb.exec()
}

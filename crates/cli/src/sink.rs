//! Where a recording goes.

use crate::{os, store};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An opened destination.
pub struct Sink {
    pub out: Box<dyn Write + Send>,
    /// For people.
    pub name: String,
    /// The file in the store that this is, if it is one.
    pub stored: Option<PathBuf>,
    /// Standard output is taken.
    pub takes_stdout: bool,
}

/// Opens what `-o` says; by default a new file in the store, named after `program`.
pub fn open(output: Option<&OsStr>, program: &str, seconds: i64) -> Result<Sink> {
    let sink = |out, name: String| Sink {
        out,
        name,
        stored: None,
        takes_stdout: false,
    };
    let Some(output) = output else {
        let (path, file) = store::create(program, seconds)?;
        let name = path.display().to_string();
        return Ok(Sink {
            stored: Some(path),
            ..sink(Box::new(os::raise(file)?), name)
        });
    };
    if output == "-" {
        if std::io::stdout().is_terminal() {
            bail!("a recording is not for a terminal: redirect standard output, or name a file");
        }
        let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        let out = Box::new(os::raise(file)?);
        return Ok(Sink {
            takes_stdout: true,
            ..sink(out, "standard output".into())
        });
    }
    if let Some(address) = output.as_bytes().strip_prefix(b"tcp:") {
        let address = String::from_utf8_lossy(address).into_owned();
        let stream =
            TcpStream::connect(&address).with_context(|| format!("cannot connect to {address}"))?;
        let out = Box::new(os::raise(File::from(std::os::fd::OwnedFd::from(stream)))?);
        return Ok(sink(out, format!("tcp:{address}")));
    }
    let path = PathBuf::from(output);
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(sink(Box::new(os::raise(file)?), path.display().to_string()))
}

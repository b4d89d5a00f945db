//! Where a recording goes.

use crate::{os, store};
use anyhow::{Context, Result, bail};
use hindsight_guard::private;
use hindsight_trace::files::Files;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A destination that is not open yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A new file in the store.
    Store {
        /// With a copy of all files of its own.
        contained: bool,
    },
    File(PathBuf),
    StandardOutput,
    Tcp(String),
}

/// What is written.
pub type Out = Box<dyn Write + Send>;

/// An opened destination.
pub struct Sink {
    pub out: Out,
    /// With what the recording shares the content of files.
    pub files: Option<Files>,
    pub place: Place,
}

/// Where a recording is or goes.
pub struct Place {
    /// For people.
    pub name: String,
    /// The file in the store that this is, if it is one.
    pub stored: Option<PathBuf>,
    /// The file that this is.
    pub file: Option<PathBuf>,
}

impl Place {
    /// Deletes the file.
    pub fn discard(&self) {
        // Devices and the like stay.
        if let Some(file) = &self.file
            && file.symlink_metadata().is_ok_and(|m| m.is_file())
        {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Target {
    /// What `-o` says; by default a new file in the store. `contained`: that needs no other files.
    pub fn of(output: Option<&OsStr>, contained: bool) -> Target {
        let Some(output) = output else {
            return Target::Store { contained };
        };
        if output == "-" {
            return Target::StandardOutput;
        }
        match output.as_bytes().strip_prefix(b"tcp:") {
            Some(address) => Target::Tcp(String::from_utf8_lossy(address).into_owned()),
            None => Target::File(output.into()),
        }
    }

    /// Whether a recording that is not to be kept can be deleted.
    pub fn is_file(&self) -> bool {
        matches!(self, Target::Store { .. } | Target::File(_))
    }

    /// Opens it for a recording of `program`, which is part of the name in the store.
    pub fn open(&self, program: &str, seconds: i64) -> Result<Sink> {
        let sink = |file: File, name: String, path: Option<&Path>| -> Result<Sink> {
            Ok(Sink {
                out: Box::new(os::raise(file)?),
                files: None,
                place: Place {
                    name,
                    stored: None,
                    file: path.map(PathBuf::from),
                },
            })
        };
        match self {
            Target::Store { contained } => {
                let (path, file) = store::create(program, seconds)?;
                let mut sink = sink(file, path.display().to_string(), Some(&path))?;
                // Where this cannot be, the recording has all itself.
                let files = || Files::open(path.parent()?).ok();
                sink.files = (!contained).then(files).flatten();
                sink.place.stored = Some(path);
                Ok(sink)
            }
            Target::File(path) => {
                let file = private::create_named(path)
                    .with_context(|| format!("cannot create {}", path.display()))?;
                sink(file, path.display().to_string(), Some(path))
            }
            Target::StandardOutput => {
                if std::io::stdout().is_terminal() {
                    bail!(
                        "a recording is not for a terminal: redirect standard output, or name a file"
                    );
                }
                let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
                sink(file, "standard output".into(), None)
            }
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address)
                    .with_context(|| format!("cannot connect to {address}"))?;
                let file = File::from(std::os::fd::OwnedFd::from(stream));
                sink(file, format!("tcp:{address}"), None)
            }
        }
    }

    /// An unnamed file on the disk where the recording goes.
    pub fn scratch(&self) -> Result<File> {
        let folder = match self {
            Target::Store { .. } => store::folder()?,
            Target::File(path) => match path.parent() {
                Some(p) if !p.as_os_str().is_empty() => p.into(),
                _ => PathBuf::from("."),
            },
            _ => std::env::temp_dir(),
        };
        let path = folder.join(format!(".hindsight-ring-{}", std::process::id()));
        let file = private::create_new(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        Ok(os::raise(file)?)
    }
}

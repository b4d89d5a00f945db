//! Where a recording goes.

use crate::error::{During, Error, Result};
use crate::sys;
use hindsight_guard::private;
use hindsight_store as store;
use hindsight_trace::files::Files;
use hindsight_trace::live;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a recording goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A new file in the [store](hindsight_store).
    Store {
        /// Whether it has a copy of all files of its own. Otherwise recordings in the store share one copy.
        contained: bool,
    },
    /// A file, which is emptied if it is there. It may be a pipe or a device.
    File(PathBuf),
    /// Standard output of this process. The program's own goes to standard error.
    StandardOutput,
    /// Another machine that listens at `HOST:PORT`, such as by [`crate::receive`].
    Tcp(String),
}

/// What is written.
pub(crate) type Out = Box<dyn Write + Send>;

/// Where the content of files is already.
pub(crate) enum Contents {
    /// The recording refers to what is there, and adds what is missing.
    Shared(Files),
    /// The recording has all itself. What is there need not be packed again for it.
    Packed(Files),
}

impl Contents {
    fn packed() -> Option<Contents> {
        Files::existing(&store::dir().ok()?).map(Contents::Packed)
    }
}

/// An opened destination.
pub(crate) struct Sink {
    pub out: Out,
    /// Where the content of files is already.
    pub files: Option<Contents>,
    pub written: Written,
}

/// Where a recording is being written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// For people.
    pub name: String,
    /// The file in the store that this is, if it is one.
    pub stored: Option<PathBuf>,
    /// The file that this is.
    pub file: Option<PathBuf>,
}

impl Written {
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

impl Destination {
    /// What a user says: a file, `-` for standard output, or `tcp:HOST:PORT`; by default a new file in the store.
    /// `contained`: that needs no other files.
    pub fn of(output: Option<&OsStr>, contained: bool) -> Destination {
        let Some(output) = output else {
            return Destination::Store { contained };
        };
        if output == "-" {
            return Destination::StandardOutput;
        }
        match output.as_bytes().strip_prefix(b"tcp:") {
            Some(address) => Destination::Tcp(String::from_utf8_lossy(address).into_owned()),
            None => Destination::File(output.into()),
        }
    }

    /// Whether a recording that is not to be kept can be deleted.
    pub fn is_file(&self) -> bool {
        matches!(self, Destination::Store { .. } | Destination::File(_))
    }

    /// Opens it for a recording of `program`, which is part of the name in the store.
    pub(crate) fn open(&self, program: &str, seconds: i64) -> Result<Sink> {
        let sink = |file: File, name: String, path: Option<&Path>| -> Result<Sink> {
            Ok(Sink {
                out: Box::new(sys::files::raise(file)?),
                files: Contents::packed(),
                written: Written {
                    name,
                    stored: None,
                    file: path.map(PathBuf::from),
                },
            })
        };
        match self {
            Destination::Store { contained } => {
                let (path, file) = store::create(program, seconds)?;
                let mut sink = sink(file, path.display().to_string(), Some(&path))?;
                // Where this cannot be, the recording has all itself.
                if let Some(folder) = path.parent().filter(|_| !contained) {
                    sink.files = Files::open(folder).ok().map(Contents::Shared);
                }
                sink.written.stored = Some(path);
                Ok(sink)
            }
            Destination::File(path) => {
                let file = private::create_named(path)
                    .during_with(|| format!("cannot create {}", path.display()))?;
                live::hold(&file);
                sink(file, path.display().to_string(), Some(path))
            }
            Destination::StandardOutput => {
                if std::io::stdout().is_terminal() {
                    return Err(Error::Terminal);
                }
                let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
                sink(file, "standard output".into(), None)
            }
            Destination::Tcp(address) => {
                let stream = TcpStream::connect(address)
                    .during_with(|| format!("cannot connect to {address}"))?;
                let file = File::from(std::os::fd::OwnedFd::from(stream));
                sink(file, format!("tcp:{address}"), None)
            }
        }
    }

    /// An unnamed file on the disk where the recording goes.
    pub(crate) fn scratch(&self) -> Result<File> {
        let folder = match self {
            Destination::Store { .. } => store::folder()?,
            Destination::File(path) => match path.parent() {
                Some(p) if !p.as_os_str().is_empty() => p.into(),
                _ => PathBuf::from("."),
            },
            _ => std::env::temp_dir(),
        };
        let path = folder.join(format!(".hindsight-ring-{}", std::process::id()));
        let file = private::create_new(&path)
            .during_with(|| format!("cannot create {}", path.display()))?;
        std::fs::remove_file(&path).during_with(|| path.display().to_string())?;
        Ok(sys::files::raise(file)?)
    }
}

//! `hindsight convert`: what a recording tells, in the formats of other tools.

use super::{Handlers, Source, sources};
use crate::{args, confine, limits, store};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};

pub use crate::args::Exchange;

/// What is asked, in a process that is confined.
pub struct AskedToConvert {
    /// The recording.
    pub recording: Source,
    /// Processors to use.
    pub processors: usize,
    /// The format.
    pub to: Exchange,
    /// Absolute paths of folders. Source files elsewhere are not wanted, if there is one.
    pub folders: Vec<PathBuf>,
    /// Functions whose calls are wanted.
    pub calls: Vec<String>,
    /// The file that gets it, which is empty, and its path. `None`: standard output.
    pub file: Option<(File, PathBuf)>,
}

pub(super) fn run(handlers: &Handlers, a: args::Convert) -> Result<i32> {
    if !a.calls.is_empty() && a.to != Exchange::Perfetto {
        bail!("--calls is for --to perfetto");
    }
    if !a.source.is_empty() && a.to != Exchange::Lcov {
        bail!("--source is for --to lcov");
    }
    let folders: Vec<PathBuf> = (a.source.iter())
        .map(std::path::absolute)
        .collect::<std::io::Result<_>>()
        .context("--source")?;
    let found = [store::find(a.file.as_deref().map(Path::new))?];
    let processors = a.jobs.unwrap_or_else(limits::processors);
    let convert = |file: Option<File>| {
        let recording = sources(&found, processors).pop();
        (handlers.convert)(AskedToConvert {
            recording: recording.context("no recording")?,
            processors,
            to: a.to,
            folders: folders.clone(),
            calls: a.calls.clone(),
            file: file.map(|f| (f, a.output.clone())),
        })
    };
    match a.output == Path::new("-") {
        true => confine::run_on(&found, || Ok(()), |()| convert(None), |_| ()),
        false => {
            let with_file = |file: &File| convert(Some(file.try_clone()?));
            confine::run_on_making(&found, &a.output, with_file)
        }
    }
}

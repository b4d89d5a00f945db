//! `hindsight audit`: the files that a recording used, compared with those of this machine.

use crate::numbers::size;
use crate::out::println;
use crate::{args, confine, say, travel};
use anyhow::{Context, Result, bail};
use hindsight_guard::outside::{self, Compared};
use hindsight_guard::private;
use hindsight_inspect::{Asset, Content, Uses, assets};
use hindsight_text::bytes;
use hindsight_timeline::Options;
use hindsight_trace::{Text, Trace};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes that are taken out at a time.
const PART: usize = 1 << 20;
/// No more is taken out than this, and [`PER_BYTE`] for each byte of the recording with the files that it shares. Programs
/// and libraries compress to a third.
const MOST: u64 = 256 << 20;
const PER_BYTE: u64 = 32;
/// A file, or a folder that leads to it, counts as so many bytes more.
const PER_NAME: u64 = 4096;
/// Where the kernel shows itself. What is there belongs to a process or to a machine.
const KERNEL: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/dev/"];

/// Compares, and takes files out. The folder for these is opened before the process that plays the recording gives up its
/// file system. The broker makes the files and compares.
pub fn run(a: &args::Audit) -> Result<i32> {
    confine::run_wider(
        a.file.as_deref(),
        |allowed| {
            allowed.compares = true;
            if let Some(dir) = &a.extract {
                allowed.extract = Some(folder(dir)?.into());
            }
            Ok(())
        },
        || audit(a),
    )
}

fn folder(dir: &Path) -> Result<File> {
    let open = || {
        private::create_folder(dir)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY).open(dir)
    };
    open().with_context(|| format!("cannot open the folder {}", dir.display()))
}

/// How a file of this machine compares. Where the kernel shows itself, or where the file is one that has gone, there is
/// nothing to compare with.
fn compared(asset: &Asset) -> Compared {
    let path = Path::new(OsStr::from_bytes(&asset.path));
    let of_kernel = KERNEL.iter().any(|k| asset.path.starts_with(k));
    if of_kernel || asset.path.ends_with(b" (deleted)") {
        return Compared::Unknown;
    }
    // What the program wrote need not be what it was.
    if asset.uses.written && asset.content.is_none() {
        return Compared::Unknown;
    }
    let wanted = asset.content.map(|c| (c.size, c.hash.0));
    let wanted = wanted.as_ref().map(|(size, hash)| (*size, hash));
    // In this process nothing is read.
    outside::compare(path, wanted, |_| false)
}

fn state(c: Compared) -> &'static str {
    match c {
        Compared::Same => "same",
        Compared::Changed => "changed",
        Compared::Missing => "missing",
        Compared::There | Compared::Unknown => "unknown",
    }
}

fn uses(u: Uses) -> Vec<&'static str> {
    let all = [
        (u.program, "program"),
        (u.mapped, "mapped"),
        (u.read, "read"),
        (u.written, "written"),
    ];
    all.iter().filter(|u| u.0).map(|u| u.1).collect()
}

fn audit(a: &args::Audit) -> Result<i32> {
    let timeline = travel::open(None, Options::default())?;
    let found = assets(&timeline)?;
    let mut taken = Taken::new(timeline.trace());
    let (mut differs, mut list) = (false, Vec::new());
    for asset in &found.files {
        let state = compared(asset);
        differs |= matches!(state, Compared::Changed | Compared::Missing);
        let copy = match (asset.content, &a.extract) {
            (Some(content), Some(dir)) => taken.add(timeline.trace(), asset, content, dir),
            _ => None,
        };
        match a.json {
            true => list.push(asset_json(asset, state, copy.as_deref())),
            false => println(&asset_text(asset, state)),
        }
    }
    if a.json {
        println(&serde_json::to_string_pretty(&list)?);
    } else if let Some(dir) = &a.extract {
        let s = if taken.files == 1 { "" } else { "s" };
        say(&format!(
            "{} file{s} with {} are in {}",
            taken.files,
            size(taken.bytes),
            dir.display()
        ));
    }
    if let Some(problem) = found.problem {
        say(&format!(
            "not all files that were opened are listed: {problem}"
        ));
        return Ok(2);
    }
    if found.unseen.gaps || found.unseen.hidden {
        say("parts of the program are not recorded: what it opened there is not listed");
    }
    Ok(match taken.failed {
        true => 2,
        false => differs as i32,
    })
}

fn asset_text(asset: &Asset, compared: Compared) -> String {
    let (hash, len) = match asset.content {
        Some(c) => (c.hash.to_string(), size(c.size)),
        None => ("?".into(), "?".into()),
    };
    format!(
        "{:<8} {:<16} {len:>11}  {hash:<32}  {}",
        state(compared),
        uses(asset.uses).join(","),
        bytes(&asset.path)
    )
}

fn asset_json(asset: &Asset, compared: Compared, copy: Option<&Path>) -> Json {
    // The path may be no text.
    let copy = copy.map(|c| Text::from(c.as_os_str()));
    json!({
        "path": Text::from(asset.path.as_slice()),
        "uses": uses(asset.uses),
        "hash": asset.content.map(|c| c.hash.to_string()),
        "size": asset.content.map(|c| c.size),
        "state": state(compared),
        "extracted": copy,
    })
}

/// What was taken out.
struct Taken {
    names: HashSet<Vec<u8>>,
    /// How much may still be written.
    left: u64,
    /// What is there whole.
    files: u64,
    bytes: u64,
    failed: bool,
}

impl Taken {
    fn new(trace: &Trace) -> Taken {
        let recorded = trace.len() + trace.shared_bytes().unwrap_or(0);
        Taken {
            names: HashSet::new(),
            left: recorded.saturating_mul(PER_BYTE).saturating_add(MOST),
            files: 0,
            bytes: 0,
            failed: false,
        }
    }

    /// Takes a content out. Its path, if that has worked.
    fn add(
        &mut self,
        trace: &Trace,
        asset: &Asset,
        content: Content,
        dir: &Path,
    ) -> Option<PathBuf> {
        let begin = asset.path.iter().position(|b| *b != b'/')?;
        let mut name = asset.path[begin..].to_vec();
        if !self.names.insert(name.clone()) {
            name.extend(format!(".{}", content.hash).into_bytes());
        }
        let name = Path::new(OsStr::from_bytes(&name));
        match self.copy(trace, content, name) {
            Ok(()) => {
                self.files += 1;
                self.bytes += content.size;
                Some(dir.join(name))
            }
            Err(e) => {
                self.failed = true;
                say(&format!("{} is not taken out: {e:#}", bytes(&asset.path)));
                None
            }
        }
    }
    /// Writes a content to a new file. What is written counts even if not all of it can be written.
    fn copy(&mut self, trace: &Trace, content: Content, name: &Path) -> Result<()> {
        // Folders may stay behind.
        let names = (name.components().count() as u64).saturating_mul(PER_NAME);
        if names.saturating_add(content.size) > self.left {
            bail!("all files together are far larger than the recording");
        }
        self.left -= names;
        let part = |from: u64| {
            let len = (content.size - from).min(PART as u64) as usize;
            trace.module_part(content.module, from, len)
        };
        // A damaged beginning is noticed before there is a file.
        let first = part(0)?;
        let mut file = outside::extract(name).map_err(|e| match e.raw_os_error() {
            Some(libc::EXDEV) => anyhow::Error::msg("its name leads out of the folder"),
            Some(libc::EEXIST) => anyhow::Error::msg("there is something with its name already"),
            _ => e.into(),
        })?;
        let mut write = |bytes: &[u8]| {
            self.left = self.left.saturating_sub(bytes.len() as u64);
            file.write_all(bytes)
        };
        let mut rest = || -> Result<()> {
            write(&first)?;
            let mut done = first.len() as u64;
            while done < content.size {
                let bytes = part(done).context("the recording has only its beginning")?;
                write(&bytes)?;
                done += bytes.len() as u64;
            }
            Ok(())
        };
        rest().map_err(|e| match file.set_len(0) {
            Ok(()) => e.context("an empty file is left"),
            Err(_) => e.context("a part of it is left"),
        })
    }
}

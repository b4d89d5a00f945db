//! Whether files are what they were, and copies of what they were.

use super::{named, reopened};
use crate::received::{Content, Received};
use crate::{During, Error, Result};
use hindsight_text::bytes as shown;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// No larger copies are made.
const MOST: u64 = 4 << 30;

/// Why a file is not what it was. `None`: as far as is known, it is.
pub fn differs(
    r: &Received,
    stored: u32,
    unsure: Option<&str>,
    name: &File,
) -> Result<Option<String>> {
    if let Some(why) = unsure {
        return Ok(Some(format!(
            "cannot be compared: {}",
            hindsight_text::line(why)
        )));
    }
    let content = &r.files[stored as usize];
    let file = match reopened(name, libc::O_RDONLY | libc::O_NONBLOCK) {
        Ok(f) => f,
        Err(e) => return Ok(Some(format!("cannot be read: {e}"))),
    };
    let size = file
        .metadata()
        .during(|| "asking about a file".into())?
        .len();
    if let Some(was) = content.size
        && was != size
    {
        return Ok(Some(format!("had {was} bytes then, and has {size} now")));
    }
    for (at, len, kept) in &content.known {
        let want = r.kept(*kept, *len)?;
        let mut is = vec![0; *len as usize];
        let there = file.read_exact_at(&mut is, *at).is_ok();
        if !there || is != want {
            let same = is.iter().zip(&want).take_while(|(a, b)| a == b).count();
            return Ok(Some(format!(
                "has other content now, at offset {}",
                at + same as u64
            )));
        }
    }
    if !content.lost.is_empty() {
        return Ok(Some(
            "was changed later by the program, where it had not read it before".into(),
        ));
    }
    Ok(None)
}

/// What was compared, in words.
pub fn seen(r: &Received, stored: u32) -> String {
    let content = &r.files[stored as usize];
    let n: u64 = content.known.iter().map(|k| k.1).sum();
    match content.size {
        Some(_) => format!("same length, and the {n} bytes that the program used are the same"),
        None => format!("the {n} bytes that the program used are the same"),
    }
}

/// Makes a copy of a file as it was, in the folder of copies. What the program never saw is taken from the file of this machine.
pub fn rebuild(
    r: &Received,
    stored: u32,
    unsure: Option<&str>,
    name: Option<&File>,
    folder: &mut Option<PathBuf>,
    path: &[u8],
) -> Result<PathBuf> {
    let refuse = |why: &str| {
        Err(Error::Refused(format!(
            "{} cannot be made again: {why}",
            shown(path)
        )))
    };
    if let Some(why) = unsure {
        return refuse(&hindsight_text::line(why));
    }
    let content = &r.files[stored as usize];
    let now = name.and_then(|n| reopened(n, libc::O_RDONLY | libc::O_NONBLOCK).ok());
    let present = match &now {
        Some(f) => f.metadata().during(|| "asking about a file".into())?.len(),
        None => 0,
    };
    // Its length may only follow from what was seen of it.
    let last = content.known.last().map_or(0, |k| k.0 + k.1);
    let size = content.size.unwrap_or(last.max(present));
    if size > MOST {
        return refuse("it is too long");
    }
    if content.lost.iter().any(|l| l.0 < size) {
        return refuse("the program changed it later where it had not read it before");
    }
    if unseen(content, size) > present_part(content, size, present) {
        return refuse(
            "the program had not seen all of it, and this machine has not what it had not seen",
        );
    }
    if folder.is_none() {
        let made = tempfile::Builder::new()
            .prefix("hindsight-resume-")
            .tempdir();
        *folder = Some(made.during(|| "making a folder for copies".into())?.keep());
    }
    let folder = folder.as_deref().unwrap_or(Path::new("."));
    let base = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let base: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(base);
    let mut to = folder.join(base);
    let step = || format!("making a copy of {}", shown(path));
    if to.exists() {
        to = folder.join(format!("{stored}-{}", base.to_string_lossy()));
    }
    let mut out = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&to)
        .during(step)?;
    if let Some(mut f) = now {
        f.rewind().during(step)?;
        io::copy(&mut f.take(size), &mut out).during(step)?;
    }
    out.set_len(size).during(step)?;
    fill(r, content, size, &out).during(step)?;
    out.flush().during(step)?;
    Ok(to)
}

/// How many bytes below a length were not seen.
fn unseen(c: &Content, size: u64) -> u64 {
    let seen = c
        .known
        .iter()
        .map(|k| (k.0 + k.1).min(size).saturating_sub(k.0));
    size - seen.sum::<u64>().min(size)
}

/// How many of these the file of this machine has.
fn present_part(c: &Content, size: u64, present: u64) -> u64 {
    unseen(c, size.min(present))
}

fn fill(r: &Received, c: &Content, size: u64, to: &File) -> io::Result<()> {
    for (at, len, kept) in &c.known {
        let len = (*len).min(size.saturating_sub(*at));
        let bytes = r.kept(*kept, len).map_err(io::Error::other)?;
        to.write_all_at(&bytes, *at)?;
    }
    Ok(())
}

/// A new file in memory with the content that a file had, as a name; or why there is none.
pub fn in_memory(
    r: &Received,
    stored: u32,
    unsure: Option<&str>,
) -> Result<std::result::Result<File, String>> {
    if let Some(why) = unsure {
        return Ok(Err(hindsight_text::line(why).into_owned()));
    }
    let content = &r.files[stored as usize];
    let Some(size) = content.size else {
        return Ok(Err("its length is not known".into()));
    };
    let missing = unseen(content, size);
    // What was never written to a file that began empty is zero, but nobody knows whether it began empty.
    if missing > 0 || size > MOST {
        return Ok(Err(format!("{missing} of its {size} bytes are not known")));
    }
    let step = || "making a file in memory".into();
    // SAFETY: the name is a text that ends with a zero byte; the descriptor belongs to nobody else.
    let file = unsafe {
        match libc::memfd_create(c"hindsight".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(Error::Step(step(), io::Error::last_os_error())),
            fd => File::from_raw_fd(fd),
        }
    };
    file.set_len(size).during(step)?;
    fill(r, content, size, &file).during(step)?;
    let name = named(format!("/proc/self/fd/{}", file.as_raw_fd()).as_bytes());
    Ok(Ok(name.during(step)?))
}

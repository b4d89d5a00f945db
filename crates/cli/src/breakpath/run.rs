//! `hindsight breakpath --run`: has gdb start the recorded program and go the way.
//!
//! The process that plays the recording finds the way and ends. This one does not read the recording. It shows what would be
//! executed, which a recording of a stranger says, and asks. Then it makes a script and becomes gdb.

use super::begin::Begin;
use super::script::{Identity, Run, run as script};
use super::way::Way;
use super::{Wanted, find};
use crate::debugger::memory_file;
use crate::{args, confine, say, store};
use anyhow::{Context, Result, bail};
use hindsight_guard::outside;
use hindsight_text::bytes;
use hindsight_trace::ModuleHash;
use std::ffi::OsStr;
use std::io::{IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What the process that plays the recording may say, in bytes.
const MOST: u64 = 64 << 20;
/// Characters of what is shown before somebody is asked, and lines of it.
const SHOWN: usize = 4096;
const LINES: usize = 40;
/// Characters of a variable.
const VARIABLE: usize = 200;

/// What is to be run.
type Agreed = (Way, Identity);

pub fn run(a: &args::Breakpath, file: Option<&Path>, wanted: &Wanted) -> Result<i32> {
    // Before the search, which may take long.
    let gdb = find_gdb()?;
    let recording = store::find(file)?;
    let agreed = Mutex::new(None);
    let inside = |mut stream: UnixStream| {
        let (timeline, to, route) = find(a, wanted)?;
        let way = serde_json::to_vec(&Way::new(&timeline, &route, to)?)?;
        if way.len() as u64 > MOST {
            bail!("the way has too many settings for a live run");
        }
        stream.write_all(&way)?;
        stream.shutdown(Shutdown::Write)?;
        // Signals end this process, and with it the question.
        stream.read_to_end(&mut Vec::new())?;
        Ok(0)
    };
    let beside = |stream: UnixStream| {
        let mut text = Vec::new();
        (&stream).take(MOST).read_to_end(&mut text)?;
        if text.is_empty() {
            bail!("no way was found");
        }
        let way: Way = serde_json::from_slice(&text).context("the way that was found")?;
        let identity = is_recorded(&way.begin)?;
        if let Some(other) = first_other(&way.begin) {
            say(&format!(
                "not as recorded: {} is another file on this machine",
                hindsight_text::line(other)
            ));
        }
        if !a.yes && !ask(&way.begin)? {
            say("nothing was run");
            return Ok(2);
        }
        *agreed.lock().unwrap_or_else(|e| e.into_inner()) = Some((way, identity));
        Ok(0)
    };
    let status = confine::run_beside(&recording, inside, beside)?;
    match agreed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(agreed) => start(a, &gdb, agreed),
        None => Ok(status),
    }
}

fn find_gdb() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |p: &PathBuf| {
        let found = p.metadata();
        found.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let mut all = std::env::split_paths(&path).map(|folder| folder.join("gdb"));
    all.find(is_program)
        .context("gdb is not installed: no folder of $PATH has it (--gdb prints a script)")
}

fn shown(text: &[u8]) -> String {
    bytes(text).to_string()
}

/// The file of this machine, if it is the program that was recorded.
fn is_recorded(begin: &Begin) -> Result<Identity> {
    let path = Path::new(OsStr::from_bytes(&begin.program));
    let name = shown(&begin.program);
    if !path.is_absolute() {
        bail!("{name} is no whole path: it is not run");
    }
    let Some((hash, size)) = begin.content else {
        bail!("the recording does not have the content of {name}: it is not run");
    };
    let same = |f: &std::fs::File| confine::is_called(f, &hash.0);
    let Some(file) = outside::open_same(path, size, &hash.0, same) else {
        bail!("{name} is not on this machine as it was recorded: it is not run");
    };
    let m = file.metadata()?;
    let time = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    Ok((
        m.dev(),
        m.ino(),
        m.size(),
        time(m.mtime(), m.mtime_nsec()),
        time(m.ctime(), m.ctime_nsec()),
    ))
}

/// The first of the other files with code that this machine does not have as it was recorded.
fn first_other(begin: &Begin) -> Option<&str> {
    let is_other = |(path, hash, size): &&(String, ModuleHash, u64)| {
        let same = |f: &std::fs::File| confine::is_called(f, &hash.0);
        outside::open_same(Path::new(path), *size, &hash.0, same).is_none()
    };
    begin.code.iter().find(is_other).map(|c| c.0.as_str())
}

/// Shows what would be executed, and asks.
fn ask(begin: &Begin) -> Result<bool> {
    let mut stderr = std::io::stderr();
    let command = command(begin);
    if command.chars().count() > SHOWN {
        bail!("the recorded command is too long to be shown (`hindsight info`): --yes runs it");
    }
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        bail!("this would run {command}: --yes does it where nobody can be asked at a terminal");
    }
    let mut text = format!("this runs under gdb, not confined:\n  {command}\n");
    text += &format!("in the directory {}\n", shown(&begin.folder));
    let own = std::env::vars_os().map(|(name, value)| {
        let mut own = name.as_bytes().to_vec();
        own.push(b'=');
        own.extend(value.as_bytes());
        own
    });
    let differences = differences(&begin.env, &own.collect::<Vec<_>>());
    if !differences.is_empty() {
        text += "with the recorded environment, which is not yours (+ recorded, - yours):\n";
    }
    for d in differences.iter().take(LINES) {
        text += &format!("  {d}\n");
    }
    if let Some(more) = differences.len().checked_sub(LINES + 1) {
        text += &format!("  and {} more\n", more + 1);
    }
    write!(stderr, "hindsight: {text}Run it? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The command line, as nobody can mistake it: each word is quoted. A program may do what its name says, so that is shown, too.
fn command(begin: &Begin) -> String {
    let quoted = |w: &[u8]| format!("'{}'", shown(w).replace('\'', "'\\''"));
    let mut words = vec![quoted(&begin.program)];
    words.extend(begin.args.iter().skip(1).map(|a| quoted(a)));
    match begin.args.first().filter(|name| **name != begin.program) {
        Some(name) => format!("{} (as {})", words.join(" "), quoted(name)),
        None => words.join(" "),
    }
}

/// Variables that tell the loader which code to load, and the C library which code to run.
const LOADS: [&str; 2] = ["LD_", "GLIBC_TUNABLES="];

/// What one environment has and the other has not, in lines. What loads code is first.
fn differences(recorded: &[Vec<u8>], own: &[Vec<u8>]) -> Vec<String> {
    let mut out = Vec::new();
    for (sign, these, those) in [("+", recorded, own), ("-", own, recorded)] {
        let those: std::collections::HashSet<&[u8]> = those.iter().map(|t| t.as_slice()).collect();
        let mut new: Vec<&Vec<u8>> = these
            .iter()
            .filter(|t| !those.contains(t.as_slice()))
            .collect();
        new.sort_by_key(|t| !LOADS.iter().any(|l| t.starts_with(l.as_bytes())));
        for text in new {
            let text = shown(text);
            let cut: String = text.chars().take(VARIABLE).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            out.push(format!("{sign} {cut}{more}"));
        }
    }
    out
}

/// Becomes gdb. It returns only if that fails.
fn start(a: &args::Breakpath, gdb: &Path, (way, identity): Agreed) -> Result<i32> {
    let batch = a.batch || a.json || !std::io::stdin().is_terminal();
    let file = memory_file("")?;
    let json = match a.json {
        true => Some(std::io::stdout().as_fd().try_clone_to_owned()?),
        false => None,
    };
    let how = Run {
        script: file.as_raw_fd(),
        json: json.as_ref().map(AsRawFd::as_raw_fd),
        batch,
        identity,
    };
    (&file).write_all(script(&way, &how).as_bytes())?;
    keep(&file)?;
    let mut command = Command::new(gdb);
    command.args(["-q", "-iex", "set startup-with-shell off"]);
    if batch {
        // It neither reads commands nor asks.
        command.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    }
    if let Some(json) = &json {
        keep(json)?;
        // What the program and gdb say is not the answer.
        command.stdout(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?));
    }
    command.args(&a.options);
    command
        .arg("-x")
        .arg(format!("/proc/self/fd/{}", how.script));
    if batch {
        // The script has not come to its end.
        command.args(["-ex", "quit 2"]);
    }
    command
        .arg("--args")
        .arg(OsStr::from_bytes(&way.begin.program));
    Err(command.exec()).context("gdb")
}

/// Leaves a descriptor open in the program that this process becomes.
fn keep(fd: &impl AsRawFd) -> Result<()> {
    // SAFETY: the descriptor is open, and only a flag of it changes.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("fcntl"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_run_cannot_be_mistaken() {
        let list = |all: &[&str]| {
            all.iter()
                .map(|t| t.as_bytes().to_vec())
                .collect::<Vec<_>>()
        };
        let begin = Begin {
            program: b"/bin/busybox".to_vec(),
            args: list(&["rm", "-rf", "a b", "it's\n"]),
            ..Begin::default()
        };
        let shown = command(&begin);
        assert_eq!(shown, r"'/bin/busybox' '-rf' 'a b' 'it'\''s\n' (as 'rm')");
        let found = differences(&list(&["A=1", "B=2"]), &list(&["B=2", "C=\u{1b}3"]));
        assert_eq!(found, ["+ A=1", r"- C=\u001b3"]);
        let found = differences(&list(&["A=1", "LD_PRELOAD=x"]), &[]);
        assert_eq!(found, ["+ LD_PRELOAD=x", "+ A=1"]);
    }
}

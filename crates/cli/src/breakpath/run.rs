//! `hindsight breakpath --run`: has gdb start the recorded program and go the way.
//!
//! The process that plays the recording finds the way and ends. This one does not read the recording. It checks what the
//! other one says, shows what would be executed, which a recording of a stranger says, and asks. Then it makes a script and becomes gdb.

use super::begin::Begin;
use super::script::{Identity, Run, run as script};
use super::way::Way;
use super::{Wanted, find};
use crate::debugger::memory_file;
use crate::{args, confine, say, store};
use anyhow::{Context, Result, bail};
use hindsight_guard::{broker, outside};
use hindsight_text::bytes;
use hindsight_trace::ModuleHash;
use std::collections::HashSet;
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
/// Characters that are shown of a command, and of an environment, before somebody is asked. Of a longer one, nobody is.
const COMMAND: usize = 4096;
const ENVIRONMENT: usize = 1 << 14;
/// Own variables that are named.
const OWN: usize = 40;
/// Bytes of files that are compared.
const COMPARED: u64 = 1 << 30;

/// What is to be run.
type Agreed = (Way, Identity);

pub fn run(a: &args::Breakpath, file: Option<&Path>, wanted: &Wanted) -> Result<i32> {
    if cfg!(not(target_arch = "x86_64")) {
        bail!("this machine is not x86-64: it runs no recorded programs (--gdb prints a script)");
    }
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
        if !way.is_sound() {
            bail!("the process that plays the recording says what cannot be");
        }
        let begin = &way.begin;
        if begin.stack.is_none() {
            bail!(
                "how {} began is not known, where its arguments lay on its stack: it is not run",
                shown(&begin.program)
            );
        }
        can_begin_in(&begin.folder)?;
        let identity = is_recorded(begin)?;
        if !a.yes && !ask(begin)? {
            say("nothing was run");
            return Ok(2);
        }
        if let Some(other) = first_other(begin) {
            say(&format!(
                "not as recorded: {} is another file on this machine",
                hindsight_text::line(other)
            ));
        }
        *agreed.lock().unwrap_or_else(|e| e.into_inner()) = Some((way, identity));
        Ok(0)
    };
    let status = confine::run_beside(&recording, inside, beside)?;
    match agreed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(agreed) => {
            // From here on signals are for this process.
            broker::end_forwarding();
            start(a, &gdb, agreed)
        }
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

/// Fails unless gdb can be told to start the program in a folder.
fn can_begin_in(folder: &[u8]) -> Result<()> {
    let path = Path::new(OsStr::from_bytes(folder));
    let name = shown(folder);
    if name.as_bytes() != folder || name.trim() != name {
        bail!("gdb cannot be told to start it in the recorded directory {name}: it is not run");
    }
    if !path.is_absolute() || !path.is_dir() {
        bail!("this machine does not have the recorded directory {name}: it is not run");
    }
    Ok(())
}

/// The first of the other files with code that this machine does not have as it was recorded.
fn first_other(begin: &Begin) -> Option<&str> {
    let mut left = COMPARED;
    let mut small = |size: u64| {
        left = left.saturating_sub(size);
        left > 0
    };
    let is_other = |(path, hash, size): &&(String, ModuleHash, u64)| {
        let same = |f: &std::fs::File| confine::is_called(f, &hash.0);
        outside::open_same(Path::new(path), *size, &hash.0, same).is_none()
    };
    let mut looked_at = begin.code.iter().take_while(|c| small(c.2));
    looked_at.find(is_other).map(|c| c.0.as_str())
}

/// Shows what would be executed, and asks.
fn ask(begin: &Begin) -> Result<bool> {
    let mut stderr = std::io::stderr();
    let command = command(begin);
    let own = std::env::vars_os().map(|(name, value)| {
        let mut own = name.as_bytes().to_vec();
        own.push(b'=');
        own.extend(value.as_bytes());
        own
    });
    let (recorded, own) = differences(&begin.env, &own.collect::<Vec<_>>());
    let len = |texts: &[String]| texts.iter().map(|t| t.chars().count() + 1).sum::<usize>();
    if command.chars().count() > COMMAND || len(&recorded) > ENVIRONMENT {
        bail!(
            "the recorded command or environment is too long to be shown (`hindsight info`): --yes runs it"
        );
    }
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        bail!("this would run {command}: --yes does it where nobody can be asked at a terminal");
    }
    let mut text = String::new();
    for r in &recorded {
        text += &format!("  {r}\n");
    }
    if !recorded.is_empty() {
        text = format!("these recorded variables are not yours:\n{text}");
    }
    if !own.is_empty() {
        let more = match own.len().checked_sub(OWN) {
            None | Some(0) => String::new(),
            Some(more) => format!(" and {more} more"),
        };
        let names = own.iter().take(OWN).map(String::as_str);
        let names = names.collect::<Vec<_>>().join(" ");
        text += &format!("it does not get these of yours: {names}{more}\n");
    }
    text += &format!("in the directory {}\n", quoted(&begin.folder));
    text += &format!("this runs under gdb, not confined:\n  {command}\n");
    // What was typed before is no answer.
    forget_input();
    write!(stderr, "{text}Run it? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Throws away what was typed at the terminal and not read yet.
fn forget_input() {
    // SAFETY: a plain system call on the standard input, whatever that is.
    unsafe { libc::tcflush(0, libc::TCIFLUSH) };
}

/// A word as a shell takes it, which cannot be mistaken for another one.
fn quoted(word: &[u8]) -> String {
    if shown(word).as_bytes() == word {
        return format!("'{}'", shown(word).replace('\'', r"'\''"));
    }
    // With escapes, of which the word itself has none.
    let mut doubled = Vec::new();
    for b in word {
        if *b == b'\\' {
            doubled.push(b'\\');
        }
        doubled.push(*b);
    }
    format!("$'{}'", shown(&doubled).replace('\'', r"\'"))
}

/// The command line, as nobody can mistake it: each word is quoted. A program may do what its name says, so that is shown, too.
fn command(begin: &Begin) -> String {
    let mut words = vec![quoted(&begin.program)];
    words.extend(begin.args.iter().skip(1).map(|a| quoted(a)));
    let mut out = words.join(" ");
    match begin.args.first() {
        None => out += " (without any argument, not even its name)",
        Some(name) if *name != begin.program => out += &format!(" (as {})", quoted(name)),
        Some(_) => {}
    }
    if begin.executed != begin.program {
        out += &format!(" (executed as {})", quoted(&begin.executed));
    }
    out
}

/// What the recorded environment has that is not in the own one, and the names that only that has.
fn differences(recorded: &[Vec<u8>], own: &[Vec<u8>]) -> (Vec<String>, Vec<String>) {
    let name = |text: &[u8]| {
        let end = text.iter().position(|b| *b == b'=');
        text[..end.unwrap_or(text.len())].to_vec()
    };
    let have: HashSet<&[u8]> = own.iter().map(|t| t.as_slice()).collect();
    let names: HashSet<Vec<u8>> = recorded.iter().map(|t| name(t)).collect();
    let new = recorded.iter().filter(|t| !have.contains(t.as_slice()));
    let lost = own.iter().map(|t| name(t)).filter(|n| !names.contains(n));
    (
        new.map(|t| quoted(t)).collect(),
        lost.map(|n| quoted(&n)).collect(),
    )
}

/// Becomes gdb. It returns only if that fails.
fn start(a: &args::Breakpath, gdb: &Path, (way, identity): Agreed) -> Result<i32> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let batch = a.batch || a.json || !terminal;
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
    command.arg("-q");
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
            executed: b"/tmp/x".to_vec(),
            args: list(&["rm", "-rf", "a b", "it's\n", r"\n"]),
            ..Begin::default()
        };
        assert_eq!(
            command(&begin),
            r"'/bin/busybox' '-rf' 'a b' $'it\'s\n' '\n' (as 'rm') (executed as '/tmp/x')"
        );
        let (new, lost) = differences(
            &list(&["A=1", "B=2", "LD_PRELOAD=\u{1b}\\"]),
            &list(&["B=2", "A=2", "C=3"]),
        );
        assert_eq!(new, ["'A=1'", r"$'LD_PRELOAD=\u001b\\'"]);
        assert_eq!(lost, ["'C'"]);
    }

    #[test]
    fn a_folder_must_be_there() {
        assert!(can_begin_in(b"/").is_ok());
        for folder in [
            &b"/no/such"[..],
            b"",
            b"usr",
            b"~",
            b"/usr ",
            b"/usr\n",
            b"/\xff",
        ] {
            assert!(can_begin_in(folder).is_err(), "{folder:?}");
        }
    }
}

//! `hindsight replay` and `hindsight gdbserver`: a recording under gdb.

use crate::{args, interrupts, say, store};
use anyhow::{Context, Result, bail};
use hindsight_gdb::{SCRIPT, Session, serve as talk};
use hindsight_text::line;
use hindsight_timeline::{Options, Place, Timeline};
use hindsight_trace::ModuleHash;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

fn open(file: &Path, process: Option<u32>, at: Option<Place>) -> Result<Session> {
    let timeline =
        Timeline::open(file, Options::default()).with_context(|| file.display().to_string())?;
    let at = at.map(|place| timeline.find(place, None)).transpose()?;
    Ok(Session::new(timeline, process, at)?)
}

/// Starts gdb, connected to the recording.
pub fn run(a: &args::Replay) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    // What is wrong with it is said here, and not by gdb.
    let session = open(&path, a.process, a.at)?;
    let sysroot = match same_files(&session.timeline)? {
        true => "set sysroot /",
        false => "set sysroot target:",
    };
    drop(session);
    let script = memory_file(SCRIPT)?;
    // The file is this process's, which lives longer than gdb.
    let script_path = format!("/proc/{}/fd/{}", std::process::id(), script.as_raw_fd());
    let own = std::env::current_exe().context("the path of this program")?;
    let mut server: Vec<OsString> = vec![quoted(own.as_os_str()), "gdbserver".into()];
    server.push("--stdio".into());
    let interrupts = interrupts::forward()?;
    server.push(format!("--interrupts={}", interrupts.as_raw_fd()).into());
    if let Some(at) = a.at {
        server.push(format!("--at={at}").into());
    }
    if let Some(image) = a.process {
        server.push(format!("--process={image}").into());
    }
    server.push(quoted(path.canonicalize()?.as_os_str()));
    let mut connect = OsString::from("target remote | ");
    connect.push(server.join(OsStr::new(" ")));
    let status = Command::new("gdb")
        .args([
            "-q",
            "-iex",
            "set pagination off",
            "-iex",
            sysroot,
            "-x",
            &script_path,
        ])
        .arg("-ex")
        .arg(&connect)
        // Otherwise only one thread goes on in a recording.
        .args(["-ex", "set scheduler-locking off"])
        .args(["-ex", "set pagination on"])
        .args(&a.gdb)
        .status();
    let status = match status {
        Ok(s) => s,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
            "gdb is not installed; `hindsight gdbserver` serves any other client of its protocol"
        ),
        Err(e) => return Err(e).context("gdb"),
    };
    Ok(status
        .code()
        .or(status.signal().map(|s| 128 + s))
        .unwrap_or(2))
}

/// Whether this machine has all files of the recording as they were, so that gdb may read them itself, which
/// is quicker. A session may go over into any program image.
fn same_files(timeline: &Timeline) -> Result<bool> {
    let mut seen = HashSet::new();
    for p in timeline.processes()? {
        for m in timeline.modules(p.image)? {
            let Some(hash) = m.hash else { continue };
            if !seen.insert((m.path.clone(), hash)) {
                continue;
            }
            // The name of a content says all: to unpack what was recorded takes seconds for large programs.
            // gdb knows it by its name as it is shown.
            if line(&m.path) != m.path {
                return Ok(false);
            }
            match std::fs::read(&m.path) {
                Ok(here) if ModuleHash::of(&here) == hash => {}
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Serves a recording to clients of gdb's protocol.
pub fn serve(a: &args::Gdbserver) -> Result<i32> {
    let path = store::find(Some(&a.file))?;
    let mut session = open(&path, a.process, a.at)?;
    let Some(port) = a.port else {
        if let Some(fd) = a.interrupts {
            interrupts::listen(fd, session.interrupt())?;
        }
        interrupts::ignore();
        talk(&mut session, std::io::stdin(), std::io::stdout())?;
        return Ok(0);
    };
    let address = format!("{}:{port}", a.host);
    let listener = TcpListener::bind(&address).with_context(|| address.clone())?;
    let at = listener.local_addr()?;
    say(&format!("listening on {at}; in gdb: target remote {at}"));
    loop {
        let (stream, _) = listener.accept()?;
        // One after the other; each finds the recording as it was at the beginning.
        if let Err(e) = client(&mut session, stream) {
            say(&format!("the client's connection ended: {e}"));
        }
        session = open(&path, a.process, a.at)?;
    }
}

fn client(session: &mut Session, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let from = stream.try_clone()?;
    let done = talk(session, from, &stream);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    Ok(done?)
}

/// A file without a name.
fn memory_file(text: &str) -> Result<std::fs::File> {
    // SAFETY: a constant name; the descriptor is checked, and owned from then on.
    let fd = unsafe {
        let fd = libc::memfd_create(c"hindsight.gdb".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("memfd_create");
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut file = std::fs::File::from(fd);
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// A word for the shell.
fn quoted(word: &OsStr) -> OsString {
    let mut out = vec![b'\''];
    for b in word.as_bytes() {
        match b {
            b'\'' => out.extend(b"'\\''"),
            b => out.push(*b),
        }
    }
    out.push(b'\'');
    OsString::from_vec(out)
}

//! `hindsight replay` and `hindsight gdbserver`: a recording under gdb.

use crate::{args, assets_here, carried, confine, interrupts, limits, printers, say, store};
use anyhow::{Context, Result, bail};
use hindsight_gdb::{Patience, SCRIPT, Session, serve as talk};
use hindsight_guard::broker::{self, Broker, Side};
use hindsight_guard::{keep_alive, wait};
use hindsight_inspect::Declarations;
use hindsight_text::line;
use hindsight_timeline::{Options, Place, Timeline};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Clients that are served at the same time; each may take as much memory as the recording asks for.
const MOST_CLIENTS: usize = 8;
/// Shortest time for which a client is waited for that does not take what it is sent.
const SHORTEST: Duration = Duration::from_secs(1);
/// Exit status of the process that looks at the recording: its files are not those of this machine.
const OTHERS: i32 = 3;
/// The same of a program that Rust's compiler has made.
const OTHERS_OF_RUST: i32 = 4;
/// The gdb to start: the first that is there. A recording is of x86-64, which the one of another machine need not know.
const GDBS: &[&str] = match cfg!(target_arch = "x86_64") {
    true => &["gdb"],
    false => &["gdb-multiarch", "gdb"],
};

fn open(file: &Path, process: Option<u32>, at: Option<Place>) -> Result<Session> {
    let options = Options {
        processor: crate::processor::of_travel(),
        ..Options::default()
    };
    let timeline = Timeline::open(file, options).with_context(|| file.display().to_string())?;
    let allow = |t: &Timeline| limits::allow(t.trace(), limits::processors());
    allow(&timeline);
    let at = at.map(|place| timeline.find(place, process)).transpose()?;
    let mut session = Session::new(timeline, process, at)?;
    session.when_renewed(allow);
    Ok(session)
}

/// Starts gdb, connected to the recording.
pub fn run(a: &args::Replay) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    // What is wrong with it is said here, and not by gdb. The server gets a copy: the file may be a pipe.
    let declared = a.declared.iter();
    let declared = declared.map(|file| memory_file(&carried::read(file)?.0));
    let declared = declared.collect::<Result<Vec<_>>>()?;
    let look = || {
        let session = open(&path, a.process, a.at.clone())?;
        Ok(match same_files(&session.timeline)? {
            true => 0,
            false if printers::has_rust(&session.timeline)? => OTHERS_OF_RUST,
            false => OTHERS,
        })
    };
    let (sysroot, printers) = match confine::run(Some(&path), look)? {
        0 => ("set sysroot /", None),
        others @ (OTHERS | OTHERS_OF_RUST) => {
            let script = printers::script(others == OTHERS_OF_RUST);
            ("set sysroot target:", Some(memory_file(&script)?))
        }
        failed => return Ok(failed),
    };
    let script = memory_file(SCRIPT)?;
    // The files are this process's, which lives longer than gdb.
    let path_of = |f: &std::fs::File| format!("/proc/{}/fd/{}", std::process::id(), f.as_raw_fd());
    let script_path = path_of(&script);
    let printers = printers.as_ref().map(|p| {
        let path = path_of(p);
        format!("python exec(open('{path}').read())")
    });
    let own = std::env::current_exe().context("the path of this program")?;
    let mut server: Vec<OsString> = vec![quoted(own.as_os_str()), "gdbserver".into()];
    server.push("--stdio".into());
    let interrupts = interrupts::forward()?;
    server.push(format!("--interrupts={}", interrupts.as_raw_fd()).into());
    if let Some(at) = &a.at {
        server.push(format!("--at={at}").into());
    }
    if let Some(image) = a.process {
        server.push(format!("--process={image}").into());
    }
    for file in &declared {
        server.push(format!("--declared={}", path_of(file)).into());
    }
    server.extend(crate::processor::said().into_iter().map(OsString::from));
    if let Some(most) = limits::said() {
        server.push(format!("--max-memory={}k", most >> 10).into());
    }
    server.push(quoted(path.canonicalize()?.as_os_str()));
    let mut connect = OsString::from("target remote | ");
    connect.push(server.join(OsStr::new(" ")));
    let gdb = |program| {
        let mut gdb = Command::new(program);
        gdb.args([
            "-q",
            "-iex",
            "set pagination off",
            "-iex",
            sysroot,
            "-x",
            &script_path,
        ])
        .args(printers.iter().flat_map(|p| ["-ex", p.as_str()]))
        .arg("-ex")
        .arg(&connect)
        // Otherwise only one thread goes on in a recording.
        .args(["-ex", "set scheduler-locking off"])
        .args(["-ex", "set pagination on"])
        .args(&a.gdb);
        gdb.status()
    };
    let mut status = gdb(GDBS[0]);
    for other in &GDBS[1..] {
        if matches!(&status, Err(e) if e.kind() == std::io::ErrorKind::NotFound) {
            status = gdb(other);
        }
    }
    let status = match status {
        Ok(s) => s,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
            "{} is not installed; `hindsight gdbserver` serves any other client of its protocol",
            GDBS[0]
        ),
        Err(e) => return Err(e).context("gdb"),
    };
    Ok(status
        .code()
        .or(status.signal().map(|s| 128 + s))
        .unwrap_or(2))
}

/// Says which file of this machine is not the recorded one. Whether all are the same, so that gdb may read them itself, which
/// is quicker. A session may go over into any program image.
fn same_files(timeline: &Timeline) -> Result<bool> {
    let other = assets_here::first_that_differs(timeline)?;
    // What has an odd name may be the same, but gdb would not find it.
    if let Some(path) = other.as_ref().filter(|p| line(p) == **p) {
        say(&format!(
            "{path} is not on this machine as it was recorded, so gdb reads the recorded files (`hindsight audit` lists all)"
        ));
    }
    Ok(other.is_none())
}

/// Serves a recording to clients of gdb's protocol.
pub fn serve(a: &args::Gdbserver) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    // The process that plays the recording opens no files.
    let declarations = carried::declarations(&a.declared)?;
    let Some(port) = a.port else {
        return confine::run(Some(&path), || {
            let mut session = open(&path, a.process, a.at.clone())?;
            session.declare(declarations);
            if let Some(fd) = a.interrupts {
                interrupts::listen(fd, session.interrupt())?;
            }
            interrupts::ignore();
            // Whoever started this is waited for as long as it likes.
            let patience = Patience::default();
            talk(&mut session, std::io::stdin(), std::io::stdout(), &patience)?;
            Ok(0)
        });
    };
    // What is wrong with it is said before somebody comes.
    match confine::run(Some(&path), || {
        open(&path, a.process, a.at.clone()).map(|_| 0)
    })? {
        0 => {}
        failed => return Ok(failed),
    }
    let address = format!("{}:{port}", a.host);
    let listener = TcpListener::bind(&address).with_context(|| address.clone())?;
    let at = listener.local_addr()?;
    say(&format!("listening on {at}; in gdb: target remote {at}"));
    let mut clients: Vec<Broker> = Vec::new();
    loop {
        let mut fds: Vec<i32> = clients.iter().map(Broker::fd).collect();
        fds.push(listener.as_raw_fd());
        let ready = wait(&fds, None)?;
        let mut i = 0;
        clients.retain_mut(|c| {
            i += 1;
            !ready[i - 1] || c.turn().is_none()
        });
        if ready[i] {
            accept(a, (&path, &declarations), &listener, &mut clients)?;
        }
    }
}

/// Makes a process for a client that has come.
fn accept(
    a: &args::Gdbserver,
    (path, declarations): (&Path, &Declarations),
    listener: &TcpListener,
    clients: &mut Vec<Broker>,
) -> Result<()> {
    // Whoever goes away at once has not come.
    let Ok((stream, peer)) = listener.accept() else {
        return Ok(());
    };
    if clients.len() >= MOST_CLIENTS {
        say(&format!(
            "{peer} is turned away: {MOST_CLIENTS} clients are served"
        ));
        return Ok(());
    }
    match broker::split(confine::allowed(path)) {
        Ok(Side::Outside(broker)) => clients.push(broker),
        Ok(Side::Inside(inside)) => {
            clients.clear();
            let done = prepare(&stream, a.timeout).and_then(|()| {
                confine::lock(inside, path);
                client(a, (path, declarations), stream)
            });
            if let Err(e) = &done {
                say(&format!("the client's connection ended: {e:#}"));
            }
            std::process::exit(done.is_err() as i32)
        }
        Err(e) => say(&format!("{peer} is turned away: {e}")),
    }
    Ok(())
}

/// Sets what concerns the connection, which a confined process cannot.
fn prepare(stream: &TcpStream, timeout: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    // Whoever takes nothing is not waited for.
    stream.set_write_timeout(Some(timeout.max(SHORTEST)))?;
    Ok(keep_alive(stream)?)
}

/// Serves one client. It finds the recording as it was at the beginning.
fn client(
    a: &args::Gdbserver,
    (path, declarations): (&Path, &Declarations),
    stream: TcpStream,
) -> Result<()> {
    let patience = Patience {
        hello: Some(a.timeout),
        silence: Some(a.idle).filter(|t| !t.is_zero()),
    };
    let from = stream.try_clone()?;
    // Who says nothing costs nothing.
    patience.hear(&from)?;
    let mut session = open(path, a.process, a.at.clone())?;
    session.declare(declarations.clone());
    let done = talk(&mut session, from, &stream, &patience);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    Ok(done?)
}

/// A file without a name.
pub fn memory_file(text: &str) -> Result<std::fs::File> {
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

//! Whether a process that runs can be recorded, and what is known of it.

use crate::error::{AttachError, During, Result, Unfit};
use hindsight_events::arena::ARENA;
use hindsight_remote::{Process, Status};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A process to be recorded.
pub struct Candidate {
    pub process: Process,
    pub status: Status,
    pub exe: PathBuf,
    pub argv: Vec<OsString>,
    pub env: Vec<OsString>,
    pub cwd: PathBuf,
}

/// Looks at a process; an error says why it cannot be recorded.
pub fn find(pid: i32) -> Result<Candidate> {
    if pid <= 0 || !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
        return Err(AttachError::NoProcess(pid).into());
    }
    let status = Status::of_process(pid).during_with(|| format!("process {pid}"))?;
    if pid == std::process::id() as i32 {
        return Err(AttachError::ThisOne(pid).into());
    }
    if status.process != pid {
        let (tid, pid) = (pid, status.process);
        return Err(AttachError::Thread { tid, pid }.into());
    }
    let unfit = |why| Err(unfit(&status, why));
    if status.has_ended() && threads(pid) > 1 {
        return unfit(Unfit::FirstThreadEnded);
    }
    if status.has_ended() {
        return unfit(Unfit::Ended);
    }
    if status.no_memory {
        return unfit(Unfit::Kernel);
    }
    let process = match Process::open(pid) {
        Ok(process) => process,
        Err(e) => return unfit(Unfit::Untraceable(refusal(&e, &status))),
    };
    let mappings = process.mappings()?;
    if mappings
        .iter()
        .any(|m| m.start < ARENA.end && m.end > ARENA.start)
    {
        return unfit(Unfit::Recorded);
    }
    if status.tracer != 0 {
        let tracer = status.tracer;
        let name = Status::of_process(tracer).map_or(String::new(), |s| s.name);
        return unfit(Unfit::Traced { tracer, name });
    }
    if status.seccomp != 0 {
        return unfit(Unfit::Filtered);
    }
    if status.features.contains("shstk") {
        return unfit(Unfit::ShadowStack);
    }
    let link = |what: &str| fs::read_link(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let mut start = [0; 5];
    let elf = fs::File::open(format!("/proc/{pid}/exe"))
        .and_then(|mut f| io::Read::read_exact(&mut f, &mut start));
    if elf.is_ok() && start == *b"\x7fELF\x01" {
        return unfit(Unfit::Program32);
    }
    Ok(Candidate {
        exe: link("exe"),
        cwd: link("cwd"),
        argv: list(pid, "cmdline"),
        env: list(pid, "environ"),
        process,
        status,
    })
}

/// The error that says why a process cannot be recorded.
pub fn unfit(status: &Status, why: Unfit) -> crate::error::Error {
    AttachError::Unfit {
        pid: status.process,
        name: status.name.clone(),
        why,
    }
    .into()
}

/// Threads of a process, ended ones that somebody still has to look at included.
fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |d| d.count())
}

fn list(pid: i32, what: &str) -> Vec<OsString> {
    let text = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|b| *b == 0)
        .map(|s| OsString::from_vec(s.to_vec()))
        .collect()
}

/// Why a process may not be traced, and what can be done.
pub fn refusal(e: &io::Error, status: &Status) -> String {
    if !matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
        return format!("cannot be traced: {e}");
    }
    // SAFETY: no memory is involved.
    let own = unsafe { libc::geteuid() };
    if own != 0 && own != status.user {
        return format!(
            "belongs to user {}: record it as that user, or as root",
            status.user
        );
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "1" if own != 0 => {
            "may not be traced: this system lets only ancestors trace a process. Run hindsight as root, or allow \
             it until the system's next start by `sysctl kernel.yama.ptrace_scope=0`, or start the program by \
             `hindsight record`"
                .into()
        }
        "2" if own != 0 => {
            "may not be traced: this system lets only root do that (kernel.yama.ptrace_scope is 2)"
                .into()
        }
        "3" => "may not be traced: this system forbids it until its next start \
             (kernel.yama.ptrace_scope is 3); start the program by `hindsight record`"
            .into(),
        _ => "may not be traced: either it has more rights than this process, or it has made itself private \
             (prctl PR_SET_DUMPABLE), or this process may trace nothing"
            .into(),
    }
}

/// The last component of a path, or else `other`.
pub fn short_name(path: &std::path::Path, other: &str) -> String {
    let name = path.file_name().map(|n| n.as_bytes()).unwrap_or_default();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    match name {
        // Of a process that was recorded from its beginning, it is the recorder.
        [] | b"memfd:hindsight" => other.into(),
        n => String::from_utf8_lossy(n).into_owned(),
    }
}

//! Runs a command and measures what it and its descendants cost.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A command, with everything that must be equal in a native and a recorded run.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    /// Standard input; `/dev/null` if `None`.
    pub stdin: Option<PathBuf>,
    /// File for the standard output; `/dev/null` if `None`.
    pub stdout: Option<PathBuf>,
    /// File for the standard error output; `/dev/null` if `None`.
    pub stderr: Option<PathBuf>,
    /// Folder for caches, which the environment names.
    pub cache: Option<PathBuf>,
    /// Folder for recordings, which the environment names.
    pub store: Option<PathBuf>,
    /// After this time the run is killed and counts as failed.
    pub limit: Duration,
}

/// What a run cost and how it ended.
#[derive(Clone, Debug)]
pub struct Run {
    pub end: ExitStatus,
    /// User plus system time of the process and all descendants that were waited for, in seconds.
    pub cpu: f64,
    pub wall: f64,
    /// Peak resident memory of any single process of the tree, in KiB.
    pub max_rss_kib: u64,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub enum ExitStatus {
    Exit(i32),
    Signal(i32),
    TimedOut,
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            ExitStatus::Exit(n) => write!(f, "exit {n}"),
            ExitStatus::Signal(n) => write!(f, "signal {n}"),
            ExitStatus::TimedOut => write!(f, "timed out"),
        }
    }
}

/// Variables that every measured program sees. So the caller's environment does not affect results.
pub const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"),
    ("LC_ALL", "C.UTF-8"),
    ("TZ", "UTC"),
    ("HOME", "/nonexistent"),
    ("TERM", "dumb"),
];

/// Runs `spec` to its end.
pub fn run(spec: &Spec) -> io::Result<Run> {
    let program = spec.argv.first().ok_or(io::ErrorKind::InvalidInput)?;
    let started = Instant::now();
    let mut command = Command::new(program);
    // With a function to call, the child is a fork. Otherwise it shares this process's memory until it executes the program, and
    // the peak of this process would count as its own.
    // SAFETY: the function does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    let child = command
        .args(&spec.argv[1..])
        .env_clear()
        .envs(ENVIRONMENT)
        .envs(spec.cache.as_ref().map(|c| ("XDG_CACHE_HOME", c)))
        .envs(spec.store.as_ref().map(|s| ("HINDSIGHT_DIR", s)))
        .current_dir(&spec.cwd)
        .stdin(input(spec.stdin.as_ref())?)
        .stdout(output(spec.stdout.as_ref())?)
        .stderr(output(spec.stderr.as_ref())?)
        // A group of its own: the whole group can be killed.
        .process_group(0)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", program.display())))?;
    let pid = child.id() as libc::pid_t;
    let timed_out = !wait_exit(pid, spec.limit)?;
    if timed_out {
        kill_group(pid);
        wait_exit(pid, Duration::from_secs(60))?;
    }
    let wall = started.elapsed().as_secs_f64();
    let (status, usage) = reap(pid)?;
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Run {
        end: if timed_out {
            ExitStatus::TimedOut
        } else if libc::WIFSIGNALED(status) {
            ExitStatus::Signal(libc::WTERMSIG(status))
        } else {
            ExitStatus::Exit(libc::WEXITSTATUS(status))
        },
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        wall,
        max_rss_kib: usage.ru_maxrss as u64,
    })
}

fn input(path: Option<&PathBuf>) -> io::Result<Stdio> {
    Ok(match path {
        Some(p) => File::open(p)?.into(),
        None => Stdio::null(),
    })
}

fn output(path: Option<&PathBuf>) -> io::Result<Stdio> {
    Ok(match path {
        Some(p) => File::create(p)?.into(),
        None => Stdio::null(),
    })
}

/// Waits until `pid` has ended, without reaping it. `false`: it still runs.
fn wait_exit(pid: libc::pid_t, limit: Duration) -> io::Result<bool> {
    // SAFETY: pidfd_open takes a process id and flags, and returns a descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer is to one valid pollfd.
    let ready = unsafe { libc::poll(&mut poll, 1, limit) };
    // SAFETY: the descriptor was opened above and is not used again.
    unsafe { libc::close(fd) };
    if ready < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ready > 0)
}

/// Kills all processes of the group that `pid` leads.
fn kill_group(pid: libc::pid_t) {
    // SAFETY: kill only sends a signal. The group's leader has not been reaped, so the id is still its own.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
}

fn reap(pid: libc::pid_t) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right types.
    if unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } != pid {
        return Err(io::Error::last_os_error());
    }
    Ok((status, usage))
}

/// Makes an argument vector of words.
pub fn argv<S: AsRef<OsStr>>(words: &[S]) -> Vec<OsString> {
    words.iter().map(|w| w.as_ref().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(words: &[&str]) -> Spec {
        Spec {
            argv: argv(words),
            cwd: "/".into(),
            limit: Duration::from_secs(10),
            ..Spec::default()
        }
    }

    #[test]
    fn tells_how_it_ended() {
        assert_eq!(
            run(&spec(&["sh", "-c", "exit 3"])).unwrap().end,
            ExitStatus::Exit(3)
        );
        assert_eq!(
            run(&spec(&["sh", "-c", "kill -9 $$"])).unwrap().end,
            ExitStatus::Signal(9)
        );
        let slow = Spec {
            limit: Duration::from_millis(50),
            ..spec(&["sleep", "9"])
        };
        assert_eq!(run(&slow).unwrap().end, ExitStatus::TimedOut);
        assert!(run(&spec(&["/nonexistent/program"])).is_err());
    }

    #[test]
    fn counts_children_too() {
        // The loop runs in a child of the shell.
        let busy = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); true";
        let run = run(&spec(&["sh", "-c", busy])).unwrap();
        assert!(run.cpu > 0.02, "{run:?}");
    }
}

//! Whether the producers of rings still exist.

use std::fs;
use std::io;
use std::time::Duration;

/// Whether a process exists and is not a zombie. For a process in another namespace of process ids
/// (see [`hindsight_events::ring::Ctl::pid`]) that cannot be known: then true.
pub fn process(pid: i32) -> bool {
    if pid < 0 {
        return true;
    }
    // SAFETY: signal 0 only asks. The call uses no memory.
    let sent = unsafe { libc::kill(pid, 0) };
    if sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return false;
    }
    if !zombie(&format!("/proc/{pid}/stat")) {
        return true;
    }
    // The first thread may have ended before the others.
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
}

/// Whether a thread exists. True if that cannot be known.
pub fn thread(pid: i32, tid: i32) -> bool {
    if pid < 0 {
        return true;
    }
    // SAFETY: signal 0 only asks. The call uses no memory.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    if sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return false;
    }
    // Only the first thread of a process stays as a zombie when it has ended. There may be
    // thousands of others to ask about.
    tid != pid || !zombie(&format!("/proc/{pid}/task/{tid}/stat"))
}

/// Whether a thread has a processor or waits for one. True if that cannot be known.
pub fn running(pid: i32, tid: i32) -> bool {
    stat(pid, tid).is_none_or(|stat| stat.state == b'R')
}

/// What the kernel says of a thread.
pub struct Stat {
    /// The letter of its state. `R`: it has a processor or waits for one.
    pub state: u8,
    /// For how long it has run.
    pub ran: Duration,
    /// When it began, in clock ticks since the system's start.
    pub began: u64,
}

/// What the kernel says of a thread. `None` if that cannot be known.
pub fn stat(pid: i32, tid: i32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let text = std::str::from_utf8(behind_name(&text)?).ok()?;
    let fields: Vec<&str> = text.split(' ').collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    // SAFETY: the call uses no memory.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Some(Stat {
        state: *text.as_bytes().first()?,
        ran: Duration::from_millis((number(11)? + number(12)?) * 1000 / ticks),
        began: number(19)?,
    })
}

/// Whether a signal with a value reaches a thread as it was sent. It does not while a debugger
/// traces the thread, which would see it first, or when the limit on signals that wait is used up:
/// then the value is lost. True if that cannot be known.
pub fn takes_signals(pid: i32, tid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).map_or(true, |s| reaches(&s))
}

/// [`takes_signals`] of what `status` says.
fn reaches(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.map(str::trim)
    };
    let room = |queue: &str| {
        let (used, limit) = queue.split_once('/')?;
        let [used, limit] = [used, limit].map(|n| n.parse::<u64>());
        Some(used.ok()? < limit.ok()?)
    };
    field("TracerPid:").is_none_or(|t| t == "0") && field("SigQ:").and_then(room) != Some(false)
}

/// Sends a recorded thread the signal that makes the recorder leave translated code.
pub fn kick(pid: i32, tid: i32) {
    const SI_QUEUE: i32 = -1;
    let mut info = [0i32; 32];
    // Signal, error, code, and behind a gap the sender's process and user.
    (info[0], info[2], info[4]) = (libc::SIGTRAP, SI_QUEUE, std::process::id() as i32);
    // SAFETY: `info` has as many bytes as a `siginfo_t`, and the kernel only reads it. If the
    // thread has ended, nothing is sent.
    unsafe {
        info[5] = libc::getuid() as i32;
        let _ = libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            tid,
            libc::SIGTRAP,
            info.as_ptr(),
        );
    }
}

/// Whether the recorder's image still runs in a process. True if there is no `/proc` to say it.
/// False if `/proc` may not be read: then the process runs another user's program.
pub fn recorded(pid: i32) -> bool {
    match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(exe) => exe
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(b"/memfd:hindsight"),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether this is the `stat` file of a zombie. What cannot be read counts as alive, since there
/// may be no `/proc`.
fn zombie(stat: &str) -> bool {
    matches!(state(stat), Some(b'Z' | b'X'))
}

/// The letter of the state in a `stat` file.
fn state(stat: &str) -> Option<u8> {
    behind_name(&fs::read(stat).ok()?)?.first().copied()
}

/// What a `stat` file says behind the name, which may hold anything.
fn behind_name(stat: &[u8]) -> Option<&[u8]> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    stat.get(end + 2..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_known() {
        let me = std::process::id() as i32;
        assert!(process(me) && thread(me, me));
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id() as i32;
        while process(pid) {
            std::thread::yield_now();
        }
        assert!(!thread(pid, pid));
        child.wait().unwrap();
        assert!(!process(pid) && !thread(pid, pid) && !thread(me, pid));
    }

    #[test]
    fn this_thread_runs_since_it_began() {
        let me = std::process::id() as i32;
        // SAFETY: the call uses no memory.
        let tid = unsafe { libc::gettid() };
        let Stat { state, began, .. } = stat(me, tid).unwrap();
        assert_eq!(state, b'R');
        assert_eq!(stat(me, tid).unwrap().began, began);
        assert!(began > 0 && stat(me, i32::MAX).is_none());
        assert!(takes_signals(me, tid));
    }

    #[test]
    fn no_signal_goes_to_who_is_traced_or_has_no_room() {
        let status = |tracer, queue| format!("Name:\tx\nTracerPid:\t{tracer}\nSigQ:\t{queue}\n");
        assert!(reaches(&status("0", "3/96000")));
        assert!(reaches("Name:\tx\n"));
        assert!(!reaches(&status("17", "3/96000")));
        assert!(!reaches(&status("0", "0/0")));
        assert!(!reaches(&status("0", "96000/96000")));
    }
}

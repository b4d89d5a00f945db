//! Tells signals that were sent to a whole process group from those that were sent to one process of it.
//!
//! Somebody who signals the process that a shell has started means the program; that process passes the signal on.
//! What is sent to the group reaches the program by itself, and passing it on would deliver it twice. So another
//! process is in the group, blocks everything and does nothing but to say what it got. The kernel signals the
//! members of a group from the youngest to the oldest: it has got the signal when its parent has.

use crate::sys::files::close;
use crate::sys::process;
use crate::sys::signals::Signals;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest time to wait for an answer: the probe may have been stopped or killed.
const PATIENCE: Duration = Duration::from_millis(200);

/// A process that sees what the group gets.
pub struct GroupProbe {
    pid: i32,
    line: UnixStream,
}

impl GroupProbe {
    /// Starts one. All signals are blocked, and this process has one thread.
    pub fn new() -> io::Result<GroupProbe> {
        let (line, mut theirs) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        let other = line.as_raw_fd();
        let pid = process::fork(|| {
            process::end_with_parent();
            close(other);
            hide();
            let mut signal = [0];
            while theirs.read_exact(&mut signal).is_ok() {
                let got = Signals::of(&[signal[0] as i32]).take(Duration::ZERO);
                if theirs.write_all(&[got.is_some() as u8]).is_err() {
                    break;
                }
            }
        })?;
        Ok(GroupProbe { pid, line })
    }

    /// Whether it got the signal, too; that is then forgotten.
    pub fn has_got(&self, signal: i32) -> bool {
        let mut answer = [0];
        let asked = (&self.line).write_all(&[signal as u8]);
        asked
            .and_then(|()| (&self.line).read_exact(&mut answer))
            .is_ok()
            && answer == [1]
    }
}

impl Drop for GroupProbe {
    fn drop(&mut self) {
        process::kill(self.pid, libc::SIGKILL);
        process::reap_at_once(self.pid);
    }
}

/// Whoever looks for processes by name or command, to signal them, is to find the one that passes signals on.
fn hide() {
    process::set_name(c"witness");
    // The places of the arguments are those that `/proc/PID/cmdline` shows.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut numbers = fields.split(' ').skip(46).map(|n| n.parse().unwrap_or(0));
    if let (Some(start), Some(end)) = (numbers.next(), numbers.next()) {
        process::clear_arguments(start, end);
    }
}

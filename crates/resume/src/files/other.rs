//! What is open and is no file: pipes, counters and others that belong to the process alone.

use super::{Prepared, Way};
use crate::{During, Error, Result};
use hindsight_inspect::ProcessState;
use hindsight_inspect::state::{Open, OpenKind};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The pipes of a process, by their numbers.
pub struct Pipes {
    /// How many reading and how many writing ends there are.
    ends: HashMap<u64, [u32; 2]>,
    /// Ends that are made and that nobody has taken yet.
    made: HashMap<u64, [Option<OwnedFd>; 2]>,
}

impl Pipes {
    pub fn new(s: &ProcessState) -> Pipes {
        let mut ends: HashMap<u64, [u32; 2]> = HashMap::new();
        for o in &s.open {
            if let OpenKind::Pipe { number, reads, .. } = o.kind {
                ends.entry(number).or_default()[usize::from(!reads)] += 1;
            }
        }
        Pipes {
            ends,
            made: HashMap::new(),
        }
    }
}

impl Prepared {
    /// What becomes of the one with this number.
    pub(super) fn other(&self, open: &Open, pipes: &mut Pipes) -> Result<(Way, String)> {
        let nonblocking = open.flags & libc::O_NONBLOCK;
        let step = |what: &str| format!("making {what}");
        Ok(match &open.kind {
            OpenKind::Standard(n) => {
                let name = ["standard input", "standard output", "standard error"][*n as usize];
                // SAFETY: the call only asks about a number.
                match unsafe { libc::fcntl(*n, libc::F_GETFD) } {
                    -1 => (Way::Nowhere, format!("{name}, which this command has not")),
                    _ => (Way::Inherited(*n), format!("{name} of this command")),
                }
            }
            OpenKind::Pipe {
                number,
                reads,
                waiting,
            } => {
                let text = format!(
                    "pipe {number}, {} end",
                    if *reads { "reading" } else { "writing" }
                );
                if pipes.ends.get(number) != Some(&[1, 1]) {
                    return Ok((
                        Way::Nowhere,
                        format!("{text}: the process has not both of its ends once"),
                    ));
                }
                let Some(waiting) = waiting else {
                    return Ok((Way::Nowhere, format!("{text}: what was in it is not known")));
                };
                if !pipes.made.contains_key(number) {
                    let (out, into) = pipe(waiting).during(|| step("a pipe"))?;
                    pipes.made.insert(*number, [Some(out), Some(into)]);
                }
                let ends = pipes.made.get_mut(number);
                let end = ends.and_then(|e| e[usize::from(!*reads)].take());
                let end = end.ok_or(Error::Nonsense("has descriptors that cannot be"))?;
                set_flags(&end, nonblocking).during(|| step("a pipe"))?;
                let text = format!("{text}, with {} bytes in it", waiting.len());
                (Way::Ready(end), text)
            }
            OpenKind::Counter(Some(value)) => {
                let fd = counter(*value, open.flags).during(|| step("an eventfd"))?;
                (Way::Ready(fd), format!("eventfd, which stands at {value}"))
            }
            OpenKind::Counter(None) => (Way::Nowhere, "eventfd, whose value is not known".into()),
            OpenKind::Signals(set) => {
                let fd = signals(*set, nonblocking).during(|| step("a signalfd"))?;
                (Way::Ready(fd), "signalfd".into())
            }
            OpenKind::Lost(what) => (Way::Nowhere, hindsight_text::line(what).into_owned()),
            _ => {
                return Err(Error::Nonsense("has descriptors that cannot be"));
            }
        })
    }
}

/// # Safety
/// If the number is not negative, it is a new descriptor that belongs to nobody else.
unsafe fn owned(fd: i32) -> io::Result<OwnedFd> {
    match fd {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: by this function's contract.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

fn set_flags(fd: &OwnedFd, flags: i32) -> io::Result<()> {
    // SAFETY: the call accesses no memory.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A pipe with these bytes in it.
fn pipe(waiting: &[u8]) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills in two descriptors, which belong to nobody else.
    let (out, into) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    if waiting.len() > 1 << 16 {
        // SAFETY: the call accesses no memory.
        unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, waiting.len()) };
        // A pipe that stays too small refuses the rest below.
    }
    let mut rest = waiting;
    while !rest.is_empty() {
        // SAFETY: the kernel reads the bytes of the slice.
        match unsafe { libc::write(into.as_raw_fd(), rest.as_ptr().cast(), rest.len()) } {
            n @ 1.. => rest = &rest[n as usize..],
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok((out, into))
}

fn counter(value: u64, flags: i32) -> io::Result<OwnedFd> {
    let flags = flags & (libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE) | libc::EFD_CLOEXEC;
    // SAFETY: the descriptor belongs to nobody else.
    let fd = unsafe { owned(libc::eventfd(0, flags)) }?;
    if value > 0 {
        // SAFETY: the kernel reads eight bytes. The counter stands at zero, so nothing is waited for.
        let n = unsafe { libc::write(fd.as_raw_fd(), (&raw const value).cast(), 8) };
        if n != 8 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(fd)
}

fn signals(set: u64, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads eight bytes; the descriptor belongs to nobody else.
    unsafe {
        owned(libc::syscall(libc::SYS_signalfd4, -1, &set, 8, flags | libc::O_CLOEXEC) as i32)
    }
}

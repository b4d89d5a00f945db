//! Messages between a process that has no file system and the one that opens files for it: a few bytes, and a
//! descriptor.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Bytes of a message at most: two paths and some numbers.
pub const MOST: usize = 3 * libc::PATH_MAX as usize;
/// Room for the head of a control message and one descriptor, aligned as that head.
type Control = [u64; 4];

/// Two connected sockets that keep messages apart.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just made them, and nobody else owns them.
    let [a, b] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((a, b))
}

/// Sends a message, with a descriptor.
pub fn send(to: RawFd, bytes: &[u8], fd: Option<BorrowedFd>) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::default();
    // SAFETY: a structure of numbers and pointers, for which zero is a value.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = &mut part;
    m.msg_iovlen = 1;
    if let Some(fd) = fd {
        m.msg_control = control.as_mut_ptr().cast();
        // SAFETY: pure arithmetic.
        m.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
        // SAFETY: the control area is aligned and has room for a head and one descriptor, as was just said.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&m);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(head)
                .cast::<RawFd>()
                .write_unaligned(fd.as_raw_fd());
        }
    }
    // Nobody waits: there is never more than one question under way, unless somebody wants to keep others waiting.
    let how = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: all that the message names lives as long as the call.
    again(|| unsafe { libc::sendmsg(to, &m, how) }).map(drop)
}

/// Waits for a message. An empty one: the other side is gone.
pub fn receive(from: RawFd, bytes: &mut [u8]) -> io::Result<(usize, Option<File>)> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::default();
    // SAFETY: a structure of numbers and pointers, for which zero is a value.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = &mut part;
    m.msg_iovlen = 1;
    m.msg_control = control.as_mut_ptr().cast();
    // SAFETY: pure arithmetic.
    m.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
    // SAFETY: all that the message names lives as long as the call, and has the lengths that are said.
    let n = again(|| unsafe { libc::recvmsg(from, &mut m, libc::MSG_CMSG_CLOEXEC) })?;
    let mut file = None;
    // SAFETY: the kernel has filled in the control area; there is room for one descriptor, which is nobody else's.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&m);
        if !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS
            && (*head).cmsg_len == libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize
        {
            let fd = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
            file = Some(File::from_raw_fd(fd));
        }
    }
    match m.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) {
        0 => Ok((n, file)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// A system call that signals may interrupt.
fn again(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let n = call();
        if n >= 0 {
            return Ok(n as usize);
        }
        let e = Error::last_os_error();
        if e.kind() != ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Waits, at most so long, until something can be read from any of these; which can be.
pub fn wait(fds: &[RawFd], longest: Option<Duration>) -> io::Result<Vec<bool>> {
    let millis = longest.map_or(-1, |t| i32::try_from(t.as_millis()).unwrap_or(i32::MAX));
    let mut all: Vec<libc::pollfd> = (fds.iter())
        .map(|fd| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let n = all.len() as libc::nfds_t;
    // SAFETY: as many structures as are said.
    again(|| unsafe { libc::poll(all.as_mut_ptr(), n, millis) } as isize)?;
    Ok(all.iter().map(|p| p.revents != 0).collect())
}

/// Has the kernel find out within some minutes that the machine of a peer is gone.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let set = |level, name, value: i32| {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the number has the length that is said.
        match unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                len,
            )
        } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 60)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 30)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4)
}

//! Messages between a process in the sandbox and its broker: a few bytes and a descriptor.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Most bytes of a message: two paths and some numbers.
pub const MOST: usize = 3 * libc::PATH_MAX as usize;
/// Room for the header of a control message and one descriptor, aligned like the header.
type Control = [u64; 4];

/// Makes two connected sockets that preserve message boundaries.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just made them, and nobody else owns them.
    let [a, b] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((a, b))
}

/// Sends a message, with a descriptor if there is one.
pub fn send(to: RawFd, bytes: &[u8], fd: Option<BorrowedFd>) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::default();
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = &mut part;
    m.msg_iovlen = 1;
    if let Some(fd) = fd {
        m.msg_control = control.as_mut_ptr().cast();
        // SAFETY: pure arithmetic.
        m.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
        // SAFETY: the control area is aligned and has room for a header and one descriptor, as just stated.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&m);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(head)
                .cast::<RawFd>()
                .write_unaligned(fd.as_raw_fd());
        }
    }
    // The call must not wait. At most one question is under way, unless the other side tries to make us wait.
    let how = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: everything to which the message points outlives the call.
    again(|| unsafe { libc::sendmsg(to, &m, how) }).map(drop)
}

/// Waits for a message. Its length is 0 if the other side is gone.
pub fn receive(from: RawFd, bytes: &mut [u8]) -> io::Result<(usize, Option<File>)> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::default();
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut m: libc::msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = &mut part;
    m.msg_iovlen = 1;
    m.msg_control = control.as_mut_ptr().cast();
    // SAFETY: pure arithmetic.
    m.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    // SAFETY: everything to which the message points outlives the call and has the stated lengths.
    let n = again(|| unsafe { libc::recvmsg(from, &mut m, libc::MSG_CMSG_CLOEXEC) })?;
    let mut file = None;
    // SAFETY: the kernel has filled in the control area. It has room for one descriptor, and nobody else owns
    // that.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&m);
        if !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS
            && (*head).cmsg_len as usize == libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize
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

/// Repeats a system call while signals interrupt it.
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

/// Waits until one of these descriptors can be read, at most as long as `longest`. Says which can be read.
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
    // SAFETY: the array has the stated number of structures.
    again(|| unsafe { libc::poll(all.as_mut_ptr(), n, millis) } as isize)?;
    Ok(all.iter().map(|p| p.revents != 0).collect())
}

/// Makes the kernel find out within some minutes that the peer's machine is gone.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let set = |level, name, value: i32| {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the number has the stated length.
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

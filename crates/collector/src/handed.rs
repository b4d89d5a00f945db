//! Files that recorded processes hand over as they map them. So what is read is what they have,
//! whatever becomes of the name, and wherever it leads for the collector.

use hindsight_events::ring::FileBox;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::Ordering::Relaxed;

/// The most files that are kept open until an event names them. There are more only if processes
/// were killed in between, or do it on purpose.
const MOST: usize = 64;

/// A socket. Its name leads to it from everywhere in the same network namespace, whatever the file
/// system is.
pub struct Inbox {
    socket: UnixDatagram,
    name: [u64; 2],
    /// A message counts only if it holds this.
    token: [u64; 2],
}

impl Inbox {
    /// Makes a socket with a random name.
    pub fn new() -> io::Result<Inbox> {
        let mut random = [[0; 8]; 4];
        let mut source = File::open("/dev/urandom")?;
        for word in &mut random {
            source.read_exact(word)?;
        }
        let [a, b, c, d] = random.map(u64::from_le_bytes);
        let (name, token) = ([a | 1, b], [c, d]);
        let address = SocketAddr::from_abstract_name(bytes(name))?;
        let socket = UnixDatagram::bind_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(Inbox {
            socket,
            name,
            token,
        })
    }

    /// Writes name and token to the control file.
    pub fn announce(&self, to: &FileBox) {
        for (to, from) in [(&to.token, self.token), (&to.name, self.name)] {
            to[0].store(from[0], Relaxed);
            to[1].store(from[1], Relaxed);
        }
    }

    /// The next message: a file, if the message counts and has one. `None`: there is no more.
    fn next(&self) -> Option<Option<File>> {
        let mut token = [0u8; 16];
        // Has room for one descriptor. The kernel closes those for which there is no room.
        let mut control = [0u64; 3];
        let mut part = libc::iovec {
            iov_base: token.as_mut_ptr().cast(),
            iov_len: token.len(),
        };
        // SAFETY: the structure consists of integers and pointers, for which zeros are valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the buffers are as long as the structure says. Nothing else uses them during the
        // call.
        let n = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        if n < 0 {
            let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            return interrupted.then_some(None);
        }
        // `struct cmsghdr`: a length, level and type; then the descriptor.
        let rights = (libc::SOL_SOCKET as u64) | (libc::SCM_RIGHTS as u64) << 32;
        let has_one = message.msg_controllen >= 20 && control[0] >= 20 && control[1] == rights;
        // SAFETY: the kernel has just opened the descriptor for this message, so nobody else owns
        // it.
        let file = has_one.then(|| unsafe { File::from_raw_fd(control[2] as i32) });
        let counts = n as usize == token.len() && token == bytes(self.token);
        Some(file.filter(|_| counts))
    }
}

fn bytes([a, b]: [u64; 2]) -> [u8; 16] {
    ((b as u128) << 64 | a as u128).to_le_bytes()
}

/// Files that were handed over and not asked for yet, the oldest first.
#[derive(Default)]
pub struct Handed(VecDeque<([u64; 2], File)>);

impl Handed {
    /// Takes the messages that have come.
    pub fn receive(&mut self, inbox: &Inbox) {
        // Has an end, even if somebody sends more and more.
        for _ in 0..MOST {
            let Some(message) = inbox.next() else { return };
            let Some(file) = message else { continue };
            let Ok(m) = file.metadata() else { continue };
            // Events name only regular files. Reading anything else may have effects, or never end.
            if m.is_file() {
                self.0.push_back(([m.dev(), m.ino()], file));
            }
            if self.0.len() > MOST {
                self.0.pop_front();
            }
        }
    }

    /// The file whose device and inode are the first two numbers of `wanted`.
    pub fn take(&mut self, inbox: Option<&Inbox>, wanted: &[u64; 4]) -> Option<File> {
        let at = self.find(wanted).or_else(|| {
            self.receive(inbox?);
            self.find(wanted)
        });
        Some(self.0.remove(at?)?.1)
    }

    /// Drops that file, which is known already.
    pub fn forget(&mut self, wanted: &[u64; 4]) {
        if let Some(at) = self.find(wanted) {
            self.0.remove(at);
        }
    }

    fn find(&self, wanted: &[u64; 4]) -> Option<usize> {
        self.0.iter().position(|(id, _)| id[..] == wanted[..2])
    }
}

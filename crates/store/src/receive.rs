//! Takes recordings that come over TCP: the other end of `record -o tcp:HOST:PORT`.
//!
//! Anybody may connect. So nobody is waited for who says nothing, and no more is taken than was agreed to.

use crate::error::{Error, Result, during};
use hindsight_guard::keep_alive;
use hindsight_trace::chunk::{ChunkHeader, HEADER_LEN, Kind};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Waits for recordings.
pub struct Receiver(TcpListener);

/// A recording that is being received.
pub struct Incoming {
    from: TcpStream,
    peer: SocketAddr,
    begin: Vec<u8>,
}

/// How much is taken of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The most bytes.
    pub bytes: u64,
    /// The longest time without a byte. `None`: until the kernel finds the other machine gone.
    pub idle: Option<Duration>,
}

impl Receiver {
    /// Listens at `HOST:PORT`; port 0 takes a free one. The connection is neither encrypted nor authenticated.
    ///
    /// # Errors
    /// The address is none of this machine, or is taken.
    pub fn listen(address: &str) -> Result<Receiver> {
        let listener = during(TcpListener::bind(address), || {
            format!("cannot listen on {address}")
        })?;
        Ok(Receiver(listener))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    /// Waits for somebody who begins with a recording within `timeout`. `turned_away` is told of the others, and why.
    ///
    /// # Errors
    /// No connection can be accepted.
    pub fn accept(
        &self,
        timeout: Duration,
        mut turned_away: impl FnMut(SocketAddr, &Error),
    ) -> Result<Incoming> {
        loop {
            let (mut from, peer) = during(self.0.accept(), || "no connection".into())?;
            match begin(&mut from, timeout) {
                Ok(begin) => return Ok(Incoming { from, peer, begin }),
                Err(e) => turned_away(peer, &e),
            }
        }
    }
}

impl Incoming {
    /// Who sends it.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Writes it to `to`, until its sender ends. `progress` is told how many bytes have come.
    ///
    /// # Errors
    /// The connection breaks, or `to` takes nothing. The kind of the error is [`ErrorKind::FileTooLarge`] if more is sent than
    /// `bounds` allow, and [`ErrorKind::WouldBlock`] or [`ErrorKind::TimedOut`] if nothing came for too long. What was
    /// written is readable.
    pub fn copy(
        mut self,
        to: &mut impl Write,
        bounds: Bounds,
        progress: impl FnMut(u64),
    ) -> io::Result<()> {
        keep_alive(&self.from)?;
        self.from.set_read_timeout(bounds.idle)?;
        copy(&self.begin, &mut self.from, to, bounds.bytes, progress)
    }
}

/// Reads what a recording begins with, and sees that it is that.
fn begin(from: &mut TcpStream, timeout: Duration) -> Result<Vec<u8>> {
    let no = |why: String| Err(Error::NoBeginning(why));
    let late = || format!("no recording begins within {} seconds", timeout.as_secs());
    let until = Instant::now() + timeout;
    let mut bytes = [0; HEADER_LEN];
    let mut have = 0;
    while have < bytes.len() {
        // Also for one that sends a byte now and then.
        let left = until.saturating_duration_since(Instant::now());
        from.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match from.read(&mut bytes[have..]) {
            Ok(0) => return no("the connection ended before a recording began".into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return no(late());
            }
            Err(e) => return Err(e.into()),
        }
        if Instant::now() > until && have < bytes.len() {
            return no(late());
        }
    }
    match ChunkHeader::from_bytes(&bytes, 0) {
        Ok(head) if head.kind == Kind::Header => Ok(bytes.to_vec()),
        Ok(_) => no("what comes is not the beginning of a recording".into()),
        Err(e) => no(e.to_string()),
    }
}

/// Copies at most so much, and tells how far it is; more is an error.
fn copy(
    begin: &[u8],
    from: &mut impl Read,
    to: &mut impl Write,
    most: u64,
    mut progress: impl FnMut(u64),
) -> io::Result<()> {
    let mut left = most;
    let mut part = vec![0; 1 << 16];
    part[..begin.len()].copy_from_slice(begin);
    let mut n = begin.len();
    while n > 0 {
        let fits = left.min(n as u64) as usize;
        to.write_all(&part[..fits])?;
        if fits < n {
            return Err(ErrorKind::FileTooLarge.into());
        }
        left -= n as u64;
        progress(most - left);
        n = loop {
            match from.read(&mut part) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_was_agreed_to() {
        let sent = vec![7; 200_000];
        let (mut to, mut last) = (Vec::new(), 0);
        copy(&sent[..64], &mut &sent[64..], &mut to, 200_000, |n| {
            last = n
        })
        .unwrap();
        assert!(to == sent && last == 200_000);
        let mut to = Vec::new();
        let e = copy(&sent[..64], &mut &sent[64..], &mut to, 100_000, |_| {}).unwrap_err();
        assert_eq!((e.kind(), to.len()), (ErrorKind::FileTooLarge, 100_000));
    }
}

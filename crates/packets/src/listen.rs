//! What a client says, read with limits on time and amount.

use crate::{Error, Framer, Incoming, Result};
use hindsight_guard::wait;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// Items that wait for an answer. A client waits for each answer, so there are few.
pub const MAX_WAITING: usize = 256;
/// How long a client may wait that has said so much and takes no answers. Then it is left.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a silent client is waited for; `None`: for ever.
#[derive(Clone, Copy, Default, Debug)]
pub struct Patience {
    /// Until its first packet.
    pub hello: Option<Duration>,
    /// Later.
    pub silence: Option<Duration>,
}

impl Patience {
    /// Waits for the first bytes.
    ///
    /// # Errors
    /// They do not come.
    pub fn hear(&self, from: &impl AsRawFd) -> Result<()> {
        match wait(&[from.as_raw_fd()], self.hello)?[0] {
            true => Ok(()),
            false => Err(silent()),
        }
    }
}

fn silent() -> Error {
    Error::Protocol("it says nothing".into())
}

/// Reads what one client says.
pub struct Listener<R> {
    from: R,
    patience: Patience,
}

impl<R: Read + AsRawFd> Listener<R> {
    /// A listener that waits for the client as long as `patience` says.
    pub fn new(from: R, patience: Patience) -> Listener<R> {
        Listener { from, patience }
    }

    /// Hands over what the client says. Ends when the client goes or when nobody receives any more.
    ///
    /// `interrupt` is called at once for each interrupt, since the receiver may be busy. The interrupt is handed over
    /// too, in its place among the packets. `send` should have room for [`MAX_WAITING`] items.
    ///
    /// # Errors
    /// The client is silent for too long, or says more than is answered.
    pub fn run(mut self, send: &SyncSender<Incoming>, interrupt: impl Fn()) -> Result<()> {
        let (mut framer, mut buf) = (Framer::default(), [0; 4096]);
        // Until the client has said a whole packet, nothing else that it says counts.
        let mut hello = self.patience.hello.map(|t| Instant::now() + t);
        loop {
            let longest = match hello {
                Some(until) => Some(until.saturating_duration_since(Instant::now())),
                None => self.patience.silence,
            };
            if !wait(&[self.from.as_raw_fd()], longest)?[0] {
                match longest {
                    // A signal came.
                    None => continue,
                    Some(_) => return Err(silent()),
                }
            }
            let Ok(n @ 1..) = self.from.read(&mut buf) else {
                return Ok(());
            };
            for item in buf[..n].iter().filter_map(|b| framer.push(*b)) {
                match item {
                    Incoming::Interrupt => interrupt(),
                    Incoming::Packet(_) => hello = None,
                    _ => {}
                }
                if !hand_over(send, item)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for room for an item. `false`: nobody receives it.
fn hand_over(send: &SyncSender<Incoming>, mut item: Incoming) -> Result<bool> {
    let since = Instant::now();
    while let Err(e) = send.try_send(item) {
        item = match e {
            TrySendError::Full(item) if since.elapsed() < PATIENCE => item,
            TrySendError::Full(_) => {
                return Err(Error::Protocol("it says more than is answered".into()));
            }
            TrySendError::Disconnected(_) => return Ok(false),
        };
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn packets_are_handed_over_in_order() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"$g#67\x03$s#73").unwrap();
        drop(client);
        let (send, receive) = sync_channel(MAX_WAITING);
        let interrupts = Cell::new(0);
        let listener = Listener::new(server, Patience::default());
        let end = listener.run(&send, || interrupts.set(interrupts.get() + 1));
        assert!(end.is_ok());
        drop(send);
        let expected = [
            Incoming::Packet(b"g".to_vec()),
            Incoming::Interrupt,
            Incoming::Packet(b"s".to_vec()),
        ];
        assert_eq!(receive.iter().collect::<Vec<_>>(), expected);
        assert_eq!(interrupts.get(), 1);
    }

    #[test]
    fn acknowledgements_are_no_hello() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"+++\x03").unwrap();
        let patience = Patience {
            hello: Some(Duration::ZERO),
            silence: None,
        };
        let (send, _receive) = sync_channel(MAX_WAITING);
        let end = Listener::new(server, patience).run(&send, || ());
        assert!(end.unwrap_err().to_string().contains("says nothing"));
    }
}

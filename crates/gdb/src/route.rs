//! Which process a packet is about. The protocol library knows of one; before it sees a packet, the process
//! that is meant is made the active one of the session. What concerns processes themselves is answered here.

use crate::Result;
use crate::state::session::Session;
use gdbstub::common::Tid;

/// The processes that the client has chosen.
#[derive(Default)]
pub struct Router {
    /// For registers, memory and breakpoints (`Hg`); `None`: the one that stopped last.
    general: Option<u64>,
    /// The thread of that, since the last stop; `None`: the one that stopped.
    chosen: Option<Tid>,
    /// For runs that do not say it themselves (`Hc`).
    resumed: Option<u64>,
    /// The thread that alone is to run then, if one was named.
    alone: Option<Tid>,
    /// A process that the client has turned to, but is not attached to, with the packet in which it did. It is
    /// usually about to let it go.
    next: Option<(u64, Vec<u8>)>,
}

/// What is to be done with a packet.
#[derive(PartialEq, Eq, Debug)]
pub enum Routed {
    /// This is the answer.
    Answer(&'static [u8]),
    /// Somebody else answers this packet in its place.
    Instead(Vec<u8>),
    /// Somebody else answers it; before that the library is to see this packet, of whose answer the client
    /// already has been told.
    Pass(Option<Vec<u8>>),
}

const OK: Routed = Routed::Answer(b"OK");
const FAILED: Routed = Routed::Answer(b"E01");
const PASS: Routed = Routed::Pass(None);

impl Router {
    /// Looks at a packet (without frame and checksum) before anybody else does.
    pub fn look(&mut self, session: &mut Session, packet: &[u8]) -> Result<Routed> {
        if let Some(rest) = packet.strip_prefix(b"Hg") {
            self.next = None;
            self.chosen = thread(rest);
            return Ok(match process(rest) {
                None => PASS,
                Some(pid) if session.is_attached(pid) => {
                    self.general = Some(pid);
                    activate(session, pid)?
                }
                Some(pid) => {
                    self.next = Some((pid, packet.to_vec()));
                    OK
                }
            });
        }
        if let Some(rest) = packet.strip_prefix(b"Hc") {
            self.resumed = process(rest);
            self.alone = thread(rest);
            // The library is told of it with the packet that runs: it takes the thread of a stop for the one that
            // was named here.
            return Ok(match self.resumed {
                Some(pid) if !session.activate(pid)? => FAILED,
                _ => OK,
            });
        }
        let gone = packet.strip_prefix(b"D;");
        if let Some(pid) = gone.or(packet.strip_prefix(b"vKill;")).and_then(hex) {
            return self.leave(session, pid);
        }
        if let Some(actions) = packet.strip_prefix(b"vCont;") {
            let mut actions = actions.split(|b| *b == b';');
            let named = actions.find_map(|a| process(a.split(|b| *b == b':').nth(1)?));
            return activate(session, named.unwrap_or(session.inferior.pid));
        }
        let back = matches!(packet, b"bc" | b"bs");
        if back || matches!(packet.first(), Some(b'c' | b's' | b'C' | b'S')) {
            let pid = self.resumed.or(self.general);
            if !session.activate(pid.unwrap_or(session.inferior.pid))? {
                return Ok(FAILED);
            }
            if back {
                session.locked = self.alone.is_some();
                session.continued = self.alone;
            }
            return Ok(match packet {
                b"bc" => PASS,
                b"bs" => Routed::Pass(Some(format!("Hc{:x}", self.steps(session)).into())),
                _ => self
                    .forward(session, packet)
                    .map_or(FAILED, Routed::Instead),
            });
        }
        if let Some(rest) = packet.strip_prefix(b"qXfer:exec-file:read:") {
            let pid = rest.split(|b| *b == b':').next().and_then(hex);
            return activate(session, pid.unwrap_or(session.inferior.pid));
        }
        if packet.starts_with(b"z") && self.next.is_some() {
            // It is not there.
            return Ok(OK);
        }
        if let Some((pid, chosen)) = self.next.take() {
            self.general = Some(pid);
            return match session.activate(pid)? {
                true => Ok(Routed::Pass(Some(chosen))),
                false => Ok(FAILED),
            };
        }
        match self.general {
            Some(pid) => activate(session, pid),
            None => Ok(PASS),
        }
    }

    /// The thread that a packet without a thread steps.
    fn steps(&self, session: &Session) -> Tid {
        let stands = session.tid(session.inferior.cursor.thread());
        let chosen = self.chosen.filter(|t| session.thread(*t).is_some());
        self.alone.or(chosen).unwrap_or(stands)
    }

    /// `c`, `s`, `Cxx` or `Sxx` as a `vCont` packet, which says itself what the other threads do: all threads run, unless `Hc`
    /// named one. `None`: the program would go on elsewhere, which it did not.
    fn forward(&self, session: &Session, packet: &[u8]) -> Option<Vec<u8>> {
        let action = std::str::from_utf8(packet).ok()?;
        let address = match packet[0] {
            b'c' | b's' => packet.len() > 1,
            _ => packet.contains(&b';'),
        };
        if address {
            return None;
        }
        let steps = matches!(packet[0], b's' | b'S');
        let text = match (self.alone, steps) {
            (Some(alone), _) => format!("vCont;{action}:{alone:x}"),
            (None, true) => format!("vCont;{action}:{:x};c", self.steps(session)),
            (None, false) => format!("vCont;{action}"),
        };
        Some(text.into_bytes())
    }

    /// The client is told of a stop, and takes the process in which that was for the chosen one.
    pub fn stopped(&mut self) {
        self.general = None;
        self.chosen = None;
        self.next = None;
    }

    fn leave(&mut self, session: &mut Session, pid: u64) -> Result<Routed> {
        if !session.is_attached(pid) {
            self.next = None;
            return Ok(OK);
        }
        let left = session.leave(pid)?;
        for chosen in [&mut self.general, &mut self.resumed] {
            chosen.take_if(|p| *p == pid);
        }
        // Otherwise nothing is left, and the session ends.
        Ok(if left { OK } else { PASS })
    }
}

fn activate(session: &mut Session, pid: u64) -> Result<Routed> {
    Ok(if session.activate(pid)? { PASS } else { FAILED })
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The process in `pPID.TID`, if it names one.
fn process(thread: &[u8]) -> Option<u64> {
    let rest = thread.strip_prefix(b"p")?;
    let pid = rest.split(|b| *b == b'.').next()?;
    hex(pid).filter(|p| *p != 0)
}

/// The thread in `pPID.TID` or `TID`, if it names one.
fn thread(name: &[u8]) -> Option<Tid> {
    let tid = match name.strip_prefix(b"p") {
        Some(both) => both.split(|b| *b == b'.').nth(1)?,
        None => name,
    };
    Tid::new(hex(tid)? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_name_processes() {
        assert_eq!(process(b"p1a.-1"), Some(0x1a));
        assert_eq!(process(b"p1a"), Some(0x1a));
        for none in [&b"p-1.-1"[..], b"p0.0", b"1a", b"-1", b"", b"p"] {
            assert_eq!(process(none), None);
        }
        assert_eq!(thread(b"p1a.2b"), Tid::new(0x2b));
        assert_eq!(thread(b"2b"), Tid::new(0x2b));
        for none in [&b"p1a.-1"[..], b"p1a.0", b"p1a", b"-1", b"0", b""] {
            assert_eq!(thread(none), None);
        }
    }
}

//! The part of the protocol that the library does not know, or answers otherwise: commands, conditions of breakpoints, threads with
//! names, what came with a signal, and which signals are not to stop. Packets about these are taken out of the
//! incoming stream and answered here; all others pass.

use hindsight_text::line;
use std::collections::VecDeque;

/// Longest packet that is taken.
pub const MAX_PACKET: usize = 1 << 16;
/// Bytes of an answer to a `qXfer` read.
const MAX_READ: usize = 0x2000;

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// No packet, or a damaged one: for the library.
    Pass(Vec<u8>),
    /// A packet, with frame and checksum.
    Packet(Vec<u8>),
    /// An interrupt request outside of packets.
    Interrupt,
}

/// Cuts the incoming bytes into packets.
#[derive(Default)]
pub struct Framer {
    packet: Vec<u8>,
    /// Within a packet.
    inside: bool,
    /// Bytes of the checksum still to come.
    checksum: usize,
}

impl Framer {
    /// Takes the next byte.
    pub fn push(&mut self, byte: u8) -> Option<Incoming> {
        if self.checksum > 0 {
            self.packet.push(byte);
            self.checksum -= 1;
            if self.checksum > 0 {
                return None;
            }
            self.inside = false;
            let raw = std::mem::take(&mut self.packet);
            let valid = raw[raw.len() - 2..] == *checksum(content(&raw)).as_bytes();
            return Some(match valid {
                true => Incoming::Packet(raw),
                false => Incoming::Pass(raw),
            });
        }
        if !self.inside {
            return match byte {
                b'$' => {
                    self.inside = true;
                    self.packet = vec![byte];
                    None
                }
                0x03 => Some(Incoming::Interrupt),
                other => Some(Incoming::Pass(vec![other])),
            };
        }
        if byte == b'$' {
            // A packet begins anew.
            self.packet.clear();
        }
        self.packet.push(byte);
        if byte == b'#' {
            self.checksum = 2;
        } else if self.packet.len() > MAX_PACKET {
            self.inside = false;
            self.packet.clear();
        }
        None
    }
}

/// What is within the frame of a packet.
pub fn content(packet: &[u8]) -> &[u8] {
    packet
        .get(1..packet.len().saturating_sub(3))
        .unwrap_or_default()
}

/// Whether a packet is about something added here. `gdb`: the client is gdb, which takes what a command prints in
/// one packet; others want it as console output, which the library sends.
pub fn is_own(content: &[u8], gdb: bool) -> bool {
    let conditional =
        (content.starts_with(b"Z0,") || content.starts_with(b"Z1,")) && content.contains(&b';');
    conditional
        || gdb && content.starts_with(b"qRcmd,")
        || content.starts_with(b"qXfer:siginfo:read:")
        || content.starts_with(b"qXfer:threads:read:")
        || content.starts_with(b"qGetTLSAddr:")
        || content.starts_with(b"QPassSignals:")
}

fn checksum(content: &[u8]) -> String {
    let sum = content.iter().fold(0u8, |s, b| s.wrapping_add(*b));
    format!("{sum:02x}")
}

/// A packet with this content.
pub fn frame(content: &[u8]) -> Vec<u8> {
    let mut out = vec![b'$'];
    out.extend_from_slice(content);
    out.push(b'#');
    out.extend_from_slice(checksum(content).as_bytes());
    out
}

/// A text as hexadecimal digits.
pub fn hex(text: &str) -> Vec<u8> {
    text.bytes()
        .flat_map(|b| format!("{b:02x}").into_bytes())
        .collect()
}

/// A packet that has the client show a text.
fn shown(text: &str) -> Vec<u8> {
    let mut content = b"O".to_vec();
    content.extend(hex(text));
    frame(&content)
}

/// The answer to `qXfer:…:read:annex:offset,length` for this whole content, escaped.
pub fn answer_read(request: &[u8], whole: &[u8]) -> Vec<u8> {
    let range = std::str::from_utf8(request).ok().and_then(|r| {
        let (offset, len) = r.rsplit(':').next()?.split_once(',')?;
        let number = |s| usize::from_str_radix(s, 16).ok();
        Some((number(offset)?, number(len)?.min(MAX_READ)))
    });
    let Some((offset, len)) = range else {
        return b"E00".to_vec();
    };
    let part = whole.get(offset..).unwrap_or(&[]);
    let (mark, part) = match part.len() <= len {
        true => (b'l', part),
        false => (b'm', &part[..len]),
    };
    let mut out = vec![mark];
    for b in part {
        if matches!(b, b'#' | b'$' | b'}' | b'*') {
            out.extend([b'}', b ^ 0x20]);
        } else {
            out.push(*b);
        }
    }
    out
}

/// The outgoing side: what the library writes, with the added features in its answer to `qSupported`.
pub struct Outgoing<W> {
    to: W,
    buffer: VecDeque<u8>,
    /// The next packet answers `qSupported`.
    pub supported: bool,
    /// Packets are no longer acknowledged.
    pub no_ack: bool,
    /// What the next packet has in place of the library's own event.
    pub event: Option<String>,
    /// The client has been answered already: what the library says is for nobody.
    pub mute: bool,
}

const FEATURES: &[u8] =
    b";ConditionalBreakpoints+;QPassSignals+;qXfer:siginfo:read+;qXfer:threads:read+;exec-events+";
/// Stands in a stop packet for an event that the library does not know.
const EVENT: &[u8] = b"library:;";

impl<W: std::io::Write> Outgoing<W> {
    pub fn new(to: W) -> Outgoing<W> {
        Outgoing {
            to,
            buffer: VecDeque::new(),
            supported: false,
            no_ack: false,
            event: None,
            mute: false,
        }
    }

    /// Has the client show a line; only while it waits for a stop.
    pub fn console(&mut self, text: &str) -> std::io::Result<()> {
        self.to.write_all(&shown(&format!("{}\n", line(text))))?;
        self.to.flush()
    }

    /// Sends an answer of our own, acknowledging the packet first where that is still done.
    pub fn answer(&mut self, content: &[u8]) -> std::io::Result<()> {
        self.answer_with(None, content)
    }

    /// The same to a command, with what the client is to show before it takes the answer.
    pub fn answer_with(&mut self, words: Option<&str>, content: &[u8]) -> std::io::Result<()> {
        let mut all = Vec::new();
        if !self.no_ack {
            all.push(b'+');
        }
        all.extend(words.map(shown).unwrap_or_default());
        all.extend(frame(content));
        // At once: the client is to have no time between the two.
        self.to.write_all(&all)?;
        self.to.flush()
    }
}

impl<W: std::io::Write> gdbstub::conn::Connection for Outgoing<W> {
    type Error = std::io::Error;

    fn write(&mut self, byte: u8) -> std::io::Result<()> {
        self.buffer.push_back(byte);
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let mut bytes: Vec<u8> = self.buffer.drain(..).collect();
        if self.mute {
            return Ok(());
        }
        let start = bytes.iter().position(|b| *b == b'$');
        if (self.supported || self.event.is_some())
            && let Some(start) = start
            && let Some(end) = bytes[start..].iter().position(|b| *b == b'#')
        {
            let mut content = bytes[start + 1..start + end].to_vec();
            if std::mem::take(&mut self.supported) {
                content.extend_from_slice(FEATURES);
            }
            let event = content.windows(EVENT.len()).position(|w| w == EVENT);
            if let Some(at) = event
                && let Some(event) = self.event.take()
            {
                content.splice(at..at + EVENT.len(), event.bytes().chain([b';']));
            }
            let rest = bytes.split_off((start + end + 3).min(bytes.len()));
            bytes.truncate(start);
            bytes.extend(frame(&content));
            bytes.extend(rest);
        }
        self.to.write_all(&bytes)?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbstub::conn::Connection;

    fn push(bytes: &[u8]) -> Vec<Incoming> {
        let mut f = Framer::default();
        bytes.iter().filter_map(|b| f.push(*b)).collect()
    }

    #[test]
    fn packets_are_told_apart() {
        let (own, plain) = (b"Z0,401000,1;X3,220127", b"Z0,401000,1");
        assert!(is_own(own, false) && !is_own(plain, true));
        assert!(is_own(b"qRcmd,00", true) && !is_own(b"qRcmd,00", false));
        let own = frame(own);
        assert_eq!(push(&own), [Incoming::Packet(own.clone())]);
        assert_eq!(content(&own), b"Z0,401000,1;X3,220127");
        assert_eq!(content(b"$"), b"");
        let mut bytes = b"+\x03".to_vec();
        bytes.extend(frame(b"g"));
        let expected = [
            Incoming::Pass(b"+".to_vec()),
            Incoming::Interrupt,
            Incoming::Packet(frame(b"g")),
        ];
        assert_eq!(push(&bytes), expected);
        // A wrong checksum is the library's business: it asks for the packet again.
        let mut wrong = own.clone();
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(push(&wrong), [Incoming::Pass(wrong.clone())]);
        // Too long: forgotten.
        let mut long = vec![b'$'];
        long.resize(MAX_PACKET + 10, b'a');
        assert!(
            push(&long)
                .iter()
                .all(|i| matches!(i, Incoming::Pass(b) if b.len() == 1))
        );
    }

    #[test]
    fn reads_in_pieces() {
        assert_eq!(answer_read(b"qXfer:threads:read::0,4", b"abcdef"), b"mabcd");
        assert_eq!(answer_read(b"qXfer:threads:read::4,4", b"abcdef"), b"lef");
        assert_eq!(answer_read(b"qXfer:threads:read::40,4", b"abcdef"), b"l");
        assert_eq!(
            answer_read(b"qXfer:threads:read::0,40", b"a#b"),
            b"la}\x03b"
        );
        assert_eq!(answer_read(b"qXfer:threads:read:", b"a"), b"E00");
    }

    #[test]
    fn features_are_added_once() {
        let mut sent = Vec::new();
        let mut out = Outgoing::new(&mut sent);
        out.supported = true;
        out.write_all(b"+").unwrap();
        out.write_all(&frame(b"PacketSize=1000")).unwrap();
        out.flush().unwrap();
        out.write_all(&frame(b"OK")).unwrap();
        out.flush().unwrap();
        let mut expected = b"+".to_vec();
        let mut content = b"PacketSize=1000".to_vec();
        content.extend_from_slice(FEATURES);
        expected.extend(frame(&content));
        expected.extend(frame(b"OK"));
        assert_eq!(sent, expected);
    }
}

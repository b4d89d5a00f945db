//! The way out: answers in frames, with acknowledgements while both sides use them.

use crate::Answer;
use crate::encoding::{push_hex, shorten};
use crate::frame::frame;
use std::io::{Result, Write};

/// Sends answers to one client.
pub struct Sender<W> {
    to: W,
    /// Packets are acknowledged.
    acks: bool,
    /// The last packet, as long as the client may want it again.
    last: Vec<u8>,
}

impl<W: Write> Sender<W> {
    /// At first packets are acknowledged.
    pub fn new(to: W) -> Sender<W> {
        Sender {
            to,
            acks: true,
            last: Vec::new(),
        }
    }

    /// Whether packets are acknowledged.
    pub fn has_acks(&self) -> bool {
        self.acks
    }

    /// From now on packets are not acknowledged. Call it behind the answer to the packet that asks for it.
    pub fn stop_acks(&mut self) {
        self.acks = false;
        self.last = Vec::new();
    }

    /// Tells the client that its packet has come; the answer follows later by [`Sender::send`].
    pub fn acknowledge(&mut self) -> Result<()> {
        self.write(if self.acks { b"+" } else { b"" })
    }

    /// Wants a damaged packet again.
    pub fn refuse(&mut self) -> Result<()> {
        self.write(if self.acks { b"-" } else { b"" })
    }

    /// Acknowledges a packet and answers it.
    pub fn answer(&mut self, answer: &Answer) -> Result<()> {
        self.answer_with(None, answer)
    }

    /// The same. Before the answer, the client shows a text to its user.
    ///
    /// All goes out in one piece. gdb can be interrupted between two packets, and would leave the second one unread.
    pub fn answer_with(&mut self, text: Option<&str>, answer: &Answer) -> Result<()> {
        let mut all = if self.acks { b"+".to_vec() } else { Vec::new() };
        all.extend(text.map(shown).unwrap_or_default());
        let packet = frame(&shorten(answer.content()));
        all.extend(&packet);
        self.keep(packet);
        self.write(&all)
    }

    /// Sends an answer without an acknowledgement: the packet was acknowledged before.
    pub fn send(&mut self, answer: &Answer) -> Result<()> {
        let packet = frame(&shorten(answer.content()));
        self.write(&packet)?;
        self.keep(packet);
        Ok(())
    }

    /// Has the client show a text to its user. Clients take it only while they wait for an answer.
    pub fn show(&mut self, text: &str) -> Result<()> {
        self.write(&shown(text))
    }

    /// Sends the last answer again.
    pub fn repeat(&mut self) -> Result<()> {
        let last = std::mem::take(&mut self.last);
        self.write(&last)?;
        self.last = last;
        Ok(())
    }

    /// Where the answers went.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn keep(&mut self, packet: Vec<u8>) {
        if self.acks {
            self.last = packet;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes)?;
        self.to.flush()
    }
}

/// A packet that has the client show a text.
fn shown(text: &str) -> Vec<u8> {
    let mut content = b"O".to_vec();
    push_hex(&mut content, text.as_bytes());
    frame(&shorten(&content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(work: impl FnOnce(&mut Sender<Vec<u8>>)) -> String {
        let mut sender = Sender::new(Vec::new());
        work(&mut sender);
        String::from_utf8(sender.into_inner()).unwrap()
    }

    #[test]
    fn acknowledgements_end_behind_an_answer() {
        let all = sent(|s| {
            s.answer(&Answer::ok()).unwrap();
            s.stop_acks();
            s.answer(&Answer::ok()).unwrap();
            s.acknowledge().unwrap();
            s.refuse().unwrap();
            s.repeat().unwrap();
        });
        assert_eq!(all, "+$OK#9a$OK#9a");
    }

    #[test]
    fn a_damaged_answer_comes_again() {
        let all = sent(|s| {
            s.refuse().unwrap();
            s.acknowledge().unwrap();
            s.send(&Answer::error(1)).unwrap();
            s.repeat().unwrap();
        });
        assert_eq!(all, "-+$E01#a6$E01#a6");
    }

    #[test]
    fn texts_come_before_the_answer() {
        let all = sent(|s| s.answer_with(Some("a"), &Answer::error(1)).unwrap());
        assert_eq!(all, "+$O61#b6$E01#a6");
        assert_eq!(sent(|s| s.show("aa").unwrap()), "$O6161#1d");
        assert_eq!(sent(|s| s.send(&Answer::text("0000")).unwrap()), "$0* #7a");
    }
}
